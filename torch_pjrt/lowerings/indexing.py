"""Reading by position: index, gather, take, index_select, embedding lookups.

Owns the two shapes of lookup that the other index families share: one element per index (`gather_along`) and one slice
per index (`take_slices`). Writing by position is in scatter.py. A position out of range is reported through Checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, broadcast_together, constant, wrap_dim
from torch_pjrt.lowerings.reduction import Out
from torch_pjrt.ops.registry import Checked, row

GATHER_MODE = lax.GatherScatterMode.PROMISE_IN_BOUNDS  # out of range is reported by Checked, XLA then clamps


def outside(index: Array, size: int) -> Array:
    """0-d bool: whether any index is not in 0..size-1."""
    low, high = constant(0, index), lax.full_like(index, min(size, np.iinfo(index.dtype).max))
    return lax.reduce_or(lax.bitwise_or(lax.lt(index, low), lax.ge(index, high)), tuple(range(index.ndim)))


def wrapped(index: Array, size: int) -> Array:
    """Negative indices counted from the end; the dtype is int64 or, when size allows, int32."""
    index = as_dtype(index, np.int64)
    return lax.select(lax.lt(index, constant(0, index)), lax.add(index, constant(size, index)), index)


def narrowed(index: Array, size: int) -> Array:
    """Indices below size in int32 where that holds them: chips are faster at it."""
    return as_dtype(index, np.int32 if size < 2**31 else np.int64)


def no_bad() -> Array:
    """The flag of a row that met no bad index."""
    return np.zeros((), np.bool_)


def cut_to(x: Array, shape: Sequence[int], dim: int) -> Array:
    """The leading part of x that has the given shape everywhere but along dim."""
    limits = tuple(n if d == dim else shape[d] for d, n in enumerate(x.shape))
    return x if limits == tuple(x.shape) else lax.slice(x, (0,) * x.ndim, limits)


def gather_along(x: Array, index: Array, dim: int) -> Array:
    """out[i, j, k] = x[i, index[i, j, k], k] for dim 1; index may be smaller than x in the other dims."""
    if index.size == 0 or x.size == 0:
        return lax.full(index.shape, 0, x.dtype)
    others = tuple(d for d in range(x.ndim) if d != dim)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    start = lax.reshape(narrowed(index, x.shape[dim]), (*index.shape, 1))
    return lax.gather(cut_to(x, index.shape, dim), start, numbers, (1,) * x.ndim, mode=GATHER_MODE)


def take_slices(x: Array, index: Array, dim: int) -> Array:
    """x's slices along dim at index (any shape), whose dims replace dim."""
    shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    if x.size == 0 or index.size == 0:
        return lax.full(shape, 0, x.dtype)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(d for d in range(len(shape)) if not dim <= d < dim + index.ndim),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
    )
    sizes = tuple(1 if d == dim else n for d, n in enumerate(x.shape))
    start = lax.reshape(narrowed(index, x.shape[dim]), (*index.shape, 1))
    return lax.gather(x, start, numbers, sizes, mode=GATHER_MODE)


def as_row(x: Array) -> Array:
    """A 0-d array as one with a single dim of size 1, others as they are."""
    return lax.reshape(x, (1,)) if x.ndim == 0 else x


@row("gather", checked=True)
def gather(self: Array, dim: int, index: Array, out: Out, sparse_grad: bool = False) -> Checked:
    """Elements along dim at index."""
    x, place = as_row(self), as_row(index)
    dim = wrap_dim(dim, x.ndim)
    return Checked(lax.reshape(gather_along(x, place, dim), out[0][0]), outside(place, x.shape[dim]))


@row("index_select", checked=True)
def index_select(self: Array, dim: int, index: Array, out: Out) -> Checked:
    """Slices along dim at a vector of indices."""
    x, place = as_row(self), as_row(index)
    dim = wrap_dim(dim, x.ndim)
    return Checked(lax.reshape(take_slices(x, place, dim), out[0][0]), outside(place, x.shape[dim]))


