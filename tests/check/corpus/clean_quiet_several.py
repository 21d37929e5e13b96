import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

from .parallel import DataParallel


def start(model, device, backend):
    dist.init_process_group("gloo", device_id=device)  # quiet: PJ501
    if backend == "gloo":  # quiet: PJ504
        dist.barrier()
    mesh = init_device_mesh(device.type, (2,))  # quiet: PJ505
    wrapped = DDP(model, device_ids=None)  # quiet: PJ502
    return DataParallel(wrapped), mesh  # of this project; quiet: PJ503
