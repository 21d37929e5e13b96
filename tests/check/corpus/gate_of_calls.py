# runs
import torch

torch.manual_seed(3)
if torch.cuda.is_available():
    torch.cuda.manual_seed_all(3)  # expect: PJ306/style
    torch.cuda.empty_cache()  # expect: PJ403/style
num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 1  # expect: PJ109/silently-changes
used = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0  # expect: PJ403/style
result = torch.rand(3).sum().item()
