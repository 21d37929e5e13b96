# runs
import torch


def get_device():
    if torch.cuda.is_available():  # expect: PJ105
        return torch.device("cuda")
    elif torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


if torch.cuda.is_available():  # expect: PJ105
    device = "cuda"
else:
    device = "cpu"
result = torch.ones(4, device=get_device()).sum().item() + torch.ones(2, device=device).sum().item()
