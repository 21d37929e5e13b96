import torch

with torch.autocast(device_type="cpu", dtype=torch.float16):  # expect: PJ205
    pass
