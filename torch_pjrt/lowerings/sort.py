"""Sorting and order statistics: sort, topk, kthvalue, median, mode.

NaN counts as larger than everything, as in torch. Every sort here is stable and carries the positions along.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, constant, iota, is_float, keep_dims, wrap_dim
from torch_pjrt.lowerings.indexing import gather_along
from torch_pjrt.lowerings.reduction import Out, add_up, first_at, largest
from torch_pjrt.ops.registry import add_row, row


def sorted_along(x: Array, dim: int, descending: bool = False) -> tuple[Array, ...]:
    """x sorted along dim, and where each element was (int64)."""
    where = iota(x.shape, dim, np.int32 if x.shape[dim] < 2**31 else np.int64)
    keys = as_dtype(x, np.uint8) if x.dtype == np.bool_ else x
    if descending:  # sorting the reversed array and reversing the result keeps equal elements in order
        keys, where = lax.rev(keys, (dim,)), lax.rev(where, (dim,))
    keys, where = lax.sort((keys, where), dimension=dim, is_stable=True, num_keys=1)
    if descending:
        keys, where = lax.rev(keys, (dim,)), lax.rev(where, (dim,))
    return as_dtype(keys, x.dtype), as_dtype(where, np.int64)


@row("sort", "sort.stable")
def sort(self: Array, dim: int = -1, descending: bool = False, stable: Any = None) -> tuple[Array, ...]:
    """Sorted values and their positions."""
    if self.ndim == 0:
        return self, np.zeros((), np.int64)
    return sorted_along(self, wrap_dim(dim, self.ndim), descending)


def _top(x: Array, k: int, dim: int) -> tuple[Array, ...]:
    """The k largest along dim by lax.top_k, NaN first."""
    last = x.ndim - 1
    order = tuple(d for d in range(x.ndim) if d != dim) + (dim,)
    moved = x if dim == last else lax.transpose(x, order)
    if is_float(x):  # the chip's order puts negative NaNs last
        moved = lax.select(lax.ne(moved, moved), constant(np.nan, moved), moved)
    values, where = lax.top_k(moved, k)
    if dim != last:
        back = tuple(int(d) for d in np.argsort(order))
        values, where = lax.transpose(values, back), lax.transpose(where, back)
    return values, as_dtype(where, np.int64)


@row("topk")
def topk(self: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, ...]:
    """The k largest (or smallest) along dim with their positions, in order."""
    if self.ndim == 0:
        return (self, np.zeros((), np.int64)) if k else (lax.full((), 0, self.dtype), np.zeros((), np.int64))
    dim = wrap_dim(dim, self.ndim)
    if largest and is_float(self) and self.size and isinstance(self.shape[dim], int) and 0 < k <= self.shape[dim] // 8:
        return _top(self, k, dim)
    values, where = sorted_along(self, dim, largest)
    return lax.slice_in_dim(values, 0, k, axis=dim), lax.slice_in_dim(where, 0, k, axis=dim)


@row("kthvalue")
def kthvalue(self: Array, k: int, out: Out, dim: int = -1, keepdim: bool = False) -> tuple[Array, ...]:
    """The k-th smallest (from 1) along dim."""
    if self.ndim == 0:
        return self, np.zeros((), np.int64)
    dim = wrap_dim(dim, self.ndim)
    picked = (lax.index_in_dim(s, k - 1, dim, False) for s in sorted_along(self, dim))
    return tuple(lax.reshape(p, size) for p, (size, _) in zip(picked, out, strict=True))


def _middle(x: Array, dim: int, skip_nan: bool) -> tuple[Array, ...]:
    """The lower median along dim and its position, dim kept as size 1."""
    values, where = sorted_along(x, dim)
    count = x.shape[dim]
    if not is_float(x):
        pick = lambda s: lax.slice_in_dim(s, (count - 1) // 2, (count - 1) // 2 + 1, axis=dim)  # noqa: E731
        return pick(values), pick(where)
    nans = keep_dims(add_up(as_dtype(lax.ne(x, x), np.int64), (dim,), _without(x, dim)), (dim,), x.shape)
    full = constant(count, nans)
    real = lax.max(lax.sub(full, nans), constant(1, nans)) if skip_nan else full
    at = lax.div(lax.sub(real, constant(1, nans)), constant(2, nans))
    if not skip_nan:  # the first NaN, if there is one
        at = lax.select(lax.gt(nans, constant(0, nans)), lax.sub(full, nans), at)
    return gather_along(values, at, dim), gather_along(where, at, dim)


def _without(x: Array, dim: int) -> tuple[int, ...]:
    return x.shape[:dim] + x.shape[dim + 1 :]


def _median_rows(name: str, skip_nan: bool) -> None:
    def whole(self: Array) -> Array:
        if self.size == 0:
            return lax.full((), np.nan if is_float(self) else np.iinfo(self.dtype).min, self.dtype)
        return lax.reshape(_middle(lax.reshape(self, (self.size,)), 0, skip_nan)[0], ())

    def along(self: Array, dim: int, out: Out, keepdim: bool = False) -> tuple[Array, ...]:
        if self.ndim == 0:
            return self, np.zeros((), np.int64)
        if 0 in out[0][0]:
            return tuple(lax.full(size, 0, dtype) for size, dtype in out)
        found = _middle(self, wrap_dim(dim, self.ndim), skip_nan)
        return tuple(lax.reshape(f, size) for f, (size, _) in zip(found, out, strict=True))

    add_row(name, whole)
    add_row(f"{name}.dim", along)


_median_rows("median", False)
_median_rows("nanmedian", True)


@row("mode")
def mode(self: Array, out: Out, dim: int = -1, keepdim: bool = False) -> tuple[Array, ...]:
    """The most frequent value along dim (the smallest of them) and its last position."""
    if self.ndim == 0:
        return self, np.zeros((), np.int64)
    if 0 in out[0][0]:
        return tuple(lax.full(size, 0, dtype) for size, dtype in out)
    dim = wrap_dim(dim, self.ndim)
    values, where = sorted_along(self, dim)
    at = iota(values.shape, dim)
    before = lax.slice_in_dim(values, 0, values.shape[dim] - 1, axis=dim)
    after = lax.slice_in_dim(values, 1, None, axis=dim)
    edge = lax.full((*values.shape[:dim], 1, *values.shape[dim + 1 :]), True)
    new = lax.concatenate((edge, lax.ne(before, after)), dim)
    length = lax.sub(at, lax.cummax(lax.select(new, at, constant(0, at)), axis=dim))
    best = largest(length, (dim,), _without(length, dim))
    pick = keep_dims(first_at(length, best, dim)[1], (dim,), length.shape)
    found = (gather_along(values, pick, dim), gather_along(where, pick, dim))
    return tuple(lax.reshape(f, size) for f, (size, _) in zip(found, out, strict=True))
