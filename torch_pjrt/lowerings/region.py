"""Writing into a region: select_scatter, slice_scatter, diagonal_scatter, as_strided_scatter, gradients of views.

Positions (select's index, slice's start and end) are operands, so one program serves all of them. These rows write what
the matching view reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, computed_first, constant, iota, wrap_dim
from torch_pjrt.lowerings.scatter import put_slices
from torch_pjrt.ops.registry import Checked, row


def _from_end(index: Array, size: int) -> Array:
    return lax.select(lax.lt(index, np.int64(0)), lax.add(index, np.int64(size)), index)


def _starts(rank: int, dim: int, start: Array) -> list[Array]:
    return [as_dtype(start, np.int64) if d == dim else np.int64(0) for d in range(rank)]


def write_slice(x: Array, src: Array, dim: int, start: Array, step: int) -> Array:
    """x with src at start, start+step, ... along dim; start is non-negative and src fits."""
    if src.size == 0:
        return x
    places = _starts(x.ndim, dim, start)
    if step == 1:
        return lax.dynamic_update_slice(x, src, places)
    gaps = [(0, 0, step - 1 if d == dim else 0) for d in range(x.ndim)]
    spread = lax.pad(src, lax.full((), 0, src.dtype), gaps)
    hit = lax.pad(lax.full(src.shape, True), np.bool_(False), gaps)
    spread = lax.dynamic_update_slice(constant(0, x), spread, places)
    hit = lax.dynamic_update_slice(lax.full(x.shape, False), hit, places)
    return lax.select(hit, spread, x)


def _start_of(start: Any, size: int) -> Array:
    """A slice's start as Python reads it: None is 0, negative from the end, clamped to 0..size."""
    if start is None:
        return np.int64(0)
    return lax.clamp(np.int64(0), _from_end(as_dtype(start, np.int64), size), np.int64(size))


@row("select_scatter", operands=("index",), checked=True)
def select_scatter(self: Array, src: Array, dim: int, index: Array, platform: str) -> Checked:
    """self with self.select(dim, index) replaced by src."""
    dim = wrap_dim(dim, self.ndim)
    size = self.shape[dim]
    place = _from_end(as_dtype(index, np.int64), size)
    bad = lax.bitwise_or(lax.lt(place, np.int64(0)), lax.ge(place, np.int64(size)))
    src = computed_first(as_dtype(src, self.dtype), platform)
    slab = lax.reshape(src, tuple(1 if d == dim else n for d, n in enumerate(self.shape)))
    return Checked(write_slice(self, slab, dim, place, 1), bad)


@row("select_backward", operands=("index",))
def select_backward(grad_output: Array, input_sizes: Sequence[int], dim: int, index: Array) -> Array:
    """grad_output at index along dim, zeros elsewhere."""
    dim = wrap_dim(dim, len(input_sizes))
    slab = lax.reshape(grad_output, tuple(1 if d == dim else n for d, n in enumerate(input_sizes)))
    zeros = lax.full(tuple(input_sizes), 0, grad_output.dtype)
    return write_slice(zeros, slab, dim, _from_end(as_dtype(index, np.int64), input_sizes[dim]), 1)


@row("slice_scatter", operands=("start", "end"))
def slice_scatter(
    self: Array, src: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1, platform: str = ""
) -> Array:
    """self with self[start:end:step] along dim replaced by src (whose size says how many)."""
    dim = wrap_dim(dim, self.ndim)
    src = computed_first(as_dtype(src, self.dtype), platform)
    return write_slice(self, src, dim, _start_of(start, self.shape[dim]), step)


@row("slice_backward", operands=("start", "end"))
def slice_backward(
    grad_output: Array, input_sizes: Sequence[int], dim: int, start: Array, end: Array, step: int
) -> Array:
    """grad_output at start:end:step along dim, zeros elsewhere."""
    dim = wrap_dim(dim, len(input_sizes))
    zeros = lax.full(tuple(input_sizes), 0, grad_output.dtype)
    return write_slice(zeros, grad_output, dim, _start_of(start, input_sizes[dim]), step)


def _diagonal_mask(shape: Sequence[int], offset: int, dim1: int, dim2: int) -> Array:
    return lax.eq(lax.add(iota(shape, dim1), np.int64(offset)), iota(shape, dim2))


def write_diagonal(x: Array, src: Array, offset: int, dim1: int, dim2: int) -> Array:
    """x with its diagonal over (dim1, dim2) replaced by src, whose last dim runs along it."""
    dim1, dim2 = wrap_dim(dim1, x.ndim), wrap_dim(dim2, x.ndim)
    if src.size == 0:
        return x
    # lay src along dim1 at the rows that the diagonal meets, then repeat it over dim2
    first = max(-offset, 0)
    spread = lax.pad(
        src,
        lax.full((), 0, src.dtype),
        [(0, 0, 0)] * (src.ndim - 1) + [(first, x.shape[dim1] - first - src.shape[-1], 0)],
    )
    rest = [d for d in range(x.ndim) if d not in (dim1, dim2)]
    target = sorted((*rest, dim1))
    order = [(rest.index(d) if d != dim1 else src.ndim - 1) for d in target]
    wide = lax.broadcast_in_dim(lax.transpose(spread, order), x.shape, target)
    return lax.select(_diagonal_mask(x.shape, offset, dim1, dim2), wide, x)


@row("diagonal_scatter")
def diagonal_scatter(self: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """self with a diagonal replaced."""
    return write_diagonal(self, as_dtype(src, self.dtype), offset, dim1, dim2)


@row("diagonal_backward")
def diagonal_backward(grad_output: Array, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Array:
    """grad_output on a diagonal, zeros elsewhere."""
    return write_diagonal(lax.full(tuple(input_sizes), 0, grad_output.dtype), grad_output, offset, dim1, dim2)


@row("as_strided_scatter")
def as_strided_scatter(
    self: Array, src: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Array:
    """self (contiguous) with self.as_strided(size, stride, offset) replaced by src."""
    if src.size == 0:
        return self
    place = np.full((), storage_offset or 0, np.int64)
    for n, s in zip(size, stride, strict=True):
        place = place[..., None] + np.arange(n, dtype=np.int64) * s
    flat = lax.reshape(self, (self.size,))
    src = lax.reshape(as_dtype(src, self.dtype), (src.size,))
    return lax.reshape(put_slices(flat, place.reshape(-1), src, 0, "set"), self.shape)
