"""Pooling whose windows follow from the output's size: adaptive average and max pooling, fractional max pooling.

Window i of o over n places is floor(i * n / o) to ceil((i + 1) * n / o). Windows of one dim are gathered into one array
[..., o, longest window] with a static table, so each dim costs one gather and one reduction whatever its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, is_float, opmath
from torch_pjrt.lowerings.pooling import full, lowest, scatter_planes
from torch_pjrt.ops.registry import add_row

Bounds = tuple[Any, Any]
NOWHERE = np.int32(2**31 - 1)  # the position of places outside a window: loses every tie


def windows(n: int, size: int) -> Bounds:
    """First places and ends of the windows: constants, or computed where there is a symbolic size of jax.export."""
    if not (isinstance(n, int) and isinstance(size, int)):
        places, count, all_but_one = (lax.full((size,), number, np.int64) for number in (n, size, size - 1))
        start = lax.mul(places, lax.iota(np.int64, size))
        return lax.div(start, count), lax.div(lax.add(lax.add(start, places), all_but_one), count)
    i = np.arange(size, dtype=np.int64)
    return i * n // size, -(-(i + 1) * n // size)


def covering(n: int, size: int) -> Bounds:
    """For every place, the first window that holds it and the one after the last."""
    starts, ends = windows(n, size)
    place = np.arange(n)
    return np.searchsorted(ends, place, "right"), np.searchsorted(starts, place, "right")


def _gathered(x: Array, dim: int, bounds: Bounds, fill: Any) -> Array:
    """x with dim replaced by [windows, longest window]; places outside a window hold fill."""
    starts, ends = bounds
    if not isinstance(starts, np.ndarray):
        return _masked(x, dim, bounds, fill)
    longest = max(int((ends - starts).max(initial=0)), 1)
    table = starts[:, None] + np.arange(longest)
    inside = table < ends[:, None]
    table = np.minimum(table, max(x.shape[dim] - 1, 0)).astype(np.int32)
    parts = x.at[(slice(None),) * dim + (table,)].get(mode="promise_in_bounds")
    if inside.all():
        return parts
    mask = lax.broadcast_in_dim(inside, parts.shape, (dim, dim + 1))
    return lax.select(mask, parts, lax.full(parts.shape, np.asarray(fill, x.dtype)))


def _masked(x: Array, dim: int, bounds: Bounds, fill: Any) -> Array:
    """As _gathered where lengths of windows are not known: the whole dim for each, with fill for what is outside."""
    shape = (*x.shape[:dim], bounds[0].shape[0], *x.shape[dim:])
    at = lax.broadcasted_iota(np.int64, shape, dim + 1)
    low, high = (lax.broadcast_in_dim(bound, shape, (dim,)) for bound in bounds)
    inside = lax.bitwise_and(lax.ge(at, low), lax.lt(at, high))
    wide = lax.broadcast_in_dim(x, shape, tuple(d for d in range(len(shape)) if d != dim))
    return lax.select(inside, wide, lax.full(shape, np.asarray(fill, x.dtype)))


def _summed(x: Array, dim: int, bounds: Bounds) -> Array:
    starts, ends = bounds
    length = ends - starts
    if (
        isinstance(starts, np.ndarray)
        and starts.size
        and (length == length[0]).all()
        and (starts == np.arange(len(starts)) * length[0]).all()
    ):
        parts = lax.reshape(x, (*x.shape[:dim], len(starts), int(length[0]), *x.shape[dim + 1 :]))
    else:
        parts = _gathered(x, dim, bounds, 0)
    return lax.reduce(parts, np.zeros((), x.dtype), lax.add, (dim + 1,))


def _over_counts(x: Array, spatial: Sequence[int], sizes: Sequence[int]) -> Array:
    """Divide every window's value by how many places it has."""
    lead = x.ndim - len(sizes)
    for d, (n, size) in enumerate(zip(spatial, sizes, strict=True)):
        starts, ends = windows(n, size)
        count = lax.broadcast_in_dim((ends - starts).astype(np.int32), x.shape, (lead + d,))
        x = lax.div(x, as_dtype(count, x.dtype))
    return x


