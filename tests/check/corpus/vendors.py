import torch

x = torch.ones(2, device="mps")  # expect: PJ114
y = x.to("xpu:0")  # expect: PJ114
device = torch.device("npu")  # expect: PJ114
torch.mps.empty_cache()  # expect: PJ113
torch.xpu.synchronize()  # expect: PJ113
with torch.xpu.stream(torch.xpu.Stream()):  # expect: PJ113, PJ113
    pass
