import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader

from .graphs import CUDAGraph, Stream


def measure(cache, device, data, model):
    torch.accelerator.synchronize()  # quiet: PJ401
    start, side = torch.Event(device, enable_timing=True), Stream()  # quiet: PJ402
    cache.empty_cache()  # quiet: PJ403
    torch.accelerator.empty_cache()  # quiet: PJ403
    graph = CUDAGraph(model)  # of this project; quiet: PJ404
    with record_function("step"):  # quiet: PJ405
        pass
    loader = DataLoader(data, pin_memory=torch.accelerator.is_available())  # quiet: PJ406
    with profile(activities=[ProfilerActivity.CPU]) as prof:  # quiet: PJ407
        x = next(iter(loader)).to(device, non_blocking=True)  # quiet: PJ408
    print(prof.key_averages().table(sort_by="device_time_total"))  # quiet: PJ407
    return start, side, graph, x
