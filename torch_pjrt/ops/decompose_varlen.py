"""Decompositions of attention over sequences of different lengths, packed without padding: [total, H, E] and offsets.

torch.nn.attention.varlen and jagged nested tensors end in these two operators of CUDA's. Here sequences are padded to the
longest, attended by the device's own attention with a mask, and packed again; one program in fused mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torch_pjrt.errors import UnsupportedOpError
from torch_pjrt.ops.decompose import decomposition
from torch_pjrt.ops.decompose_variants import jagged_to_padded, padded_to_jagged

aten = torch.ops.aten
Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Packing:
    """How one side's sequences are packed. Without offsets they are not: [B, L, H, E]."""

    offsets: Tensor | None
    longest: int
    total: int

    def padded(self, x: Tensor) -> Tensor:
        """[B, H, longest, E]."""
        if self.offsets is None:
            return x.transpose(1, 2)
        return jagged_to_padded(x, [self.offsets], [self.longest]).transpose(1, 2)

    def packed(self, x: Tensor) -> Tensor:
        """The reverse of padded."""
        x = x.transpose(1, 2)
        return x if self.offsets is None else padded_to_jagged(x, [self.offsets], self.total)

    def lengths(self) -> Tensor | int:
        """How long each sequence is."""
        return self.longest if self.offsets is None else self.offsets[1:] - self.offsets[:-1]


def _packing(x: Tensor, offsets: Tensor | None, longest: int) -> Packing:
    return Packing(offsets, x.shape[1] if offsets is None else longest, x.shape[0])


def _column(lengths: Tensor | int) -> Tensor | int:
    return lengths.reshape(-1, 1, 1, 1) if isinstance(lengths, Tensor) else lengths


def _visible(
    query: Packing, key: Packing, device: torch.device, left: int | None, right: int | None, from_end: bool,
    used: Tensor | None = None,
) -> Tensor | None:  # fmt: skip
    """[B, 1, L, S], or what broadcasts to it: keys inside their sequence and, relative to the query, inside the window.

    Sequences of different lengths are aligned at their ends or their starts.
    """
    have = key.lengths() if used is None else used
    row = torch.arange(query.longest, device=device).reshape(-1, 1)
    column = torch.arange(key.longest, device=device)
    seen = None if isinstance(have, int) else column < _column(have)
    bounds = [b for b in (left, right) if b is not None and b >= 0]
    if bounds:
        ahead = column - row - (_column(have) - _column(query.lengths()) if from_end else 0)
        if left is not None and left >= 0:
            seen = ahead >= -left if seen is None else seen & (ahead >= -left)
        if right is not None and right >= 0:
            seen = ahead <= right if seen is None else seen & (ahead <= right)
    return None if seen is None else seen.reshape((1,) * (4 - seen.dim()) + tuple(seen.shape))


