"""Losses over classes: negative log likelihood (any rank), multi-class and multi-label margin.

A target outside the classes, other than ignore_index, is reported through Checked. CTC is in loss_ctc.py.
"""

from __future__ import annotations

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, iota, like, opmath
from torch_pjrt.lowerings.loss import MEAN, NONE, reduced
from torch_pjrt.ops.registry import Checked, row


def pick(x: Array, index: Array, dim: int) -> Array:
    """x at one position of dim for every position of the others; index must be in range."""
    others = tuple(d for d in range(x.ndim) if d != dim)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        operand_batching_dims=others,
        start_indices_batching_dims=tuple(range(len(others))),
    )
    where = lax.expand_dims(index, (index.ndim,))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(x, where, numbers, slice_sizes=(1,) * x.ndim, mode=mode)


def _targets(target: Array, classes: int, ignore_index: int) -> tuple[Array, Array, Array]:
    """Safe positions (int32), which of them count, and whether any is outside the classes."""
    wide = as_dtype(target, np.int64)
    counts = lax.ne(wide, np.int64(ignore_index))
    inside = lax.bitwise_and(lax.ge(wide, np.int64(0)), lax.lt(wide, np.int64(classes)))
    bad = lax.reduce_or(lax.bitwise_and(counts, lax.bitwise_not(inside)), tuple(range(target.ndim)))
    counts = lax.bitwise_and(counts, inside)
    return lax.select(counts, as_dtype(wide, np.int32), lax.full_like(wide, 0, np.int32)), counts, bad


def _weights(weight: Array | None, at: Array, counts: Array, dtype: np.dtype) -> Array:
    """Each target's weight, 0 where it is ignored."""
    if weight is None:
        return as_dtype(counts, dtype)
    found = as_dtype(weight, dtype).at[at].get(mode="promise_in_bounds")
    return lax.select(counts, found, constant(0, found))


def _nll(self: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int) -> Checked:
    wide, dim = opmath(self.dtype), min(1, self.ndim - 1)
    at, counts, bad = _targets(target, self.shape[dim], ignore_index)
    zero = np.zeros((), self.dtype)
    if target.size == 0:
        empty = {NONE: lax.full(target.shape, 0, self.dtype), MEAN: np.full((), np.nan, self.dtype)}.get(
            reduction, zero
        )
        return Checked((empty, zero), bad)
    weights = _weights(weight, at, counts, wide)
    picked = as_dtype(pick(self, at, dim), wide)
    loss = lax.select(counts, lax.neg(lax.mul(picked, weights)), constant(0, weights))
    if reduction == NONE and self.ndim > 1:
        return Checked((as_dtype(loss, self.dtype), zero), bad)
    axes = tuple(range(loss.ndim))
    total_weight = lax.reduce_sum(weights, axes)
    total = lax.reduce_sum(loss, axes)
    if reduction == MEAN:
        total = lax.div(total, total_weight)
    return Checked((as_dtype(total, self.dtype), as_dtype(total_weight, self.dtype)), bad)


@row("nll_loss_forward", "nll_loss2d_forward", checked=True)
def nll_loss_forward(self: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int) -> Checked:
    """Minus the weighted log-probability of the target class; and the total weight."""
    return _nll(self, target, weight, reduction, ignore_index)


@row("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    grad_output: Array,
    self: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: Array,
) -> Array:
    """The gradient: minus the target's weight at the target class, zero elsewhere."""
    wide, dim = opmath(self.dtype), min(1, self.ndim - 1)
    at, counts, _ = _targets(target, self.shape[dim], ignore_index)
    grad = as_dtype(grad_output, wide)
    if reduction == MEAN:
        grad = lax.div(grad, as_dtype(total_weight, wide))
    value = lax.neg(lax.mul(broadcast_to(grad, target.shape), _weights(weight, at, counts, wide)))
    value = as_dtype(lax.select(counts, value, constant(0, value)), self.dtype)
    others = tuple(d for d in range(self.ndim) if d != dim)
    hit = lax.eq(iota(self.shape, dim, np.int32), lax.broadcast_in_dim(at, self.shape, others))
    return lax.select(hit, lax.broadcast_in_dim(value, self.shape, others), constant(0, self))


def _rows_of(x: Array) -> Array:
    """(N, C) from (N, C), (C,) or ()."""
    return lax.reshape(x, (1,) * (2 - x.ndim) + tuple(x.shape))


def _margins(x: Array, target: Array, margin: Array, weight: Array | None) -> tuple[Array, Array, Array, Array]:
    """margin - x[target] + x, which of them are other classes, each sample's weight, and the target positions."""
    target = lax.reshape(target, (x.shape[0],))
    at, _, bad = _targets(target, x.shape[1], -(2**62))
    z = lax.add(lax.sub(like(margin, x), broadcast_to(lax.expand_dims(pick(x, at, 1), (1,)), x.shape)), x)
    other = lax.ne(iota(x.shape, 1, np.int32), broadcast_to(lax.expand_dims(at, (1,)), x.shape))
    w = _weights(weight, at, lax.full_like(at, True, np.bool_), x.dtype)
    return z, lax.bitwise_and(other, lax.gt(z, constant(0, z))), broadcast_to(lax.expand_dims(w, (1,)), x.shape), bad


