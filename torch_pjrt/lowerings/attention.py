"""Scaled dot product attention, forward and backward.

Scores, softmax and sums are float32 or wider. A row with nothing to attend to gives 0, as torch's reference does. Key
and value may have fewer heads than query (each serves a run of query heads). The dropout mask is drawn again in the
backward from the saved seed and offset. Results that are sequence lengths or a debug mask are the caller's to add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, iota, like, opmath
from torch_pjrt.lowerings.dropout import kept
from torch_pjrt.lowerings.matmul import product
from torch_pjrt.ops.registry import row

# Arrays are [B, heads of key, G, L or S, E], where G query heads share a key head; key and value have no G.
SCORES = (((4,), (3,)), ((0, 1), (0, 1)))  # [B, K, G, L, E] with [B, K, S, E] gives [B, K, G, L, S]
VALUES = (((4,), (2,)), ((0, 1), (0, 1)))  # [B, K, G, L, S] with [B, K, S, E] gives [B, K, G, L, E]
ACROSS = (((2, 3), (2, 3)), ((0, 1), (0, 1)))  # [B, K, G, L, E] with [B, K, G, L, S] gives [B, K, E, S]


def _grouped(x: Array, groups: int) -> Array:
    b, h, *rest = x.shape
    return lax.reshape(x, (b, h // groups, groups, *rest))


def _flat(x: Array) -> Array:
    b, k, g, *rest = x.shape
    return lax.reshape(x, (b, k * g, *rest))


def _across(scores: Array, x: Array, precision: Any) -> Array:
    """scores.T @ x over all queries of a key head: [B, K, S, E].

    Written as (x.T @ scores).T: compilers transpose the left operand to multiply, and x is the smaller of the two. Not for
    narrow dtypes: XLA on the CPU has no kernel for their product with a transposed wide result.
    """
    if opmath(x.dtype) != x.dtype:
        return product(scores, x, ACROSS, precision)
    return lax.transpose(product(x, scores, ACROSS, precision), (0, 1, 3, 2))


def _scores(
    query: Array, key: Array, bias: Array | None, is_causal: bool, scale: Any, groups: int, precision: Any
) -> Array:
    """query @ key.T * scale + bias, -inf above the diagonal when causal."""
    scores = product(_grouped(query, groups), key, SCORES, precision)
    scores = lax.mul(scores, like(1 / math.sqrt(query.shape[-1]) if scale is None else scale, scores))
    low = lax.full_like(scores, -np.inf)
    if bias is not None:
        flat = (scores.shape[0], query.shape[1], *scores.shape[3:])
        if bias.dtype == bool:
            scores = lax.select(_grouped(broadcast_to(bias, flat), groups), scores, low)
        else:
            scores = lax.add(scores, _grouped(broadcast_to(as_dtype(bias, scores.dtype), flat), groups))
    if is_causal:
        seen = lax.ge(iota(scores.shape, 3, np.int32), iota(scores.shape, 4, np.int32))
        scores = lax.select(seen, scores, low)
    return scores


def _mask(rng: Array, p: float, shape: Sequence[int]) -> Array:
    """The dropout mask over all scores, times 1 / (1 - p), in float32.

    It is drawn from a state hashed from rng: there may be more scores than the generator's offset is moved by.
    """
    _, state = lax.rng_bit_generator(rng, (4,), dtype=np.uint32, algorithm=lax.RandomAlgorithm.RNG_PHILOX)
    factor = np.float32(0 if p >= 1 else 1 / (1 - p))
    return lax.mul(as_dtype(kept(state, p, shape), np.float32), factor)


@row("_scaled_dot_product_fused_attention_overrideable", static=("dropout_p",), random=1)
def attention(
    query: Array,
    key: Array,
    value: Array,
    attn_bias: Array | None,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    scale: Any,
    rng: Array,
    precision: Any,
) -> tuple[Array, ...]:
    """(output [B, H, L, E], logsumexp [B, H, L], seed, offset)."""
    groups = query.shape[1] // key.shape[1]
    scores = _scores(query, key, attn_bias, is_causal, scale, groups, precision)
    top = lax.reduce(scores, np.asarray(-np.inf, scores.dtype), lax.max, (4,))
    empty = lax.eq(top, lax.full_like(top, -np.inf))
    top = lax.select(empty, lax.full_like(top, 0), top)
    weights = lax.exp(lax.sub(scores, _last(top, scores)))
    total = lax.reduce(weights, np.zeros((), scores.dtype), lax.add, (4,))
    logsumexp = lax.add(lax.log(total), top)
    divisor = lax.select(empty, lax.full_like(total, 1), total)
    if dropout_p:
        weights = lax.mul(weights, as_dtype(_mask(rng, dropout_p, weights.shape), weights.dtype))
    output = product(as_dtype(weights, value.dtype), value, VALUES, precision)
    output = lax.div(output, _last(divisor, output))  # after the product: L x E divisions instead of L x S
    words = lax.bitcast_convert_type(lax.reshape(rng, (2, 2)), np.int64)
    seed, offset = (lax.index_in_dim(words, i, 0, False) for i in (0, 1))
    wide = opmath(query.dtype)
    return _flat(as_dtype(output, query.dtype)), _flat(as_dtype(logsumexp, wide)), seed, offset


def _last(x: Array, like_: Array) -> Array:
    """[B, K, G, L] against [B, K, G, L, anything]."""
    return lax.broadcast_in_dim(x, like_.shape, (0, 1, 2, 3))


@row("_scaled_dot_product_fused_attention_overrideable_backward", static=("dropout_p",))
def attention_backward(
    grad_out: Array,
    query: Array,
    key: Array,
    value: Array,
    attn_bias: Array | None,
    grad_input_mask: Sequence[bool],
    out: Array,
    logsumexp: Array,
    cum_seq_q: Array | None,
    cum_seq_k: Array | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Array,
    philox_offset: Array,
    scale: Any,
    precision: Any,
) -> tuple[Array, ...]:
    """The asked of (grad_query, grad_key, grad_value, grad_attn_bias)."""
    groups = query.shape[1] // key.shape[1]
    scores = _scores(query, key, attn_bias, is_causal, scale, groups, precision)
    wide = scores.dtype
    grad, lse = _grouped(grad_out, groups), _grouped(as_dtype(logsumexp, wide), groups)
    lse = lax.select(lax.eq(lse, lax.full_like(lse, -np.inf)), lax.full_like(lse, 0), lse)
    weights = lax.exp(lax.sub(scores, _last(lse, scores)))
    # logsumexp is rounded: where scores are large, the weights of a row do not add up to 1
    total = lax.reduce(weights, np.zeros((), wide), lax.add, (4,))
    empty = lax.eq(total, lax.full_like(total, 0))
    total = lax.select(empty, lax.full_like(total, 1), total)
    narrow = grad.dtype != wide
    if narrow:
        weights = lax.div(weights, _last(total, weights))
    else:  # the same in all that follows, with L x E divisions instead of L x S
        grad = lax.div(grad, _last(total, grad))
    grad_weights = product(grad, value, SCORES, precision)
    dropped = weights
    if dropout_p:
        words = lax.concatenate([lax.reshape(w, (1,)) for w in (philox_seed, philox_offset)], 0)
        rng = lax.reshape(lax.bitcast_convert_type(words, np.uint32), (4,))
        mask = as_dtype(_mask(rng, dropout_p, weights.shape), wide)
        dropped, grad_weights = lax.mul(weights, mask), lax.mul(grad_weights, mask)
    along = lax.mul(weights, grad_weights) if narrow else lax.mul(grad, _grouped(out, groups))
    # Weights of an empty row are 0 anyway. The selects keep XLA's reduction on the CPU from taking in what is before and
    # after it: it would do that at a fifth of the speed.
    along = lax.select(_last(empty, along), lax.full_like(along, 0), along)
    along = lax.reduce(along, np.zeros((), wide), lax.add, (4,))
    along = lax.select(empty, lax.full_like(along, 0), along)
    grad_scores = lax.mul(weights, lax.sub(grad_weights, _last(along, scores)))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scaled = as_dtype(lax.mul(grad_scores, like(factor, grad_scores)), query.dtype)
    results: list[Array] = []
    if grad_input_mask[0]:
        results.append(_flat(as_dtype(product(scaled, key, VALUES, precision), query.dtype)))
    if grad_input_mask[1]:
        results.append(as_dtype(_across(scaled, _grouped(query, groups), precision), key.dtype))
    if grad_input_mask[2]:
        results.append(as_dtype(_across(as_dtype(dropped, value.dtype), grad, precision), value.dtype))
    if grad_input_mask[3] and attn_bias is not None:
        results.append(as_dtype(_unbroadcast(_flat(grad_scores), attn_bias.shape), attn_bias.dtype))
    return tuple(results)


def _unbroadcast(x: Array, shape: Sequence[int]) -> Array:
    """Sum over the dims along which an array of this shape was broadcast."""
    padded = (1,) * (x.ndim - len(shape)) + tuple(shape)
    dims = [d for d, n in enumerate(padded) if n != x.shape[d]]
    return lax.reshape(lax.reduce(x, np.zeros((), x.dtype), lax.add, dims), tuple(shape))
