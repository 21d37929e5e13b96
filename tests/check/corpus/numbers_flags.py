# runs
import torch

torch.backends.cuda.matmul.allow_tf32 = True  # expect: PJ304
torch.backends.cudnn.allow_tf32 = True  # expect: PJ304
torch.backends.cudnn.benchmark = True  # expect: PJ308
torch.backends.cuda.enable_flash_sdp(False)  # expect: PJ309
result = torch.ones(2, 2).matmul(torch.ones(2, 2)).sum().item()
