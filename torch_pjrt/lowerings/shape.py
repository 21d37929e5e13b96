"""Rows that move elements without changing them: joining, repeating, rolling, flipping, shuffling, windows.

Padding is in padding.py; views are not rows at all. `windows` (sliding windows as a few slices) is here because
im2col, col2im and unfold_backward are all made of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, constant, iota, opmath, wrap_dim
from torch_pjrt.ops.registry import row

Out = tuple[tuple[tuple[int, ...], np.dtype], ...]


@row("cat")
def cat(tensors: Sequence[Array], dim: int, out: Out) -> Array:
    """Join along a dim; 1-d tensors of no elements are skipped whatever the rank of the others."""
    shape, dtype = out[0]
    parts = [as_dtype(t, dtype) for t in tensors if t.ndim == len(shape) and not (t.ndim == 1 and t.shape[0] == 0)]
    if not parts:
        return lax.full(shape, 0, dtype)
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, wrap_dim(dim, len(shape)))


@row("stack")
def stack(tensors: Sequence[Array], dim: int, out: Out) -> Array:
    """Join along a new dim."""
    shape, dtype = out[0]
    dim = wrap_dim(dim, len(shape))
    return lax.concatenate([lax.expand_dims(as_dtype(t, dtype), (dim,)) for t in tensors], dim)


@row("repeat")
def repeat(self: Array, repeats: Sequence[int], out: Out) -> Array:
    """Tile: each dim repeated as a whole."""
    sizes = (1,) * (len(repeats) - self.ndim) + tuple(self.shape)
    paired = tuple(n for pair in zip(repeats, sizes, strict=True) for n in pair)
    kept = tuple(range(2 * (len(repeats) - self.ndim) + 1, 2 * len(repeats), 2))
    return lax.reshape(lax.broadcast_in_dim(self, paired, kept), out[0][0])


@row("repeat_interleave.Tensor")
def repeat_interleave(repeats: Array, output_size: int | None, out: Out) -> Array:
    """Position i, repeats[i] times; the total must be given (the dispatcher reads it first when it is not)."""
    total = out[0][0][0]
    if total == 0 or repeats.shape[0] == 0:
        return lax.full((total,), 0, repeats.dtype)
    ends = lax.cumsum(as_dtype(repeats, np.int64))
    starts_next = lax.slice(ends, (0,), (repeats.shape[0] - 1,))
    steps = lax.full((total,), 0, np.int64).at[starts_next].add(np.int64(1), mode="drop")
    return as_dtype(lax.cumsum(steps), repeats.dtype)


def rolled(x: Array, shift: int, dim: int) -> Array:
    """x turned by shift along one dim."""
    size = x.shape[dim]
    shift = shift % size if size else 0
    if shift == 0:
        return x
    head = lax.slice_in_dim(x, size - shift, size, axis=dim)
    return lax.concatenate([head, lax.slice_in_dim(x, 0, size - shift, axis=dim)], dim)


@row("roll")
def roll(self: Array, shifts: Sequence[int] | int, dims: Sequence[int] | int) -> Array:
    """Turn along dims, or the flattened tensor when no dims are given."""
    shifts = (shifts,) if isinstance(shifts, int) else shifts
    dims = (dims,) if isinstance(dims, int) else dims
    if not dims:
        return lax.reshape(rolled(lax.reshape(self, (self.size,)), shifts[0], 0), self.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        self = rolled(self, shift, wrap_dim(dim, self.ndim)) if self.ndim else self
    return self


@row("flip")
def flip(self: Array, dims: Sequence[int]) -> Array:
    """Reverse along dims."""
    return lax.rev(self, tuple(wrap_dim(d, self.ndim) for d in dims)) if self.ndim else self


@row("rot90")
def rot90(self: Array, k: int, dims: Sequence[int]) -> Array:
    """Quarter turns from dims[0] towards dims[1]."""
    first, second = (wrap_dim(d, self.ndim) for d in dims)
    order = list(range(self.ndim))
    order[first], order[second] = second, first
    turns = k % 4
    if turns == 1:
        return lax.transpose(lax.rev(self, (second,)), order)
    if turns == 2:
        return lax.rev(self, (first, second))
    return lax.transpose(lax.rev(self, (first,)), order) if turns == 3 else self


@row("_reshape_copy")
def reshaped(self: Array, size: Sequence[int], out: Out) -> Array:
    """The same elements in another shape."""
    return lax.reshape(self, out[0][0])


@row("pixel_shuffle")
def pixel_shuffle(self: Array, upscale_factor: int, out: Out) -> Array:
    """(..., C*r*r, H, W) -> (..., C, H*r, W*r)."""
    *lead, channels, height, width = self.shape
    r, n = upscale_factor, len(lead)
    x = lax.reshape(self, (*lead, channels // (r * r), r, r, height, width))
    x = lax.transpose(x, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return lax.reshape(x, out[0][0])


@row("pixel_unshuffle")
def pixel_unshuffle(self: Array, downscale_factor: int, out: Out) -> Array:
    """(..., C, H*r, W*r) -> (..., C*r*r, H, W)."""
    *lead, channels, height, width = self.shape
    r, n = downscale_factor, len(lead)
    x = lax.reshape(self, (*lead, channels, height // r, r, width // r, r))
    x = lax.transpose(x, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return lax.reshape(x, out[0][0])


@row("channel_shuffle")
def channel_shuffle(self: Array, groups: int) -> Array:
    """Interleave the channels (dim 1) of groups."""
    batch, channels, *space = self.shape
    x = lax.reshape(self, (batch, groups, channels // groups, *space))
    return lax.reshape(lax.transpose(x, (0, 2, 1, *range(3, x.ndim))), self.shape)


@row("diag_embed")
def diag_embed(self: Array, offset: int, dim1: int, dim2: int, out: Out) -> Array:
    """The last dim laid out along a diagonal of two new dims, zeros elsewhere."""
    shape = out[0][0]
    first, second = wrap_dim(dim1, len(shape)), wrap_dim(dim2, len(shape))
    kept = [d for d in range(len(shape)) if d not in (first, second)]
    low, side = max(-offset, 0), shape[first]
    padded = lax.pad(
        self, constant(0, lax.full((), 0, self.dtype)), [(0, 0, 0)] * len(kept) + [(low, max(offset, 0), 0)]
    )
    on = lax.eq(iota((side, side), 1), lax.add(iota((side, side), 0), np.int64(offset)))
    values = lax.broadcast_in_dim(padded, shape, (*kept, first))
    return lax.select(lax.broadcast_in_dim(on, shape, (first, second)), values, constant(0, values))


@row("block_diag")
def block_diag(tensors: Sequence[Array], out: Out) -> Array:
    """Matrices (vectors are rows, scalars 1 by 1) along a diagonal."""
    (_, columns), dtype = out[0]
    parts, left = [], 0
    for t in tensors:
        t = as_dtype(lax.reshape(t, (1,) * (2 - t.ndim) + tuple(t.shape)), dtype)
        parts.append(lax.pad(t, np.zeros((), dtype), [(0, 0, 0), (left, columns - left - t.shape[1], 0)]))
        left += t.shape[1]
    return lax.concatenate(parts, 0)


def windows(x: Array, dim: int, size: int, step: int, dilation: int = 1) -> Array:
    """Sliding windows of a dim of n: it becomes two, (size, count), count = (n - dilation*(size-1) - 1) // step + 1."""
    count = (x.shape[dim] - dilation * (size - 1) - 1) // step + 1
    block = math.gcd(size, step) if dilation == 1 else 1
    if size // block > 64:
        return _gathered_windows(x, dim, size, step, dilation, count)
    used = (count - 1) * step + dilation * (size - 1) + 1
    x = lax.slice_in_dim(x, 0, used, axis=dim)
    shape = (*x.shape[:dim], used // block, block, *x.shape[dim + 1 :])
    x = lax.reshape(x, shape)
    stride, reach = step // block, (count - 1) * (step // block) + 1
    parts = []
    for j in range(size // block):
        at = j * dilation
        part = lax.slice_in_dim(x, at, at + reach, stride, axis=dim)  # (..., count, block, ...)
        order = (*range(dim), dim + 1, dim, *range(dim + 2, x.ndim))
        parts.append(lax.transpose(part, order))
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, dim)


def _gathered_windows(x: Array, dim: int, size: int, step: int, dilation: int, count: int) -> Array:
    index = np.arange(size)[:, None] * dilation + np.arange(count)[None, :] * step
    return x.at[(slice(None),) * dim + (index.astype(np.int32),)].get(mode="promise_in_bounds")


def transposed(fn: Any, shape: Sequence[int], grad: Array) -> Array:
    """The transpose of a linear fn of an array of this shape, applied to grad; sums narrow floats in float32."""
    wide = opmath(grad.dtype)
    spec = jax.ShapeDtypeStruct(tuple(shape), wide)
    (result,) = jax.linear_transpose(fn, spec)(as_dtype(grad, wide))
    return as_dtype(result, grad.dtype)


def _im2col(x: Array, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Array:
    lead = [(0, 0, 0)] * (x.ndim - 2)
    x = lax.pad(x, np.zeros((), x.dtype), lead + [(p, p, 0) for p in padding])
    x = windows(x, x.ndim - 1, kernel[1], stride[1], dilation[1])  # (..., C, H, kw, W)
    x = windows(x, x.ndim - 3, kernel[0], stride[0], dilation[0])  # (..., C, kh, H, kw, W)
    n = x.ndim - 5
    x = lax.transpose(x, (*range(n), n, n + 1, n + 3, n + 2, n + 4))
    channels, kh, kw, height, width = x.shape[n:]
    return lax.reshape(x, (*x.shape[:n], channels * kh * kw, height * width))


@row("im2col")
def im2col(self: Array, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Array:
    """The patches under a kernel as columns: (N, C, H, W) -> (N, C*kh*kw, patches)."""
    return _im2col(self, kernel_size, dilation, padding, stride)


@row("col2im")
def col2im(
    self: Array, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any, out: Out
) -> Array:
    """Columns summed back into an image (the transpose of im2col)."""
    return transposed(lambda x: _im2col(x, kernel_size, dilation, padding, stride), out[0][0], self)


@row("unfold_backward")
def unfold_backward(grad_in: Array, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Array:
    """Windows (last dim) summed back into the dim that they were taken from."""
    if not input_sizes:
        return lax.reshape(grad_in, ())
    dim = wrap_dim(dim, len(input_sizes))

    def unfold(x: Array) -> Array:
        y = windows(x, dim, size, step)
        return lax.transpose(y, (*range(dim), *range(dim + 1, y.ndim), dim))

    return transposed(unfold, input_sizes, grad_in)
