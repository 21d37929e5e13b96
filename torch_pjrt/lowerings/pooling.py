"""Max and average pooling over fixed windows, their backwards, and unpooling.

Max pooling goes dim by dim, last dim first, carrying the flat position of the winner: the first of equals, the last
NaN, as torch's CPU kernels choose. Its backward compares positions instead of scattering while windows are small.
Arrays are in logical [N,] C, spatial order. Called by program/evaluate.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, is_float, opmath
from torch_pjrt.ops.registry import Checked, add_row

LARGEST_COMPARED_WINDOW = 27  # window positions up to which the backward of max pooling compares instead of scattering


def full(values: Sequence[int], rank: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    """One value per spatial dim."""
    values = tuple(values) or tuple(default)
    return values * rank if len(values) == 1 else values


def lowest(dtype: np.dtype) -> np.ndarray[Any, Any]:
    """The value below every other of a dtype."""
    return np.asarray(np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf, dtype)


def wins(new: Array, old: Array) -> Array:
    """new > old, or new is NaN."""
    greater = lax.gt(new, old)
    return lax.bitwise_or(greater, lax.ne(new, new)) if is_float(new) else greater


def _window_slice(x: Array, dim: int, offset: int, count: int, stride: int) -> Array:
    return lax.slice_in_dim(x, offset, offset + (count - 1) * stride + 1, stride, dim)


def _places(size: int, *factors: int) -> Any:
    """0, 1, 2, ...: constants, unless the size or what they are multiplied with is a symbolic size of jax.export."""
    return np.arange(size) if all(isinstance(n, int) for n in (size, *factors)) else lax.iota(np.int32, size)


def _along(values: Any, dim: int, shape: Sequence[int]) -> Array:
    """A vector laid along one dim."""
    return lax.broadcast_in_dim(values.astype(np.int32), tuple(shape), (dim,))


def max_windows(
    x: Array, sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], dil: Sequence[int]
) -> tuple[Array, Array]:
    """Maxima of windows over the last dims, and their flat int32 positions in the input plane."""
    rank = len(sizes)
    lead = x.ndim - rank
    spatial = x.shape[lead:]
    position: Array = lax.full(x.shape, np.int32(0))
    firsts: list[tuple[Any, int]] = []
    for d in reversed(range(rank)):
        dim, step, n, size = lead + d, math.prod(spatial[d + 1 :]), spatial[d], sizes[d]
        high = pad[d] + stride[d] - 1  # no window reaches further
        if isinstance(n, int):
            high = max((size - 1) * stride[d] + dil[d] * (kernel[d] - 1) + 1 - n - pad[d], 0)
        config = [(pad[d], high, 0) if i == dim else (0, 0, 0) for i in range(x.ndim)]
        shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
        x, position = lax.pad(x, lowest(x.dtype), config), lax.pad(position, np.int32(0), config)
        starts = _places(size, step) * stride[d] - pad[d]
        inside = starts - (starts < 0) * (starts // dil[d] * dil[d])
        firsts.append((inside * step, dim))
        best, where = lax.full(shape, lowest(x.dtype)), lax.full(shape, np.int32(0))
        for values, along in firsts:
            where = lax.add(where, _along(values, along, shape))
        for k in range(kernel[d]):
            value = _window_slice(x, dim, k * dil[d], size, stride[d])
            place = _along((starts + k * dil[d]) * step, dim, shape)
            place = lax.add(place, _window_slice(position, dim, k * dil[d], size, stride[d]))
            take = wins(value, best)
            best, where = lax.select(take, value, best), lax.select(take, place, where)
        x, position = best, where
    return x, position


def _max_pool(rank: int) -> Any:
    def max_pool(
        self: Array,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        out: Any,
    ) -> tuple[Array, Array]:
        """(maxima, flat positions)."""
        kernel = full(kernel_size, rank)
        values, where = max_windows(
            self,
            out[0][0][-rank:],
            kernel,
            full(stride, rank, kernel),
            full(padding, rank),
            full(dilation, rank),
        )
        return values, as_dtype(where, np.int64)

    return max_pool


def scatter_planes(values: Array, indices: Array, shape: Sequence[int], rank: int, add: bool) -> Array:
    """Values put (or added) at flat positions of zero planes of the given shape."""
    size, planes = math.prod(shape[-rank:]), math.prod(shape[:-rank])
    flat = lax.reshape(as_dtype(indices, np.int64), (planes, math.prod(indices.shape[-rank:])))
    flat = lax.add(flat, lax.mul(lax.broadcasted_iota(np.int64, flat.shape, 0), lax.full_like(flat, size)))
    target = lax.full((planes * size,), np.zeros((), values.dtype)).at[lax.reshape(flat, (flat.size,))]
    source = lax.reshape(values, (values.size,))
    return lax.reshape(target.add(source) if add else target.set(source), tuple(shape))


def _max_pool_backward(rank: int) -> Any:
    def max_pool_backward(
        grad_output: Array,
        self: Array,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        indices: Array,
    ) -> Array:
        """Every window's gradient goes to its winner."""
        kernel = full(kernel_size, rank)
        step, pad, dil = full(stride, rank, kernel), full(padding, rank), full(dilation, rank)
        wide = opmath(self.dtype)
        grad = as_dtype(grad_output, wide)
        if math.prod(kernel) > LARGEST_COMPARED_WINDOW or 0 in self.shape:
            return as_dtype(scatter_planes(grad, indices, self.shape, rank, add=True), self.dtype)
        lead, where = self.ndim - rank, as_dtype(indices, np.int32)
        spatial = self.shape[lead:]
        result, zero = None, lax.full_like(grad, 0)
        for offsets in itertools.product(*(range(k) for k in kernel)):
            place, config = lax.full(grad.shape, np.int32(0)), [(0, 0, 0)] * lead
            for d, k in enumerate(offsets):
                count, low = grad.shape[lead + d], k * dil[d] - pad[d]
                row = (np.arange(count) * step[d] + low) * math.prod(spatial[d + 1 :])
                outside = (np.arange(count) * step[d] + low < 0) | (np.arange(count) * step[d] + low >= spatial[d])
                place = lax.add(place, _along(np.where(outside, -(2**28), row), lead + d, grad.shape))
                config.append((low, spatial[d] - low - (count - 1) * step[d] - 1, step[d] - 1))
            part = lax.pad(lax.select(lax.eq(where, place), grad, zero), np.zeros((), wide), config)
            result = part if result is None else lax.add(result, part)
        return as_dtype(result, self.dtype)

    return max_pool_backward