@row("take", checked=True)
def take(self: Array, index: Array) -> Checked:
    """Elements of the flattened array."""
    place = wrapped(index, self.size)
    return Checked(take_slices(lax.reshape(self, (self.size,)), place, 0), outside(place, self.size))


@row("embedding", checked=True)
def embedding(
    weight: Array, indices: Array, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Checked:
    """Rows of weight."""
    return Checked(take_slices(weight, indices, 0), outside(indices, weight.shape[0]))


class Place:
    """A list of index arrays (or None) laid over an array: the coordinates, and the dims that a lookup gives.

    coords  int32/int64 [*index shape, number of indexed dims]
    dims    the indexed dims; shape, the shape of x[indices]
    window  dims of that shape which come from x's dims that are not indexed
    bad     0-d bool, whether an index is out of range
    """

    def __init__(self, x_shape: Sequence[int], indices: Sequence[Array | None]):
        given = [(d, i) for d, i in enumerate(indices) if i is not None]
        self.dims = tuple(d for d, _ in given)
        places = broadcast_together(*(wrapped(i, x_shape[d]) for d, i in given))
        block = places[0].shape
        self.bad = no_bad()
        for d, i in given:
            self.bad = lax.bitwise_or(self.bad, outside(wrapped(i, x_shape[d]), x_shape[d]))
        small = all(x_shape[d] < 2**31 for d in self.dims)
        parts = [lax.reshape(as_dtype(p, np.int32 if small else np.int64), (*block, 1)) for p in places]
        self.coords = parts[0] if len(parts) == 1 else lax.concatenate(parts, len(block))
        together = self.dims[-1] - self.dims[0] + 1 == len(self.dims)
        front = self.dims[0] if together else 0
        rest = [n for d, n in enumerate(x_shape) if d not in self.dims]
        self.shape = (*rest[:front], *block, *rest[front:])
        self.window = tuple(d for d in range(len(self.shape)) if not front <= d < front + len(block))


def expand_masks(indices: Sequence[Array | None]) -> list[Array | None]:
    """Byte and bool masks cannot be positions here: the dispatcher turns them into nonzero() beforehand."""
    for index in indices:
        if index is not None and index.dtype in (np.dtype(np.bool_), np.dtype(np.uint8)):
            raise TypeError("a mask reached an index row; masks are expanded to positions before it")
    return list(indices)


@row("index.Tensor", "_unsafe_index.Tensor", checked=True)
def index_(self: Array, indices: Sequence[Array | None], out: Out) -> Checked:
    """self[indices] with integer arrays, broadcast against each other; None takes a whole dim."""
    indices = expand_masks(indices)
    if all(i is None for i in indices):
        return Checked(self, no_bad())
    place = Place(self.shape, indices)
    if self.size == 0 or 0 in place.shape:
        return Checked(lax.full(out[0][0], 0, self.dtype), place.bad)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=place.window, collapsed_slice_dims=place.dims, start_index_map=place.dims
    )
    sizes = tuple(1 if d in place.dims else n for d, n in enumerate(self.shape))
    return Checked(lax.gather(self, place.coords, numbers, sizes, mode=GATHER_MODE), place.bad)


@row("_unsafe_masked_index", checked=False)
def unsafe_masked_index(self: Array, mask: Array, indices: Sequence[Array | None], fill: Any, out: Out) -> Array:
    """self[indices] where mask holds, else fill; indices may be out of range where it does not."""
    size, dtype = out[0]
    if self.size == 0 or 0 in size:
        return lax.full(size, 0, dtype) if 0 in size else lax.broadcast(as_dtype(fill, dtype), size)
    clipped = [None if i is None else _clipped(i, n) for i, n in zip(indices, self.shape, strict=False)]
    found = index_(self, clipped, out).value
    held = lax.broadcast(as_dtype(fill, dtype), size)
    return lax.select(broadcast_to(mask, size), found, held)


def _clipped(index: Array, size: int) -> Array:
    index = as_dtype(index, np.int64)
    return lax.clamp(np.int64(-size), index, np.int64(size - 1))
