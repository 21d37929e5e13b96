import os

import torch
from torch import nn

device = torch.accelerator.current_accelerator() or torch.device("cpu")


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.is_cuda = False  # quiet: PJ107

    def cuda(self, device=None):
        return self.child.cuda(device)  # quiet: PJ101


def report(log, rank, backend_name, canvas, x: torch.cuda.FloatTensor):
    model = Pair().to(device)  # quiet: PJ101
    log.info("no device: %s", "cuda")  # quiet: PJ102
    log.info(f"cuda:{rank}")  # quiet: PJ103
    canvas.draw(device=0)  # quiet: PJ104
    x = x.to(torch.float32).sum(0)  # quiet: PJ104
    print(torch.cuda.is_available())  # quiet: PJ105
    if backend_name == "cuda":  # quiet: PJ106
        pass
    old = isinstance(x, torch.cuda.FloatTensor)  # quiet: PJ108
    count = torch.accelerator.device_count() if hasattr(torch, "accelerator") else 1  # quiet: PJ109
    name = canvas.cuda.get_device_name()  # quiet: PJ110
    home = os.environ["CUDA_HOME"] if "CUDA_HOME" in os.environ else ""  # quiet: PJ111
    try:
        model(x)
    except torch.cuda.OutOfMemoryError:  # quiet: PJ112
        pass
    return old, count, name, home


def old_name(x):
    return x.cuda()  # pjrt: ignore[PJ101]  quiet: PJ002
