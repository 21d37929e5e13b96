import torch
from torch import nn
from torch.utils.data import DataLoader


class Model(nn.Module):
    def forward(self, x, tokenizer):
        places = torch.nonzero(x)  # expect: PJ803
        big = x[x > 0]  # expect: PJ803
        x[x < 0] = 0.0
        kept = torch.where(x > 0, x, 0.0)
        where = torch.where(x > 0)  # expect: PJ803
        n = x.sum().item()  # expect: PJ801
        batch = tokenizer(["a"], padding=True)  # expect: PJ805
        return places, big, kept, where, n, batch


loader = DataLoader(list(range(9)), batch_size=2, shuffle=True)  # expect: PJ804
fixed = DataLoader(list(range(9)), batch_size=2, shuffle=True, drop_last=True)
outside = torch.nonzero(torch.ones(3))