def _forward(
    packings: tuple[Packing, Packing], operands: tuple[Tensor, ...], mask: Tensor | None, dropout_p: float,
    scale: float | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(output as the query is packed, logsumexp [B, H, longest], seed, offset)."""
    query, key = packings
    q, k, v = (p.padded(x) for p, x in zip((query, key, key), operands, strict=True))
    results = aten._scaled_dot_product_fused_attention_overrideable.default(
        q, k, v, mask, dropout_p, False, False, scale=scale
    )
    return query.packed(results[0]), results[1], results[6], results[7]


def _backward(
    packings: tuple[Packing, Packing],
    operands: tuple[Tensor, ...],
    mask: Tensor | None,
    logsumexp: Tensor,
    seed: tuple[Tensor, Tensor],
    dropout_p: float,
    scale: float | None,
) -> tuple[Tensor, ...]:
    """Gradients of query, key and value, packed; operands are those of the forward, the output and its gradient."""
    query, key = packings
    q, k, v, out, grad = (p.padded(x) for p, x in zip((query, key, key, query, query), operands, strict=True))
    lengths = (query.longest, key.longest)
    grads = aten._scaled_dot_product_fused_attention_overrideable_backward.default(
        grad, q, k, v, mask, [True, True, True, False], out, logsumexp, *seed, *lengths, dropout_p, False, *seed, scale=scale
    )[:3]  # fmt: skip
    return tuple(p.packed(g) for p, g in zip((query, key, key), grads, strict=True))


@decomposition("aten::_flash_attention_forward.default")
def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, ...]:
    """(output, logsumexp [H, total] or [B, H, L], seed and offset, two unused)."""
    if alibi_slopes is not None or block_table is not None:
        raise UnsupportedOpError(
            "attention over packed sequences takes neither ALiBi slopes nor a table of cache blocks on this device",
            todo="Use torch.nn.attention.flex_attention, which takes both as a function of the scores and a block mask.",
        )
    packings = _packing(query, cum_seq_q, max_q), _packing(key, cum_seq_k, max_k)
    right = 0 if is_causal else window_size_right
    mask = _visible(*packings, query.device, window_size_left, right, True, seqused_k)
    out, logsumexp, seed, offset = _forward(packings, (query, key, value), mask, dropout_p, scale)
    if cum_seq_q is not None:
        logsumexp = packings[0].packed(logsumexp.unsqueeze(-1)).squeeze(-1).t()
    none = query.new_empty(0)
    return out, logsumexp, torch.stack([seed, offset]), none, none


@decomposition("aten::_flash_attention_backward.default")
def flash_attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Tensor, ...]:
    """Gradients of query, key and value."""
    packings = _packing(query, cum_seq_q, max_q), _packing(key, cum_seq_k, max_k)
    mask = _visible(*packings, query.device, window_size_left, 0 if is_causal else window_size_right, True)
    if cum_seq_q is not None:
        logsumexp = packings[0].padded(logsumexp.t().unsqueeze(-1)).squeeze(-1)
    state = rng_state.to(torch.int64)
    seed = (state[0], state[1]) if state.numel() == 2 else (state.new_zeros(()), state.new_zeros(()))
    return _backward(packings, (query, key, value, out, grad_out), mask, logsumexp, seed, dropout_p, scale)


def _unbatched(x: Tensor, offsets: Tensor | None) -> Tensor:
    """[1, total, H, E] as [total, H, E] where sequences are packed."""
    return x if offsets is None else x.squeeze(0)


def _right(mask_type: int) -> tuple[int | None, bool]:
    """CUDA's kinds of masks, 0 none, 1 causal from the top left, 2 from the bottom right: (window to the right, from_end)."""
    return None if mask_type == 0 else 0, mask_type == 2


@decomposition("aten::_efficient_attention_forward.default")
def efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: Tensor | None = None,
    window_size: int | None = None,
) -> tuple[Any, ...]:
    """(output, logsumexp [B, H, L], seed, offset, the two longest lengths), operands [B, L, H, E] or [1, total, H, E]."""
    q, k, v = (_unbatched(x, cu_seqlens_q) for x in (query, key, value))
    packings = _packing(q, cu_seqlens_q, max_seqlen_q or 0), _packing(k, cu_seqlens_k, max_seqlen_k or 0)
    right, from_end = _right(custom_mask_type)
    mask = _with_bias(_visible(*packings, q.device, window_size, right, from_end, seqlen_k), bias)
    out, logsumexp, seed, offset = _forward(packings, (q, k, v), mask, dropout_p, scale)
    out = out if cu_seqlens_q is None else out.unsqueeze(0)
    return out, logsumexp, seed, offset, packings[0].longest, packings[1].longest


def _with_bias(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    if mask is None or bias is None:
        return mask if bias is None else bias
    return torch.where(mask, bias, float("-inf"))


@decomposition("aten::_efficient_attention_backward.default")
def efficient_attention_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    logsumexp: Tensor,
    dropout_p: float,
    philox_seed: Tensor,
    philox_offset: Tensor,
    custom_mask_type: int,
    bias_requires_grad: bool,
    *,
    scale: float | None = None,
    num_splits_key: int | None = None,
    window_size: int | None = None,
    shared_storage_dqdkdv: bool = False,
) -> tuple[Tensor, ...]:
    """Gradients of query, key and value, and an empty one in the place of the bias's."""
    if bias_requires_grad:
        raise UnsupportedOpError(
            "the gradient of a bias of packed attention is not computed on this device",
            todo="Use torch.nn.functional.scaled_dot_product_attention, whose mask may ask for a gradient.",
        )
    operands = tuple(_unbatched(x, cu_seqlens_q) for x in (query, key, value, out, grad_out_))
    packings = (
        _packing(operands[0], cu_seqlens_q, max_seqlen_q),
        _packing(operands[1], cu_seqlens_k, max_seqlen_k),
    )
    right, from_end = _right(custom_mask_type)
    mask = _with_bias(_visible(*packings, query.device, window_size, right, from_end), bias)
    seed = (philox_seed, philox_offset)
    grads = _backward(packings, operands, mask, logsumexp, seed, dropout_p, scale)
    shaped = grads if cu_seqlens_q is None else tuple(g.unsqueeze(0) for g in grads)
    return *shaped, query.new_empty(0)