def _divisor(n: int, size: int, kernel: int, stride: int, pad: int, padded: bool) -> Any:
    """Per window of one dim, how many places count."""
    if not isinstance(n, int):  # a symbolic size of jax.export
        low, length = (0, n + 2 * pad) if padded else (pad, n)
        config = (low, (size - 1) * stride + kernel - length - low, 0)
        ones = lax.pad(lax.full((length,), np.int32(1)), np.int32(0), [config])
        return lax.reduce_window(ones, np.int32(0), lax.add, (kernel,), (stride,), [(0, 0)])
    start = np.arange(size) * stride - pad
    end = np.minimum(start + kernel, n + pad)
    return end - start if padded else np.minimum(end, n) - np.maximum(start, 0)


def _divided(x: Array, divisors: Sequence[Any], override: int | None) -> Array:
    if override is not None:
        return lax.div(x, lax.full_like(x, override))
    count: Array = lax.full_like(x, 1)
    for d, values in enumerate(divisors):
        dim = x.ndim - len(divisors) + d
        if isinstance(values, np.ndarray) and values.size and (values == values[0]).all():
            count = lax.mul(count, lax.full_like(x, int(values[0])))
        else:
            count = lax.mul(count, as_dtype(_along(values, dim, x.shape), x.dtype))
    return lax.div(x, count)


