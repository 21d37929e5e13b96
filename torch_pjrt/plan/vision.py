"""Image models of our own: ResNet-50 (v1.5) and a denoising UNet of the size that Stable Diffusion 1 uses.

Built on the meta device to be recorded. Sizes follow the papers; no weights and no code of other projects.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from torch_pjrt.plan.decoders import Linear

Tensor = torch.Tensor


class Conv(nn.Conv2d):
    """A convolution in the input's dtype, whatever dtype the weight is kept in."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name of torch
        bias = self.bias.to(input.dtype) if self.bias is not None else None
        return self._conv_forward(input, self.weight.to(input.dtype), bias)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1, and the shortcut."""

    def __init__(self, inner: int, width: int, outer: int, stride: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [
                Conv(inner, width, 1, bias=False),
                Conv(width, width, 3, stride, 1, bias=False),
                Conv(width, outer, 1, bias=False),
            ]
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (width, width, outer))
        self.short = Conv(inner, outer, 1, stride, bias=False) if stride > 1 or inner != outer else None
        self.short_norm = nn.BatchNorm2d(outer) if self.short is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, inner, H, W] to [B, outer, H / stride, W / stride]."""
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            y = F.relu(y) if i < 2 else y
        if self.short is not None and self.short_norm is not None:
            x = self.short_norm(self.short(x))
        return F.relu(x + y)


class ResNet50(nn.Module):
    """Images [B, 3, 224, 224] to logits, or to a loss with labels (here, class 0)."""

    def __init__(self, dtype: torch.dtype, train: bool, classes: int = 1000) -> None:
        super().__init__()
        self.dtype, self.train_mode = dtype, train
        self.stem, self.norm = Conv(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, inner = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            for i in range(count):
                blocks.append(Bottleneck(inner, width, width * 4, 2 if i == 0 and stage else 1))
                inner = width * 4
        self.blocks, self.head = nn.Sequential(*blocks), Linear(inner, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, or the loss."""
        x = F.max_pool2d(F.relu(self.norm(self.stem(images.to(self.dtype)))), 3, 2, 1)
        logits = self.head(self.blocks(x).mean((2, 3)))
        if not self.train_mode:
            return logits
        return -F.log_softmax(logits.float(), -1)[:, 0].mean()


class Residual(nn.Module):
    """Two 3x3 convolutions with group norms and the time's embedding between them."""

    def __init__(self, inner: int, outer: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inner), nn.GroupNorm(32, outer)
        self.conv1, self.conv2 = Conv(inner, outer, 3, 1, 1), Conv(outer, outer, 3, 1, 1)
        self.time = Linear(time, outer)
        self.short = Conv(inner, outer, 1) if inner != outer else None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """[B, inner, H, W] to [B, outer, H, W]."""
        y = self.conv1(F.silu(_norm(self.norm1, x)))
        y = y + self.time(F.silu(time))[:, :, None, None]
        y = self.conv2(F.silu(_norm(self.norm2, y)))
        return y + (x if self.short is None else self.short(x))


def _norm(norm: nn.GroupNorm, x: Tensor) -> Tensor:
    return F.group_norm(x, norm.num_groups, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps)


class Cross(nn.Module):
    """Self-attention over the places of an image, attention to the text, and a gated MLP."""

    def __init__(self, size: int, text: int, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.enter, self.leave = nn.GroupNorm(32, size), Linear(size, size), Linear(size, size)
        self.qkv, self.out1 = Linear(size, 3 * size, bias=False), Linear(size, size)
        self.q, self.kv, self.out2 = (
            Linear(size, size, bias=False),
            Linear(text, 2 * size, bias=False),
            Linear(size, size),
        )
        self.up, self.down = Linear(size, 8 * size), Linear(4 * size, size)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """[B, size, H, W] to the same."""
        batch, size, *plane = x.shape
        y = self.enter(_norm(self.norm, x).flatten(2).transpose(1, 2))
        y = y + self.out1(self._attend(*self.qkv(self._layer(0, y)).chunk(3, -1)))
        y = y + self.out2(self._attend(self.q(self._layer(1, y)), *self.kv(text).chunk(2, -1)))
        gate, up = self.up(self._layer(2, y)).chunk(2, -1)
        y = self.leave(y + self.down(F.gelu(gate) * up))
        return x + y.transpose(1, 2).reshape(batch, size, *plane)

    def _layer(self, i: int, x: Tensor) -> Tensor:
        norm = self.norms[i]
        return F.layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps)  # type: ignore[arg-type, operator, union-attr]

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class UNet(nn.Module):
    """One denoising step: latents [B, 4, H, W], text [B, 77, 768], and a time embedding [B, 320], to noise (or a loss)."""

    def __init__(self, dtype: torch.dtype, train: bool, width: int = 320, text: int = 768) -> None:
        super().__init__()
        self.dtype, self.train_mode = dtype, train
        sizes, time = [width, width * 2, width * 4, width * 4], width * 4
        self.time = nn.Sequential(Linear(width, time), nn.SiLU(), Linear(time, time))
        self.enter, inner, skips = Conv(4, width, 3, 1, 1), width, [width]
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, outer in enumerate(sizes):
            for _ in range(2):
                attend = Cross(outer, text) if level < 3 else None
                self.down.append(nn.ModuleList([Residual(inner, outer, time), *([attend] if attend else [])]))
                inner = outer
                skips.append(inner)
            if level < 3:
                self.down.append(nn.ModuleList([Conv(inner, inner, 3, 2, 1)]))
                skips.append(inner)
        self.middle = nn.ModuleList([Residual(inner, inner, time), Cross(inner, text), Residual(inner, inner, time)])
        for level, outer in reversed(list(enumerate(sizes))):
            for i in range(3):
                parts: list[nn.Module] = [Residual(inner + skips.pop(), outer, time)]
                parts += [Cross(outer, text)] if level < 3 else []
                parts += [Conv(outer, outer, 3, 1, 1)] if level and i == 2 else []
                self.up.append(nn.ModuleList(parts))
                inner = outer
        self.norm, self.leave = nn.GroupNorm(32, width), Conv(width, 4, 3, 1, 1)

    def forward(self, latents: Tensor, text: Tensor, when: Tensor) -> Tensor:
        """The noise, or its mean square."""
        x, text = latents.to(self.dtype), text.to(self.dtype)
        time = self.time(when.to(self.dtype))
        x = self.enter(x)
        kept = [x]
        for parts in self.down:
            x = _through(parts, x, text, time)  # type: ignore[arg-type]
            kept.append(x)
        x = _through(self.middle, x, text, time)
        for parts in self.up:
            x = _through(parts, torch.cat([x, kept.pop()], 1), text, time, grow=True)  # type: ignore[arg-type]
        x = self.leave(F.silu(_norm(self.norm, x)))
        return x.float().square().mean() if self.train_mode else x


def _through(parts: nn.ModuleList, x: Tensor, text: Tensor, time: Tensor, grow: bool = False) -> Tensor:
    for part in parts:
        if isinstance(part, Residual):
            x = part(x, time)
        elif isinstance(part, Cross):
            x = part(x, text)
        else:
            x = part(F.interpolate(x, scale_factor=2.0, mode="nearest") if grow else x)
    return x
