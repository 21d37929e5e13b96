"""Connectionist temporal classification (CTC): the loss and its gradient, as scans over time.

Lengths are static lists (torch reads tensors of lengths on the host first). The formulas are those of Graves et al.
(2006); the gradient is with respect to log-probabilities that come from log_softmax, as torch defines it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, iota
from torch_pjrt.ops.registry import row


def _labels(targets: Array, lengths: Sequence[int], blank: int) -> Array:
    """(N, 2S+1): blanks around each label; positions past a sample's labels hold the blank."""
    longest, batch = max(lengths, default=0), len(lengths)
    if targets.ndim == 1:
        starts = np.cumsum([0, *lengths[:-1]]) if batch else np.zeros(0)
        where = np.minimum(starts[:, None] + np.arange(longest)[None, :], max(targets.shape[0] - 1, 0))
        labels = (
            targets.at[where.astype(np.int32)].get(mode="clip") if longest else lax.full((batch, 0), 0, targets.dtype)
        )
    else:
        labels = lax.slice_in_dim(targets, 0, longest, axis=1)
    labels = as_dtype(labels, np.int32)
    real = np.arange(longest)[None, :] < np.asarray(lengths, np.int64).reshape(batch, 1)
    labels = lax.select(real, labels, lax.full_like(labels, blank))
    return (
        lax.pad(labels, np.int32(blank), [(0, 0, 0), (1, 1, 1)]) if longest else lax.full((batch, 1), blank, np.int32)
    )


def _emissions(log_probs: Array, labels: Array) -> Array:
    """(T, N, 2S+1): each label's log-probability over time."""
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(0,), collapsed_slice_dims=(2,), start_index_map=(2,), operand_batching_dims=(1,),
        start_indices_batching_dims=(0,),
    )  # fmt: skip
    sizes = (log_probs.shape[0], 1, 1)
    return lax.gather(log_probs, lax.expand_dims(labels, (2,)), numbers, sizes, mode="clip")


def _shifted(x: Array, by: int) -> Array:
    """x moved along its last dim, -inf moved in."""
    return lax.pad(x, np.asarray(-np.inf, x.dtype), [(0, 0, 0), (by, -by, 0)])


def _log_add(*terms: Array) -> Array:
    top = terms[0]
    for term in terms[1:]:
        top = lax.max(top, term)
    low = constant(-np.inf, top)
    safe = lax.select(lax.eq(top, low), constant(0, top), top)
    total = lax.exp(lax.sub(terms[0], safe))
    for term in terms[1:]:
        total = lax.add(total, lax.exp(lax.sub(term, safe)))
    return lax.add(lax.log(total), safe)


def _skips(labels: Array) -> Array:
    """Whether a state may be entered from two before it: a label that differs from the one before."""
    before = lax.pad(labels, np.int32(-1), [(0, 0, 0), (2, -2, 0)])
    odd = lax.eq(lax.rem(iota(labels.shape, 1, np.int32), np.int32(2)), lax.full_like(labels, 1))
    return lax.bitwise_and(odd, lax.ne(labels, before))


def _forward(emissions: Array, labels: Array, target_lengths: Sequence[int]) -> Array:
    """log alpha, (T, N, 2S+1)."""
    low = constant(-np.inf, lax.index_in_dim(emissions, 0, 0, keepdims=False))
    skips = _skips(labels)
    first = np.arange(labels.shape[1])[None, :] < np.where(np.asarray(target_lengths)[:, None] > 0, 2, 1)
    alpha = lax.select(np.broadcast_to(first, low.shape), lax.index_in_dim(emissions, 0, 0, keepdims=False), low)

    def step(alpha: Array, emission: Array) -> tuple[Array, Array]:
        jump = lax.select(skips, _shifted(alpha, 2), low)
        new = lax.add(_log_add(alpha, _shifted(alpha, 1), jump), emission)
        return new, new

    rest = lax.slice_in_dim(emissions, 1, emissions.shape[0], axis=0)
    return lax.concatenate([lax.expand_dims(alpha, (0,)), lax.scan(step, alpha, rest)[1]], 0)


def _last_states(labels: Array, target_lengths: Sequence[int]) -> np.ndarray:
    """The one or two states in which a sample may end."""
    last = 2 * np.asarray(target_lengths).reshape(-1, 1)
    states = np.arange(labels.shape[1])[None, :]
    return (states == last) | ((states == last - 1) & (last > 0))