def _average(rank: int) -> Any:
    def adaptive_avg_pool(self: Array, output_size: Sequence[int]) -> Array:
        """The mean of every window."""
        sizes, lead = full(output_size, rank), self.ndim - rank
        x = as_dtype(self, opmath(self.dtype))
        for d in range(rank):
            x = _summed(x, lead + d, windows(x.shape[lead + d], sizes[d]))
        return as_dtype(_over_counts(x, self.shape[lead:], sizes), self.dtype)

    return adaptive_avg_pool


def _average_backward(rank: int) -> Any:
    def adaptive_avg_pool_backward(grad_output: Array, self: Array) -> Array:
        """Every place gets the sum of its windows' shares."""
        lead = self.ndim - rank
        sizes = grad_output.shape[lead:]
        grad = _over_counts(as_dtype(grad_output, opmath(self.dtype)), self.shape[lead:], sizes)
        for d in range(rank):
            n, size, dim = self.shape[lead + d], sizes[d], lead + d
            if size and n % size == 0:
                shape = (*grad.shape[: dim + 1], n // size, *grad.shape[dim + 1 :])
                kept = tuple(i for i in range(len(shape)) if i != dim + 1)
                grad = lax.reshape(
                    lax.broadcast_in_dim(grad, shape, kept), (*grad.shape[:dim], n, *grad.shape[dim + 1 :])
                )
            else:
                grad = _summed(grad, dim, covering(n, size))
        return as_dtype(grad, self.dtype)

    return adaptive_avg_pool_backward


def _better(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """The larger value with its position: the first of equals, the last NaN."""
    (x, i), (y, j) = a, b
    take = lax.bitwise_or(lax.gt(y, x), lax.bitwise_and(lax.eq(x, y), lax.lt(j, i)))
    if is_float(x):
        nan_x, nan_y = lax.ne(x, x), lax.ne(y, y)
        later = lax.bitwise_and(nan_y, lax.bitwise_or(lax.bitwise_not(nan_x), lax.gt(j, i)))
        take = lax.bitwise_or(later, lax.bitwise_and(take, lax.bitwise_not(nan_x)))
    return lax.select(take, y, x), lax.select(take, j, i)


def _positions(shape: Sequence[int], rank: int) -> Array:
    """Flat positions within planes of the last dims."""
    plane = lax.iota(np.int32, math.prod(shape[-rank:]))
    return lax.broadcast_in_dim(
        lax.reshape(plane, tuple(shape[-rank:])), tuple(shape), tuple(range(len(shape) - rank, len(shape)))
    )


def _maximum(rank: int) -> Any:
    def adaptive_max_pool(self: Array, output_size: Sequence[int]) -> tuple[Array, Array]:
        """(maximum of every window, its flat position)."""
        sizes, lead = full(output_size, rank), self.ndim - rank
        x, where = self, _positions(self.shape, rank)
        initial = (lowest(self.dtype), NOWHERE)
        for dim in reversed(range(lead, self.ndim)):
            bounds = windows(x.shape[dim], sizes[dim - lead])
            parts = (_gathered(x, dim, bounds, initial[0]), _gathered(where, dim, bounds, NOWHERE))
            x, where = lax.reduce(parts, initial, _better, (dim + 1,))
        return x, as_dtype(where, np.int64)

    return adaptive_max_pool


def _maximum_backward(rank: int) -> Any:
    def adaptive_max_pool_backward(grad_output: Array, self: Array, indices: Array) -> Array:
        """Every window's gradient goes to its winner."""
        grad = as_dtype(grad_output, opmath(self.dtype))
        return as_dtype(scatter_planes(grad, indices, self.shape, rank, add=True), self.dtype)

    return adaptive_max_pool_backward


def _fractional(rank: int) -> Any:
    def fractional_max_pool(
        self: Array, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Array
    ) -> tuple[Array, Array]:
        """Maxima of windows that start where the samples say, and their flat positions."""
        lead = self.ndim - rank
        x = self if lead == 2 else lax.expand_dims(self, (0,))
        planes = lax.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
        samples = lax.slice(random_samples, (0, 0, 0), (*x.shape[:2], rank))  # there may be more than one sample's
        samples = lax.reshape(as_dtype(samples, self.dtype), (planes.shape[0], rank))
        where = _positions(planes.shape, rank)
        initial = (lowest(self.dtype), NOWHERE)
        for d in reversed(range(rank)):
            # torch keeps the samples of a plane last dim first in 2-d, first dim first in 3-d
            sample = lax.index_in_dim(samples, rank - 1 - d if rank == 2 else d, 1)
            starts = _interval(sample, planes.shape[1 + d], output_size[d], kernel_size[d])
            parts = tuple(_windowed(a, 1 + d, starts, kernel_size[d]) for a in (planes, where))
            planes, where = lax.reduce(parts, initial, _better, (2 + d,))
        shape = (*self.shape[:lead], *output_size)
        return lax.reshape(planes, shape), as_dtype(lax.reshape(where, shape), np.int64)

    return fractional_max_pool


def _interval(sample: Array, n: int, size: int, kernel: int) -> Array:
    """Starts [planes, size] of the windows along one dim."""
    if size == 1:
        return lax.full((sample.shape[0], 1), np.int32(n - kernel))
    alpha = np.asarray((n - kernel) / (size - 1), sample.dtype)
    i = lax.broadcasted_iota(sample.dtype, (sample.shape[0], size), 1)
    u = lax.broadcast_in_dim(sample, i.shape, (0, 1))
    first = as_dtype(lax.mul(u, lax.full_like(u, alpha)), np.int32)
    starts = lax.sub(as_dtype(lax.mul(lax.add(i, u), lax.full_like(u, alpha)), np.int32), first)
    last = lax.eq(lax.broadcasted_iota(np.int32, starts.shape, 1), lax.full_like(starts, size - 1))
    return lax.select(last, lax.full_like(starts, n - kernel), starts)


def _windowed(x: Array, dim: int, starts: Array, kernel: int) -> Array:
    """x [planes, ...] with dim replaced by [windows, kernel], windows starting at starts [planes, windows]."""
    shape = (*starts.shape, kernel)
    table = lax.add(lax.broadcast_in_dim(starts, shape, (0, 1)), lax.broadcasted_iota(np.int32, shape, 2))
    plane = lax.broadcasted_iota(np.int32, shape, 0)
    index = (plane, *(slice(None),) * (dim - 1), table)
    parts = x.at[index].get(mode="promise_in_bounds")  # split advanced indices come first
    if dim == 1:
        return parts
    order = (0, *range(3, 3 + dim - 1), 1, 2, *range(3 + dim - 1, parts.ndim))
    return lax.transpose(parts, order)


def _fractional_backward(rank: int) -> Any:
    def fractional_max_pool_backward(
        grad_output: Array, self: Array, kernel_size: Sequence[int], output_size: Sequence[int], indices: Array
    ) -> Array:
        """Every window's gradient goes to its winner."""
        grad = as_dtype(grad_output, opmath(self.dtype))
        return as_dtype(scatter_planes(grad, indices, self.shape, rank, add=True), self.dtype)

    return fractional_max_pool_backward


for _rank in (2, 3):
    add_row(f"_adaptive_avg_pool{_rank}d", _average(_rank))
    add_row(f"_adaptive_avg_pool{_rank}d_backward", _average_backward(_rank))
    add_row(f"adaptive_max_pool{_rank}d", _maximum(_rank))
    add_row(f"adaptive_max_pool{_rank}d_backward", _maximum_backward(_rank))
    add_row(f"fractional_max_pool{_rank}d", _fractional(_rank))
    add_row(f"fractional_max_pool{_rank}d_backward", _fractional_backward(_rank))
