import torch
from torch.profiler import ProfilerActivity, profile

torch.cuda.nvtx.range_push("step")  # expect: PJ405
torch.cuda.nvtx.range_pop()  # expect: PJ405
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:  # expect: PJ407
    pass
print(prof.key_averages().table(sort_by="cuda_time_total"))  # expect: PJ407
