# runs
"""A whole script with the usual habits."""
import torch
import torch.nn as nn
from torch.cuda.amp import GradScaler, autocast

torch.manual_seed(0)
torch.cuda.manual_seed_all(0)  # expect: PJ306
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # expect: PJ105


def train(steps: int) -> float:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
    with torch.no_grad():
        for parameter in model.parameters():  # the same on every device
            parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()).reshape(parameter.shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = GradScaler(enabled=False)  # expect: PJ202
    x = torch.linspace(-1, 1, 32 * 8).reshape(32, 8).to(device, non_blocking=True)
    y = (torch.arange(32) % 2).to(device)
    for _ in range(steps):
        with autocast(enabled=False):  # expect: PJ201
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # expect: PJ401/style
    return loss.item()


result = train(3)
