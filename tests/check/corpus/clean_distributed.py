import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(device: torch.device, backend: str):
    dist.init_process_group(backend, device_id=device)  # quiet: PJ506
    return DDP(torch.nn.Linear(2, 2).to(device), device_ids=[0] if device.type == "cuda" else None)  # quiet: PJ106, PJ502


def small():
    dist.init_process_group(dist.get_default_backend_for_device("cpu"))  # quiet: PJ506
    dist.barrier()  # quiet: PJ502
