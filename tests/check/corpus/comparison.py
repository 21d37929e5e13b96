import torch


def run(x, device):
    if device.type == "cuda":  # quiet: PJ106
        torch.cuda.synchronize()  # expect: PJ401/style
    half = device.type == "cuda"  # expect: PJ106
    if "cuda" in str(device):  # expect: PJ106
        x = x.half() if half else x
    if str(device).startswith("cuda"):  # expect: PJ106
        x = x.contiguous()
    if x.is_cuda:  # expect: PJ107
        x = x * 2
    return x if x.device != torch.device("cuda") else x.cpu()  # expect: PJ106
