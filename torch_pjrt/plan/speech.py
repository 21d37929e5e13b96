"""Whisper's shape, of our own: an encoder of log-mel frames and a decoder of text that attends to it.

Built on the meta device to be recorded. The default sizes are those published for the large model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from torch_pjrt.plan.decoders import Linear, Norm

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class WhisperConfig:
    """Sizes. frames: of the log-mel input; the encoder halves them."""

    layers: int = 32
    hidden: int = 1280
    heads: int = 20
    vocabulary: int = 51865
    mels: int = 80
    frames: int = 3000
    text: int = 448


class Block(nn.Module):
    """Self-attention, attention to the audio (in the decoder), MLP."""

    def __init__(self, config: WhisperConfig, cross: bool) -> None:
        super().__init__()
        size, self.heads = config.hidden, config.heads
        self.qkv, self.out = Linear(size, 3 * size), Linear(size, size)
        if cross:
            self.q, self.kv, self.out2 = Linear(size, size), Linear(size, 2 * size), Linear(size, size)
            self.norm3 = Norm(size, "gpt2")
        self.up, self.down = Linear(size, 4 * size), Linear(4 * size, size)
        self.norm1, self.norm2 = Norm(size, "gpt2"), Norm(size, "gpt2")

    def forward(
        self, x: Tensor, audio: Tensor | None = None, caches: tuple[Tensor, ...] = (), causal: bool = False
    ) -> Tensor:
        """caches, when decoding: keys and values of the text so far, and of the audio; each [B, heads, length, E]."""
        q, k, v = (self._heads(t) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        if caches:
            caches[0][:, :, -1:] = k
            caches[1][:, :, -1:] = v
            k, v = caches[0], caches[1]
        x = x + self.out(_flat(F.scaled_dot_product_attention(q, k, v, is_causal=causal and not caches)))
        if audio is not None or caches:
            q = self._heads(self.q(self.norm3(x)))
            if caches:
                k, v = caches[2], caches[3]
            else:
                k, v = (self._heads(t) for t in self.kv(audio).chunk(2, -1))
            x = x + self.out2(_flat(F.scaled_dot_product_attention(q, k, v)))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _flat(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


class Whisper(nn.Module):
    """mels [B, 80, 3000] and tokens [B, T] to a loss or logits; when decoding, one token and caches to logits."""

    def __init__(self, config: WhisperConfig, dtype: torch.dtype, mode: str) -> None:
        super().__init__()
        self.config, self.dtype, self.mode = config, dtype, mode
        size = config.hidden
        self.conv1, self.conv2 = nn.Conv1d(config.mels, size, 3, 1, 1), nn.Conv1d(size, size, 3, 2, 1)
        self.where = nn.Parameter(torch.empty(config.frames // 2, size))
        self.encoder = nn.ModuleList(Block(config, False) for _ in range(config.layers))
        self.decoder = nn.ModuleList(Block(config, True) for _ in range(config.layers))
        self.embed, self.place = nn.Embedding(config.vocabulary, size), nn.Parameter(torch.empty(config.text, size))
        self.norm1, self.norm2 = Norm(size, "gpt2"), Norm(size, "gpt2")

    def forward(self, tokens: Tensor, *rest: Tensor) -> Tensor:
        """rest: the mels, or the caches of all layers, four for each."""
        x = self.embed(tokens).to(self.dtype)
        if self.mode == "decode":
            x = x + self.place[-1:].to(self.dtype)
            for i, block in enumerate(self.decoder):
                x = block(x, None, rest[4 * i : 4 * i + 4])
            return self._logits(x)
        audio = self._encode(rest[0].to(self.dtype))
        x = x + self.place[: tokens.shape[1]].to(self.dtype)
        for block in self.decoder:
            x = block(x, audio, causal=True)
        logits = self._logits(x if self.mode != "prefill" else x[:, -1:])
        if self.mode != "train":
            return logits
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())

    def _encode(self, mels: Tensor) -> Tensor:
        x = F.gelu(F.conv1d(mels, self.conv1.weight.to(mels.dtype), self.conv1.bias.to(mels.dtype), 1, 1))  # type: ignore[union-attr]
        x = F.gelu(F.conv1d(x, self.conv2.weight.to(x.dtype), self.conv2.bias.to(x.dtype), 2, 1))  # type: ignore[union-attr]
        x = x.transpose(1, 2) + self.where.to(x.dtype)
        for block in self.encoder:
            x = block(x)
        return self.norm1(x)

    def _logits(self, x: Tensor) -> Tensor:
        x = self.norm2(x)
        return F.linear(x, self.embed.weight.to(x.dtype))
