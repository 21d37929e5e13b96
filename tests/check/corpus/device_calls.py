import torch

torch.cuda.set_device(0)  # expect: PJ109
n = torch.cuda.device_count()  # expect: PJ109/silently-changes
i = torch.cuda.current_device()  # expect: PJ109
with torch.cuda.device(0):  # expect: PJ109
    name = torch.cuda.get_device_name()  # expect: PJ110
major, minor = torch.cuda.get_device_capability()  # expect: PJ110
dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16  # expect: PJ110/silently-changes
kernel = torch.cuda.jiterator  # expect: PJ112
