import torch
from torch import nn

EMPTY = {"cuda": torch.cuda.empty_cache, "xpu": None, "cpu": lambda: None}


class Augment(nn.Module):
    def forward(self, x):
        return x * torch.rand(1).item() + float(torch.randint(3, (1,)).item())


def encode(tokenizer, prompt, device):
    ids = tokenizer(prompt, padding="max_length", return_tensors="pt").input_ids
    whole = tokenizer(prompt, padding="longest", return_tensors="pt").input_ids
    if whole.shape[-1] >= ids.shape[-1] and not torch.equal(ids, whole):
        print(tokenizer.batch_decode(whole[:, 10:-1]))
    return ids.to(device)


def state():
    return {"numbers": torch.get_rng_state()}


class Quantizer:
    def cuda(self, weight, meta):
        return weight


Quantizer().cuda(1, meta=2)