@row("_ctc_loss")
def ctc_loss(
    log_probs: Array, targets: Array, input_lengths: Sequence[int], target_lengths: Sequence[int], blank: int,
    zero_infinity: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """Minus the log-likelihood of each sample, and log alpha (N, T, 2S+1)."""
    labels = _labels(targets, target_lengths, blank)
    alpha = _forward(_emissions(log_probs, labels), labels, target_lengths)
    steps = np.asarray(input_lengths).reshape(-1)
    ended = (np.arange(alpha.shape[0])[:, None] == steps[None, :] - 1)[:, :, None] & _last_states(
        labels, target_lengths
    )[None]
    ends = lax.select(ended, alpha, constant(-np.inf, alpha))
    top = lax.reduce_max(ends, (0, 2))
    safe = lax.select(lax.is_finite(top), top, constant(0, top))
    total = lax.reduce_sum(lax.exp(lax.sub(ends, lax.broadcast_in_dim(safe, ends.shape, (1,)))), (0, 2))
    loss = lax.neg(lax.add(lax.log(total), safe))
    nothing = (steps == 0) & (np.asarray(target_lengths).reshape(-1) == 0)
    loss = lax.select(nothing, constant(0, loss), loss)
    alpha = lax.select(
        np.broadcast_to((np.arange(alpha.shape[0])[:, None] < steps[None, :])[:, :, None], alpha.shape),
        alpha,
        constant(-np.inf, alpha),
    )
    return loss, lax.transpose(alpha, (1, 0, 2))


def _backward(emissions: Array, labels: Array, input_lengths: Sequence[int], target_lengths: Sequence[int]) -> Array:
    """log beta, (T, N, 2S+1), -inf past each sample's end."""
    low = constant(-np.inf, lax.index_in_dim(emissions, 0, 0, keepdims=False))
    leaves = lax.pad(as_dtype(_skips(labels), np.int32), np.int32(0), [(0, 0, 0), (-2, 2, 0)])
    leaves = lax.eq(leaves, lax.full_like(leaves, 1))
    last = np.broadcast_to(_last_states(labels, target_lengths), low.shape)
    final = np.arange(emissions.shape[0])[:, None] == np.asarray(input_lengths).reshape(1, -1) - 1

    def step(beta: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        emission, at_end = now
        jump = lax.select(leaves, _shifted(beta, -2), low)
        new = lax.add(_log_add(beta, _shifted(beta, -1), jump), emission)
        new = lax.select(broadcast_to(lax.expand_dims(at_end, (1,)), new.shape), lax.select(last, emission, low), new)
        return new, new

    return lax.scan(step, low, (emissions, lax.convert_element_type(final, np.bool_)), reverse=True)[1]


@row("_ctc_loss_backward")
def ctc_loss_backward(
    grad: Array, log_probs: Array, targets: Array, input_lengths: Sequence[int], target_lengths: Sequence[int],
    neg_log_likelihood: Array, log_alpha: Array, blank: int, zero_infinity: bool,
) -> Array:  # fmt: skip
    """(probability - share of the paths that pass) * grad, zero past each sample's end."""
    loss, alpha = neg_log_likelihood, lax.transpose(log_alpha, (1, 0, 2))
    labels = _labels(targets, target_lengths, blank)
    emissions = _emissions(log_probs, labels)
    real = np.arange(labels.shape[1])[None, :] <= 2 * np.asarray(target_lengths).reshape(-1, 1)
    alpha = lax.select(np.broadcast_to(real[None], alpha.shape), alpha, constant(-np.inf, alpha))
    both = lax.add(alpha, _backward(emissions, labels, input_lengths, target_lengths))
    finite = lax.is_finite(loss)
    safe = lax.select(finite, loss, constant(0, loss))
    known = lax.gt(emissions, constant(-np.inf, emissions))
    share = lax.exp(lax.add(lax.sub(both, emissions), lax.broadcast_in_dim(safe, both.shape, (1,))))
    share = lax.select(known, share, constant(0, share))
    shape = (*labels.shape, log_probs.shape[2])
    hit = as_dtype(lax.eq(lax.broadcast_in_dim(labels, shape, (0, 1)), iota(shape, 2, np.int32)), log_probs.dtype)
    passed = lax.dot_general(share, hit, (((2,), (1,)), ((1,), (0,))), precision=lax.Precision.HIGHEST)  # (N, T, C)
    result = lax.sub(lax.exp(log_probs), lax.transpose(passed, (1, 0, 2)))
    spread = lax.broadcast_in_dim(finite, result.shape, (1,))
    result = lax.mul(result, lax.broadcast_in_dim(grad, result.shape, (1,)))
    result = lax.select(spread, result, constant(0 if zero_infinity else np.nan, result))
    live = (np.arange(log_probs.shape[0])[:, None] < np.asarray(input_lengths).reshape(1, -1))[:, :, None]
    return lax.select(np.broadcast_to(live, result.shape), result, constant(0, result))
