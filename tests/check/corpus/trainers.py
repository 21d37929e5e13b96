import torch.distributed as dist
from lightning import Trainer
from lightning.fabric import Fabric
from lightning.fabric.plugins import BitsandbytesPrecision
from torch.profiler import profile
from transformers import BitsAndBytesConfig

from .data import StreamingDataLoader

trainer = Trainer(accelerator="gpu", devices=2)  # expect: PJ102
fabric = Fabric(accelerator="cuda")  # expect: PJ102
old = Trainer(gpus=2)  # expect: PJ102
auto = Trainer(accelerator="auto", gpus=None)  # quiet: PJ102
plugin = BitsandbytesPrecision("nf4")  # expect: PJ607
config = BitsAndBytesConfig(load_in_4bit=True)  # expect: PJ607
loader = StreamingDataLoader([], pin_memory=True)  # expect: PJ406
other = StreamingDataLoader([], pin_memory=False)  # quiet: PJ406
place = "cuda:0"  # expect: PJ103


def report(prof: profile, column: str = "self_cuda_time_total"):  # expect: PJ407
    return prof.key_averages().table(sort_by=column)


def stage(x, backend, use_pin_memory):
    if backend != dist.Backend.NCCL:  # expect: PJ504
        return x.pin_memory()  # expect: PJ406
    dist.init_process_group(backend=dist.Backend.NCCL)  # expect: PJ501/silently-changes
    return x.pin_memory() if use_pin_memory else x  # quiet: PJ406
