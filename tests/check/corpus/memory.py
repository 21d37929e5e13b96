# runs
import torch

torch.cuda.empty_cache()  # expect: PJ403/style
torch.cuda.reset_peak_memory_stats()  # expect: PJ403
x = torch.ones(8)
used = torch.cuda.memory_allocated() / 2**20  # expect: PJ403/silently-changes
peak = torch.cuda.max_memory_allocated()  # expect: PJ403/silently-changes
free, total = torch.cuda.mem_get_info()  # expect: PJ403
result = x.sum().item() + float(used > 2**40)
