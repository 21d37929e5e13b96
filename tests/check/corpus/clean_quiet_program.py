import torch
from torch import nn
from torch.utils.data import DataLoader


class Model(nn.Module):
    def forward(self, x, tokenizer):
        x[x < 0] = 0.0  # quiet: PJ803
        kept = torch.where(x > 0, x, 0.0)  # quiet: PJ803
        if x.dim() == 3:  # quiet: PJ802
            kept = kept.flatten(1)
        batch = tokenizer(["a"], padding=True, pad_to_multiple_of=128)  # quiet: PJ805
        return kept, batch


def train(model, optimizer, data):
    loader = DataLoader(data, batch_size=2, shuffle=True, drop_last=True)  # quiet: PJ804
    total = 0.0
    for step, x in enumerate(loader):
        loss = model(x)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 100 == 0:
            print(loss.item())  # quiet: PJ801
    print(total.item())  # quiet: PJ801
