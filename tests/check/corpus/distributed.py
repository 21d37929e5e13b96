import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend="nccl")  # expect: PJ501
    torch.cuda.set_device(rank)  # expect: PJ109
    model = DDP(torch.nn.Linear(2, 2).cuda(rank), device_ids=[rank])  # expect: PJ101, PJ502
    mesh = init_device_mesh("cuda", (2,))  # expect: PJ505
    if dist.get_backend() == "nccl":  # expect: PJ504
        dist.barrier(device_ids=[rank])  # expect: PJ502/silently-changes
    return model, mesh


def old(model):
    return torch.nn.DataParallel(model)  # expect: PJ503
