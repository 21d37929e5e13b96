import torch


def wait(device):
    if device.type == "xpu":
        torch.xpu.synchronize()  # quiet: PJ113
    elif device.type == "mps":
        torch.mps.synchronize()  # quiet: PJ113


def choose():
    if hasattr(torch, "accelerator") and torch.accelerator.is_available():
        return torch.accelerator.current_accelerator().type
    if torch.xpu.is_available():
        return torch.device("xpu", torch.xpu.current_device())  # quiet: PJ113, PJ114
    return torch.device("mps") if torch.backends.mps.is_available() else torch.device("cpu")  # quiet: PJ114


def empty_mps():
    torch.mps.empty_cache()


EMPTY = {"mps": torch.mps.empty_cache, "cpu": None}
CHOICES = ["cpu", "mps", "xpu"]
count = torch.xpu.device_count()
