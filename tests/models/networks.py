"""Small networks in plain PyTorch: a ConvNeXt, an EfficientNet, and LSTM and GRU classifiers.

Each is the published architecture in few words, cut down to a size that runs in milliseconds. `Classifier` gives every
network the interface of a `transformers` model: keyword inputs, and a loss and logits as attributes of the result.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class Outcome(NamedTuple):
    """What a classifier gives."""

    loss: torch.Tensor
    logits: torch.Tensor


class Classifier(nn.Module):
    """A network and its cross-entropy loss."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Outcome:
        logits = self.body(x)
        return Outcome(F.cross_entropy(logits, labels), logits)


class StochasticDepth(nn.Module):
    """Drops the whole branch of a sample with probability `rate` while training."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.rate == 0:
            return x
        kept = torch.rand(len(x), *[1] * (x.dim() - 1), device=x.device) >= self.rate
        return x * kept / (1 - self.rate)


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of an image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, layer norm, an MLP over channels, layer scale."""

    def __init__(self, width: int, drop: float):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))
        self.drop = StochasticDepth(drop)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + self.drop(y.permute(0, 3, 1, 2))


def convnext(widths: tuple[int, ...] = (16, 32), depth: int = 2, classes: int = 10, drop: float = 0.0) -> nn.Module:
    """ConvNeXt: a patch stem, stages of blocks with 2x2 stride-2 convolutions between, pooling, a linear head."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), LayerNorm2d(widths[0], eps=1e-6)]
    for i, width in enumerate(widths):
        if i:
            layers += [LayerNorm2d(widths[i - 1], eps=1e-6), nn.Conv2d(widths[i - 1], width, 2, 2)]
        layers += [ConvNeXtBlock(width, drop) for _ in range(depth)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], classes)]
    return nn.Sequential(*layers, *head)


class SqueezeExcite(nn.Module):
    """Scales each channel by a function of all channel means."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(width, hidden, 1), nn.Conv2d(hidden, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(means))))


def _conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01),
    ]
    return nn.Sequential(*layers, *([nn.SiLU(inplace=True)] if act else []))


class MBConv(nn.Module):
    """EfficientNet's block: expand, depthwise, squeeze and excite, project; a residual where shapes allow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int, drop: float):
        super().__init__()
        width = inputs * expand
        parts: list[nn.Module] = [_conv_norm(inputs, width, 1)] if expand > 1 else []
        parts += [_conv_norm(width, width, kernel, stride, groups=width), SqueezeExcite(width, max(1, inputs // 4))]
        self.body = nn.Sequential(*parts, _conv_norm(width, outputs, 1, act=False))
        self.drop = StochasticDepth(drop)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return x + self.drop(y) if self.residual else y


def efficientnet(classes: int = 10, drop: float = 0.0) -> nn.Module:
    """EfficientNet with four blocks: stem, MBConv stages, 1x1 head, pooling, dropout, a linear head."""
    blocks = [
        MBConv(8, 8, 3, 1, 1, drop),
        MBConv(8, 16, 3, 2, 4, drop),
        MBConv(16, 16, 3, 1, 4, drop),
        MBConv(16, 24, 5, 2, 4, drop),
    ]
    head = [_conv_norm(24, 64, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(drop), nn.Linear(64, classes)]
    return nn.Sequential(_conv_norm(3, 8, 3, 2), *blocks, *head)


class Recurrent(nn.Module):
    """Tokens through an embedding and a recurrent stack; the last output of both directions is classified."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], vocabulary: int = 50, width: int = 16, classes: int = 5):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.stack = kind(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.stack(self.embed(tokens))[0][:, -1])  # type: ignore[no-any-return]
