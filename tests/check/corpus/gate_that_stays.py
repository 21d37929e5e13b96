import torch

if torch.cuda.is_available():  # expect: PJ105
    print(torch.cuda.get_device_name(0))  # expect: PJ110/silently-changes
    device = "cuda"
else:
    device = "cpu"
