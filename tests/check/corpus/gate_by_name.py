import enum

import torch


class Kind(enum.Enum):
    CUDA = 1


def seed(kind, device):
    if kind == Kind.CUDA:
        torch.cuda.set_rng_state(None)  # expect: PJ307/silently-changes
    if device.startswith("cuda:"):  # expect: PJ106
        torch.cuda.set_device(device)  # expect: PJ109/silently-changes
    elif device == "xpu":
        torch.xpu.set_device(device)  # quiet: PJ113


def attention():
    from flash_attn_interface import flash_attn_func  # expect: PJ601

    return flash_attn_func


def wait(rank):
    if torch.distributed.get_backend() == "nccl":  # expect: PJ504
        torch.distributed.barrier(device_ids=[rank])  # expect: PJ502/silently-changes