@row("multi_margin_loss", static=("p",), checked=True)
def multi_margin_loss(
    self: Array, target: Array, p: float, margin: Array, weight: Array | None, reduction: int
) -> Checked:
    """The mean over classes of max(0, margin - x[target] + x)**p, the target class left out."""
    x = as_dtype(_rows_of(self), opmath(self.dtype))
    z, active, w, bad = _margins(x, target, margin, weight)
    loss = lax.select(active, lax.mul(w, lax.square(z) if p == 2 else z), constant(0, z))
    loss = lax.reduce_sum(loss, (1,))
    loss = lax.div(loss, constant(x.shape[1], loss))
    loss = lax.reshape(loss, target.shape) if reduction == NONE else reduced(loss, reduction)
    return Checked(as_dtype(loss, self.dtype), bad)


@row("multi_margin_loss_backward", static=("p",))
def multi_margin_loss_backward(
    grad_output: Array, self: Array, target: Array, p: float, margin: Array, weight: Array | None, reduction: int
) -> Array:
    """The slope at each violating class, and minus their sum at the target."""
    x = as_dtype(_rows_of(self), opmath(self.dtype))
    z, active, w, _ = _margins(x, target, margin, weight)
    slope = lax.select(active, lax.mul(w, lax.add(z, z)) if p == 2 else w, constant(0, z))
    at = broadcast_to(lax.reshape(as_dtype(target, np.int32), (x.shape[0], 1)), x.shape)
    total = broadcast_to(lax.reshape(lax.reduce_sum(slope, (1,)), (x.shape[0], 1)), x.shape)
    slope = lax.select(lax.eq(iota(x.shape, 1, np.int32), at), lax.neg(total), slope)
    grad = as_dtype(grad_output, x.dtype)
    grad = broadcast_to(lax.reshape(grad, (grad.size, 1)), x.shape)
    count = x.shape[1] * (x.shape[0] if reduction == MEAN else 1)
    result = lax.div(lax.mul(slope, grad), constant(count, slope))
    return lax.reshape(as_dtype(result, self.dtype), self.shape)


def _labels(x: Array, target: Array) -> tuple[Array, Array, Array, Array]:
    """Target positions, which count (those before the first -1), which classes are targets, and whether any is bad."""
    target = as_dtype(_rows_of(target), np.int64)
    before = lax.cumprod(as_dtype(lax.ge(target, np.int64(0)), np.int32), axis=1)
    valid = lax.eq(before, np.int32(1))
    bad = lax.reduce_or(lax.ge(target, np.int64(x.shape[1])), (0, 1))
    bad = lax.bitwise_or(bad, lax.reduce_or(lax.lt(target, np.int64(-1)), (0, 1)))
    at = as_dtype(lax.select(valid, target, constant(-1, target)), np.int32)
    shape = (*target.shape, x.shape[1])
    hit = lax.eq(lax.broadcast_in_dim(at, shape, (0, 1)), iota(shape, 2, np.int32))
    return hit, valid, lax.reduce_or(hit, (1,)), bad


def _label_margins(x: Array, hit: Array, valid: Array, is_target: Array) -> tuple[Array, Array]:
    """1 - x[t] + x[c] for target t and other class c, (N, T, C), and which are positive pairs."""
    zeros = lax.full(hit.shape, 0, x.dtype)
    at_target = lax.reduce_sum(lax.select(hit, lax.broadcast_in_dim(x, hit.shape, (0, 2)), zeros), (2,))
    z = lax.sub(lax.broadcast_in_dim(x, hit.shape, (0, 2)), lax.broadcast_in_dim(at_target, hit.shape, (0, 1)))
    z = lax.add(z, constant(1, z))
    pair = lax.bitwise_and(
        lax.broadcast_in_dim(valid, hit.shape, (0, 1)),
        lax.broadcast_in_dim(lax.bitwise_not(is_target), hit.shape, (0, 2)),
    )
    return z, lax.bitwise_and(pair, lax.gt(z, zeros))


@row("multilabel_margin_loss_forward", checked=True)
def multilabel_margin_loss_forward(self: Array, target: Array, reduction: int) -> Checked:
    """The mean over classes of max(0, 1 - x[t] + x[c]), t a target and c not; and the mask of targets."""
    x = as_dtype(_rows_of(self), opmath(self.dtype))
    hit, valid, is_target, bad = _labels(x, target)
    z, active = _label_margins(x, hit, valid, is_target)
    loss = lax.reduce_sum(lax.select(active, z, constant(0, z)), (1, 2))
    loss = lax.div(loss, constant(x.shape[1], loss))
    if reduction == NONE:
        loss = lax.reshape(loss, (x.shape[0],) if self.ndim == 2 else ())
    else:
        loss = reduced(loss, reduction)
    mask = lax.reshape(as_dtype(is_target, self.dtype), target.shape)
    return Checked((as_dtype(loss, self.dtype), mask), bad)


@row("multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(
    grad_output: Array, self: Array, target: Array, reduction: int, is_target: Array
) -> Array:
    """+1 at each violating class, -1 at its target, averaged over classes."""
    x = as_dtype(_rows_of(self), opmath(self.dtype))
    hit, valid, targets, _ = _labels(x, target)
    _, active = _label_margins(x, hit, valid, targets)
    ones = as_dtype(active, x.dtype)
    per_target = lax.broadcast_in_dim(lax.reduce_sum(ones, (2,)), hit.shape, (0, 1))
    taken = lax.reduce_sum(lax.select(hit, per_target, constant(0, per_target)), (1,))
    slope = lax.sub(lax.reduce_sum(ones, (1,)), taken)
    grad = lax.reshape(as_dtype(grad_output, x.dtype), (grad_output.size, 1))
    count = x.shape[1] * (x.shape[0] if reduction == MEAN else 1)
    result = lax.div(lax.mul(slope, broadcast_to(grad, x.shape)), constant(count, slope))
    return lax.reshape(as_dtype(result, self.dtype), self.shape)
