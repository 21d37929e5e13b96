"""The models that are timed: an MLP, a GPT and a ResNet-18, in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (p.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for p in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A small GPT over a vocabulary of 512."""

    def __init__(self, layers: int, width: int = 256, heads: int = 8, vocabulary: int = 512, length: int = 128):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embed(tokens) + self.position)))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """ResNet's basic block."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        plain = stride == 1 and inputs == outputs
        self.skip = (
            nn.Identity()
            if plain
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.skip(x))


def resnet18(classes: int = 10, width: int = 64) -> nn.Module:
    """ResNet-18 with the usual stem."""
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks: list[nn.Module] = []
    for i in range(4):
        blocks += [Residual(widths[i], widths[i + 1], 1 if i == 0 else 2), Residual(widths[i + 1], widths[i + 1], 1)]
    stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes))


def mlp() -> nn.Module:
    """Three layers of width 512."""
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def training_step(name: str, device: str, layers: int = 4, *, compiled: bool = False) -> Callable[[], float]:
    """A whole step (zero_grad, forward, loss, backward, AdamW) of "mlp", "gpt" or "resnet18" that reads the loss.

    It returns when all of its work is done: what a device still did afterwards would be billed to what is timed next.
    compiled: the model and the loss under torch.compile, which takes Inductor on the CPU and ours on the device.
    """
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(1)
    if name == "gpt":
        model: nn.Module = GPT(layers)
        x = torch.randint(0, 512, (4, 128), generator=draw)
        y = x.flatten()
    elif name == "resnet18":
        model = resnet18()
        x, y = torch.randn(4, 3, 96, 96, generator=draw), torch.randint(0, 10, (4,), generator=draw)
    else:
        model = mlp()
        x, y = torch.randn(128, 256, generator=draw), torch.randint(0, 10, (128,), generator=draw)
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x).flatten(0, -2), y)

    loss_of = torch.compile(forward) if compiled else forward

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        value = loss.item()
        if device != "cpu":
            torch.accelerator.synchronize()
        return value

    return step
