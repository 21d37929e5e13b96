import torch

start = torch.cuda.Event(enable_timing=True)  # expect: PJ402
end = torch.cuda.Event(True)  # expect: PJ402
side = torch.cuda.Stream()  # expect: PJ402
start.record()
end.record()
torch.cuda.synchronize()  # expect: PJ401
print(start.elapsed_time(end), torch.cuda.current_stream())  # expect: PJ402
