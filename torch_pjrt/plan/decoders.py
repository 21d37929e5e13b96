"""Decoder-only language models of our own, from a configuration: GPT-2, the Llama family, and mixtures of experts.

Built on the meta device, to be recorded and not to be trained: shapes and operations are those of the published models.
Weights may be kept in another dtype than the one computed in. Experts take equal shares of the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
Cache = tuple[torch.Tensor, torch.Tensor] | None


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes. style: "llama" (RMSNorm, rotary, gated MLP) or "gpt2" (LayerNorm, learned positions, GELU MLP)."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    style: str = "llama"
    experts: int = 0
    experts_per_token: int = 2
    tied: bool = False
    positions: int = 1024
    head_size: int = 0
    qkv_bias: bool = False

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.head_size or self.hidden // self.heads


class Linear(nn.Linear):
    """A product in the input's dtype, whatever dtype the weight is kept in."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name of torch
        bias = self.bias.to(input.dtype) if self.bias is not None else None
        return F.linear(input, self.weight.to(input.dtype), bias)


class Norm(nn.Module):
    """RMSNorm or LayerNorm, in the input's dtype."""

    def __init__(self, size: int, style: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size)) if style == "gpt2" else None
        self.shape = (size,)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dim."""
        if self.bias is None:
            return F.rms_norm(x, self.shape, self.weight.to(x.dtype), 1e-5)
        return F.layer_norm(x, self.shape, self.weight.to(x.dtype), self.bias.to(x.dtype), 1e-5)


def rotate(x: Tensor, start: int) -> Tensor:
    """Rotary positions from `start` on, of [B, heads, T, E]."""
    half = x.shape[-1] // 2
    at = torch.arange(start, start + x.shape[-2], device=x.device, dtype=torch.float32)
    rate = torch.exp(torch.arange(half, device=x.device, dtype=torch.float32) * (-9.2103 / half))
    angle = at[:, None] * rate[None, :]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    """Grouped-query attention. With a cache of keys and values, each [B, kv heads, length, E], one new token at its end."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config, head = config, config.head
        bias = config.style == "gpt2"
        self.qkv = Linear(config.hidden, (config.heads + 2 * config.kv_heads) * head, bias=bias or config.qkv_bias)
        self.out = Linear(config.heads * head, config.hidden, bias=bias)

    def forward(self, x: Tensor, cache: Cache) -> tuple[Tensor, Tensor, Tensor]:
        """The result, and the new keys and values."""
        c, (batch, length, _) = self.config, x.shape
        q, k, v = self.qkv(x).split([n * c.head for n in (c.heads, c.kv_heads, c.kv_heads)], -1)
        q, k, v = (t.view(batch, length, -1, c.head).transpose(1, 2) for t in (q, k, v))
        start = 0 if cache is None else cache[0].shape[2] - length
        if c.style == "llama":
            q, k = rotate(q, start), rotate(k, start)
        if cache is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=c.heads != c.kv_heads)
        else:
            cache[0][:, :, start:] = k
            cache[1][:, :, start:] = v
            y = F.scaled_dot_product_attention(q, cache[0], cache[1], enable_gqa=c.heads != c.kv_heads)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1)), k, v


class Mlp(nn.Module):
    """The gated MLP of Llama, or GPT-2's."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        gated = config.style == "llama"
        self.up = Linear(config.hidden, config.inner * (2 if gated else 1), bias=not gated)
        self.down = Linear(config.inner, config.hidden, bias=not gated)
        self.gated = gated

    def forward(self, x: Tensor) -> Tensor:
        """[..., hidden] to [..., hidden]."""
        y = self.up(x)
        if not self.gated:
            return self.down(F.gelu(y, approximate="tanh"))
        gate, up = y.chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Mixture(nn.Module):
    """A mixture of gated MLPs, with the tokens dealt evenly to the experts that are in use."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.router = Linear(config.hidden, config.experts, bias=False)
        up = torch.empty(config.experts, config.hidden, 2 * config.inner)
        down = torch.empty(config.experts, config.inner, config.hidden)
        self.experts = nn.ParameterDict({"up": nn.Parameter(up), "down": nn.Parameter(down)})

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, hidden] to [B, T, hidden]."""
        c, shape = self.config, x.shape
        x = x.reshape(-1, c.hidden)
        copies = x.shape[0] * c.experts_per_token
        used = min(c.experts, copies)
        each = -(-copies // used)
        weight, chosen = self.router(x).float().softmax(-1).topk(c.experts_per_token, -1)
        order = chosen.reshape(-1).argsort()
        order = F.pad(order, (0, used * each - copies))
        dealt = x.index_select(0, order // c.experts_per_token).view(used, each, c.hidden)
        gate, up = torch.bmm(dealt, self.experts["up"][:used].to(x.dtype)).chunk(2, -1)
        y = torch.bmm(F.silu(gate) * up, self.experts["down"][:used].to(x.dtype)).reshape(-1, c.hidden)
        y = y * weight.reshape(-1).index_select(0, order)[:, None].to(x.dtype)
        return torch.zeros_like(x).index_add(0, order // c.experts_per_token, y).view(shape)


class Layer(nn.Module):
    """Attention and MLP, each behind a norm."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.norm1, self.norm2 = Norm(config.hidden, config.style), Norm(config.hidden, config.style)
        self.attention = Attention(config)
        self.mlp = Mixture(config) if config.experts else Mlp(config)

    def forward(self, x: Tensor, cache: Cache = None) -> tuple[Tensor, Tensor, Tensor]:
        """The stream, and the new keys and values."""
        y, k, v = self.attention(self.norm1(x), cache)
        x = x + y
        return x + self.mlp(self.norm2(x)), k, v


class Decoder(nn.Module):
    """Tokens to a loss (mode "train"), to the last logits and the cache ("prefill"), or one token further ("decode")."""

    def __init__(self, config: DecoderConfig, dtype: torch.dtype, mode: str) -> None:
        super().__init__()
        self.config, self.dtype, self.mode = config, dtype, mode
        self.embed = nn.Embedding(config.vocabulary, config.hidden)
        if config.style == "gpt2":
            self.position = nn.Embedding(config.positions, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = Norm(config.hidden, config.style)
        if not config.tied:
            self.head = Linear(config.hidden, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor, *caches: Tensor) -> Tensor | Sequence[Tensor]:
        """tokens [B, T]; caches: keys and values of each layer when decoding."""
        x = self.embed(tokens).to(self.dtype)
        if self.config.style == "gpt2":
            first = caches[0].shape[2] - 1 if caches else 0
            x = x + self.position.weight[first : first + tokens.shape[1]].to(self.dtype)
        kept: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, (caches[2 * i], caches[2 * i + 1]) if caches else None)
            if self.mode == "prefill":
                kept += [k, v]
        if self.mode == "prefill":
            return [self._logits(x[:, -1:]), *kept]
        if self.mode == "decode":
            return self._logits(x)
        logits = self._logits(x).flatten(0, 1)
        return F.cross_entropy(logits.float(), tokens.flatten())

    def _logits(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return F.linear(x, self.embed.weight.to(x.dtype)) if self.config.tied else self.head(x)
