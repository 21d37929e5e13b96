import torch


def mask(scores, keep):
    low = torch.finfo(torch.float32).min  # expect: PJ305
    good = torch.finfo(scores.dtype).min
    return scores.masked_fill(~keep, low) + scores.masked_fill(~keep, good)
