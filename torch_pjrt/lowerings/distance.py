"""Pairwise distances between rows: cdist, pdist and their gradients.

The exponent decides the formula, so it is static. Large Euclidean cases use a matrix product, as torch does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, broadcast_to, constant, isnan
from torch_pjrt.lowerings.indexing import take_slices
from torch_pjrt.lowerings.reduction import Out, add_up, norm_over
from torch_pjrt.lowerings.scatter import put_slices
from torch_pjrt.ops.registry import row

MATMUL_ROWS = 25  # torch's limit: more rows than this and the Euclidean distance goes through a matrix product


def _pairs(x1: Array, x2: Array, shape: tuple[int, ...]) -> Array:
    """x1[..., i, :] - x2[..., j, :] as [..., P, R, M]; shape is the distance's [..., P, R]."""
    batch, width = shape[:-2], x1.shape[-1]
    left = broadcast_to(x1, (*batch, *x1.shape[-2:]))
    right = broadcast_to(x2, (*batch, *x2.shape[-2:]))
    lead = tuple(range(len(batch)))
    full, n = (*shape, width), len(batch)
    return lax.sub(
        lax.broadcast_in_dim(left, full, (*lead, n, n + 2)), lax.broadcast_in_dim(right, full, (*lead, n + 1, n + 2))
    )


def _by_product(x1: Array, x2: Array, shape: tuple[int, ...], precision: Any) -> Array:
    """Euclidean distance as sqrt(|a|^2 + |b|^2 - 2ab)."""
    batch = shape[:-2]
    left, right = broadcast_to(x1, (*batch, *x1.shape[-2:])), broadcast_to(x2, (*batch, *x2.shape[-2:]))
    n, lead = len(batch), tuple(range(len(batch)))
    cross = lax.dot_general(left, right, (((n + 1,), (n + 1,)), (lead, lead)), precision=precision)
    near = lax.broadcast_in_dim(add_up(lax.square(left), (n + 1,), left.shape[:-1]), shape, (*lead, n))
    far = lax.broadcast_in_dim(add_up(lax.square(right), (n + 1,), right.shape[:-1]), shape, (*lead, n + 1))
    square = lax.sub(lax.add(near, far), lax.mul(constant(2, cross), cross))
    return lax.sqrt(lax.max(square, constant(0, square)))


def _apart(away: Array, p: float, dims: tuple[int, ...], size: tuple[int, ...]) -> Array:
    """The p-norm of differences. Unlike in a vector's norm, with p=0 a NaN is no difference to count but gives NaN."""
    if p == 0:
        return add_up(lax.sign(lax.abs(away)), dims, size)
    return norm_over(away, p, dims, size)


@row("_cdist_forward", static=("p",))
def cdist_forward(x1: Array, x2: Array, p: float, compute_mode: int | None, out: Out, precision: Any = None) -> Array:
    """p-norm distance of every row of x1 to every row of x2."""
    size, dtype = out[0]
    if 0 in size or x1.shape[-1] == 0:
        return lax.full(size, 0, dtype)
    many = x1.shape[-2] > MATMUL_ROWS or x2.shape[-2] > MATMUL_ROWS
    if p == 2 and (compute_mode == 1 or (not compute_mode and many)):
        return _by_product(x1, x2, size, precision)
    away = _pairs(x1, x2, size)
    if p == math.inf:  # torch's maximum passes over NaN here, and not in pdist
        away = lax.select(isnan(away), constant(0, away), away)
    return _apart(away, float(p), (len(size),), size)


def slope(away: Array, distance: Array, p: float) -> Array:
    """d distance / d away, for away [..., M] and distance broadcast to it; 0 where the distance is 0."""
    zero = constant(0, away)
    if p == 0:
        return zero
    if p == 1:
        return lax.sign(away)
    nothing = lax.eq(distance, zero)
    if p == math.inf:
        gap = lax.abs(lax.sub(lax.abs(away), distance))  # NaN where both are infinite
        return lax.select(lax.gt(gap, zero), zero, lax.add(lax.sign(away), gap))
    safe = lax.select(nothing, constant(1, away), distance)
    if p == 2:
        return lax.select(nothing, zero, lax.div(away, safe))
    size = lax.abs(away)
    power = lax.mul(lax.sign(away), lax.pow(size, constant(p - 1, away)))
    power = lax.div(power, lax.pow(safe, constant(p - 1, away)))
    return lax.select(lax.bitwise_or(nothing, lax.eq(away, zero)), zero, power)


@row("_cdist_backward", static=("p",))
def cdist_backward(grad: Array, x1: Array, x2: Array, p: float, cdist: Array, out: Out) -> Array:
    """Gradient of cdist for x1 (the caller sums over broadcast batch dims)."""
    size, dtype = out[0]
    if 0 in size or grad.size == 0:
        return lax.full(size, 0, dtype)
    away = _pairs(x1, x2, cdist.shape)
    lead = tuple(range(cdist.ndim))
    spread = lax.broadcast_in_dim(cdist, away.shape, lead)
    each = lax.mul(
        slope(away, spread, float(p)), lax.broadcast_in_dim(broadcast_to(grad, cdist.shape), away.shape, lead)
    )
    return lax.reshape(add_up(each, (cdist.ndim - 1,), (*cdist.shape[:-1], x1.shape[-1])), size)


def _triangle(n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All pairs i < j in row order."""
    first, second = np.triu_indices(n, 1)
    return first.astype(np.int64), second.astype(np.int64)


@row("_pdist_forward", static=("p",))
def pdist_forward(self: Array, out: Out, p: float = 2.0) -> Array:
    """p-norm distances between all pairs of rows."""
    size, dtype = out[0]
    if 0 in size or self.shape[1] == 0:
        return lax.full(size, 0, dtype)
    first, second = _triangle(self.shape[0])
    away = lax.sub(take_slices(self, first, 0), take_slices(self, second, 0))
    return _apart(away, float(p), (1,), size)


@row("_pdist_backward", static=("p",))
def pdist_backward(grad: Array, self: Array, p: float, pdist: Array) -> Array:
    """Gradient of pdist."""
    if grad.size == 0 or self.size == 0:
        return lax.full(self.shape, 0, self.dtype)
    first, second = _triangle(self.shape[0])
    away = lax.sub(take_slices(self, first, 0), take_slices(self, second, 0))
    each = slope(away, lax.broadcast_in_dim(pdist, away.shape, (0,)), float(p))
    each = lax.mul(each, lax.broadcast_in_dim(grad, away.shape, (0,)))
    total = put_slices(lax.full(self.shape, 0, self.dtype), first, each, 0, "add")
    return put_slices(total, second, lax.neg(each), 0, "add")