def _avg_pool(rank: int) -> Any:
    def avg_pool(
        self: Array,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
        out: Any,
    ) -> Array:
        """Sums of windows over how many places count."""
        kernel = full(kernel_size, rank)
        step, pad, sizes = full(stride, rank, kernel), full(padding, rank), out[0][0][-rank:]
        lead, x = self.ndim - rank, as_dtype(self, opmath(self.dtype))
        spatial = self.shape[lead:]
        high = [(o - 1) * s + k - n - p for o, s, k, n, p in zip(sizes, step, kernel, spatial, pad, strict=True)]
        x = lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0)] * lead + [(p, h, 0) for p, h in zip(pad, high, strict=True)])
        ones = (1,) * lead
        total = lax.reduce_window(x, np.zeros((), x.dtype), lax.add, ones + kernel, ones + step, [(0, 0)] * self.ndim)
        divisors = [
            _divisor(n, o, k, s, p, count_include_pad)
            for n, o, k, s, p in zip(spatial, sizes, kernel, step, pad, strict=True)
        ]
        return as_dtype(_divided(total, divisors, divisor_override), self.dtype)

    return avg_pool


def _avg_pool_backward(rank: int) -> Any:
    def avg_pool_backward(
        grad_output: Array,
        self: Array,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Array:
        """Every place gets the sum of its windows' shares: a window sum over the shares spread out by stride."""
        kernel = full(kernel_size, rank)
        step, pad, lead = full(stride, rank, kernel), full(padding, rank), self.ndim - rank
        spatial, sizes = self.shape[lead:], grad_output.shape[lead:]
        divisors = [
            _divisor(n, o, k, s, p, count_include_pad)
            for n, o, k, s, p in zip(spatial, sizes, kernel, step, pad, strict=True)
        ]
        share = _divided(as_dtype(grad_output, opmath(self.dtype)), divisors, divisor_override)
        config = [(0, 0, 0)] * lead + [
            (k - 1 - p, p + n - 1 - (o - 1) * s, s - 1)
            for n, o, k, s, p in zip(spatial, sizes, kernel, step, pad, strict=True)
        ]
        zero = np.zeros((), share.dtype)
        spread = lax.pad(share, zero, config)
        ones = (1,) * self.ndim
        window = (1,) * lead + kernel
        return as_dtype(lax.reduce_window(spread, zero, lax.add, window, ones, [(0, 0)] * self.ndim), self.dtype)

    return avg_pool_backward


def _unpool(rank: int, self: Array, indices: Array, output_size: Sequence[int]) -> Checked:
    """Values put back at their flat positions; everything else is 0."""
    shape, size = (*self.shape[:-rank], *output_size), math.prod(output_size)
    index = as_dtype(indices, np.int64)
    outside = lax.bitwise_or(lax.lt(index, lax.full_like(index, 0)), lax.ge(index, lax.full_like(index, size)))
    index = lax.select(outside, lax.full_like(index, 0), index)
    return Checked(
        scatter_planes(self, index, shape, rank, add=False),
        lax.reduce(outside, False, lax.bitwise_or, tuple(range(self.ndim))),
    )


def max_unpool2d(self: Array, indices: Array, output_size: Sequence[int]) -> Checked:
    """Partial inverse of max_pool2d."""
    return _unpool(2, self, indices, output_size)


def max_unpool3d(
    self: Array, indices: Array, output_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> Checked:
    """Partial inverse of max_pool3d."""
    return _unpool(3, self, indices, output_size)


for _rank in (2, 3):
    add_row(f"max_pool{_rank}d_with_indices", _max_pool(_rank))
    add_row(f"max_pool{_rank}d_with_indices_backward", _max_pool_backward(_rank))
    add_row(f"avg_pool{_rank}d", _avg_pool(_rank))
    add_row(f"avg_pool{_rank}d_backward", _avg_pool_backward(_rank))
add_row("max_unpool2d", max_unpool2d, checked=True)
add_row("max_unpool3d", max_unpool3d, checked=True)
