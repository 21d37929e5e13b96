"""Results whose size depends on values: nonzero, masked_select, unique and their static forms, masked_scatter.

Dynamic rows return results padded along dim 0 to a bound, and the count to cut them to. Results that share the bound as
their leading size are cut; the unique family pads one row more than it can fill so that `inverse` never shares it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, iota, wrap_dim
from torch_pjrt.lowerings.indexing import no_bad, take_slices
from torch_pjrt.lowerings.reduction import Out
from torch_pjrt.lowerings.scatter import put_slices
from torch_pjrt.ops.registry import Checked, row

Dynamic = tuple[Any, Array]


def truth(x: Array) -> Array:
    """x != 0, flattened."""
    flat = lax.reshape(x, (x.size,))
    return flat if flat.dtype == np.bool_ else lax.ne(flat, constant(0, flat))


def ranks(mask: Array) -> tuple[Array, Array]:
    """For a flat mask: where each True goes when they are packed to the front (Falses past the end), and how many."""
    if mask.size == 0:
        return lax.full((0,), 0, np.int64), np.zeros((), np.int64)
    running = lax.cumsum(as_dtype(mask, np.int64), axis=0)
    place = lax.select(mask, lax.sub(running, constant(1, running)), constant(mask.size, running))
    return place, lax.index_in_dim(running, mask.size - 1, 0, False)


def packed(values: Array, mask: Array, size: int, fill: Any = 0) -> tuple[Array, Array]:
    """values (dim 0 along mask) where mask holds, packed to the front of `size` rows; and how many hold."""
    place, count = ranks(mask)
    if mask.size < size:  # masked-out rows must fall past the end
        place = lax.select(mask, place, constant(size, place))
    blank = lax.full((size, *values.shape[1:]), fill, values.dtype)
    return put_slices(blank, place, values, 0, "set"), count


def coordinates(flat: Array, shape: Sequence[int]) -> Array:
    """Flat positions as [positions, rank] int64 coordinates."""
    columns, stride = [], math.prod(shape)
    for n in shape:
        stride //= n
        column = lax.rem(lax.div(flat, constant(stride, flat)), constant(n, flat))
        columns.append(lax.reshape(column, (*flat.shape, 1)))
    return lax.concatenate(columns, 1) if columns else lax.full((flat.shape[0], 0), 0, np.int64)


@row("nonzero", dynamic=True)
def nonzero(self: Array) -> Dynamic:
    """Coordinates of the nonzero elements, [count, rank]."""
    if self.size == 0:
        return lax.full((0, self.ndim), 0, np.int64), np.zeros((), np.int64)
    where, count = packed(iota((self.size,), 0), truth(self), self.size)
    return coordinates(where, self.shape), count


@row("nonzero_static")
def nonzero_static(self: Array, size: int, fill_value: int = -1) -> Array:
    """The first `size` coordinates of nonzero elements; rows that are left get fill_value."""
    if self.size == 0 or size == 0:
        return lax.full((size, self.ndim), fill_value, np.int64)
    return packed(coordinates(iota((self.size,), 0), self.shape), truth(self), size, fill_value)[0]


@row("masked_select", dynamic=True)
def masked_select(self: Array, mask: Array) -> Dynamic:
    """The elements where mask holds, in order."""
    shape = lax.broadcast_shapes(self.shape, mask.shape)
    values = lax.reshape(broadcast_to(self, shape), (math.prod(shape),))
    return packed(values, truth(broadcast_to(mask, shape)), values.size)


@row("masked_scatter", checked=True)
def masked_scatter(self: Array, mask: Array, source: Array, out: Out) -> Checked:
    """self with source's elements, in order, where mask holds."""
    shape = out[0][0]
    x, hit = broadcast_to(self, shape), broadcast_to(mask, shape)
    if x.size == 0:
        return Checked(x, no_bad())
    place, count = ranks(truth(hit))
    bad = lax.gt(count, np.int64(source.size))
    if source.size == 0:
        return Checked(x, bad)
    inside = lax.min(place, constant(source.size - 1, place))
    values = lax.reshape(take_slices(lax.reshape(source, (source.size,)), inside, 0), shape)
    return Checked(lax.select(hit, values, x), bad)


@row("masked_scatter_backward")
def masked_scatter_backward(grad_output: Array, mask: Array, sizes: Sequence[int]) -> Array:
    """The gradient of masked_scatter's source: what lies under mask, packed, then zeros."""
    shape = lax.broadcast_shapes(grad_output.shape, mask.shape)
    grad = lax.reshape(broadcast_to(grad_output, shape), (math.prod(shape),))
    size = math.prod(sizes)
    return lax.reshape(packed(grad, truth(broadcast_to(mask, shape)), size)[0], tuple(sizes))


def _grouped(rows: Array, new: Array, order: Array | None, inverse: bool, counts: bool, shape: Any) -> Dynamic:
    """(unique rows, inverse, counts) of rows already laid out with equal ones adjacent; new marks each first."""
    bound = new.size + 1
    group = (
        lax.sub(lax.cumsum(as_dtype(new, np.int64), axis=0), np.int64(1)) if new.size else lax.full((0,), 0, np.int64)
    )
    found, count = packed(rows, new, bound)
    back = lax.full((0,), 0, np.int64)
    if inverse:
        back = group if order is None else put_slices(lax.full((new.size,), 0, np.int64), order, group, 0, "set")
        back = lax.reshape(back, shape)
    often = lax.full((0,), 0, np.int64)
    if counts:
        often = put_slices(lax.full((bound,), 0, np.int64), group, lax.full(group.shape, 1, np.int64), 0, "add")
    return (found, back, often), count


def _first_of_run(rows: Array) -> Array:
    """Whether each row (dim 0) differs from the one before it."""
    if rows.shape[0] == 0:
        return lax.full((0,), False)
    differs = lax.ne(lax.slice_in_dim(rows, 1, None), lax.slice_in_dim(rows, 0, rows.shape[0] - 1))
    return lax.concatenate((lax.full((1,), True), lax.reduce_or(differs, tuple(range(1, rows.ndim)))), 0)


def _unique(x: Array, inverse: bool, counts: bool) -> Dynamic:
    flat = lax.reshape(x, (x.size,))
    keys = as_dtype(flat, np.uint8) if x.dtype == np.bool_ else flat
    keys, order = lax.sort((keys, iota((x.size,), 0)), num_keys=1, is_stable=True)
    return _grouped(as_dtype(keys, x.dtype), _first_of_run(keys), order, inverse, counts, x.shape)


@row("_unique2", dynamic=True)
def unique2(self: Array, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Dynamic:
    """Sorted distinct elements, each element's place among them, how often each occurs."""
    return _unique(self, return_inverse, return_counts)


@row("_unique", dynamic=True)
def unique(self: Array, sorted: bool = True, return_inverse: bool = False) -> Dynamic:
    """Sorted distinct elements and each element's place among them."""
    (found, back, _), count = _unique(self, return_inverse, False)
    return (found, back), count


def _rows(x: Array, dim: int) -> Array:
    """x as [size of dim, everything else]."""
    order = (dim, *(d for d in range(x.ndim) if d != dim))
    rest = math.prod(n for d, n in enumerate(x.shape) if d != dim)
    return lax.reshape(lax.transpose(x, order), (x.shape[dim], rest))


def _along(x: Array, dim: int, result: Dynamic) -> Dynamic:
    """The unique rows back in x's shape, the rows along dim 0."""
    (found, *others), count = result
    shape = (found.shape[0], *(n for d, n in enumerate(x.shape) if d != dim))
    return (lax.reshape(found, shape), *others), count


@row("unique_dim", dynamic=True)
def unique_dim(
    self: Array, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Dynamic:
    """Distinct slices along dim in lexicographic order (they come along dim 0; the dispatcher moves them back)."""
    dim = wrap_dim(dim, self.ndim)
    rows = _rows(self, dim)
    keys = as_dtype(rows, np.uint8) if rows.dtype == np.bool_ else rows
    order = iota((rows.shape[0],), 0)
    columns = [lax.index_in_dim(keys, c, 1, False) for c in range(min(keys.shape[1], 8))]
    if keys.shape[1] <= 8:
        order = lax.sort((*columns, order), num_keys=len(columns), is_stable=True)[-1] if columns else order
    else:  # least significant column first, each pass stable
        order = lax.fori_loop(0, keys.shape[1], lambda i, at: _pass(keys, keys.shape[1] - 1 - i, at), order)
    rows = take_slices(rows, order, 0)
    result = _grouped(rows, _first_of_run(rows), order, True, True, (rows.shape[0],))  # asked for or not, as torch
    return _along(self, dim, result)


def _pass(keys: Array, column: Array, order: Array) -> Array:
    """One pass of a radix sort by columns: order, sorted stably by keys[order, column]."""
    one = lax.dynamic_index_in_dim(keys, column, 1, False)
    return lax.sort((take_slices(one, order, 0), order), num_keys=1, is_stable=True)[1]


@row("unique_consecutive", dynamic=True)
def unique_consecutive(
    self: Array, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Dynamic:
    """Runs of equal elements (or slices along dim) reduced to one each."""
    if dim is None:
        flat = lax.reshape(self, (self.size,))
        return _grouped(flat, _first_of_run(flat), None, return_inverse, return_counts, self.shape)
    return unique_dim_consecutive(self, dim, return_inverse, return_counts)


@row("unique_dim_consecutive", dynamic=True)
def unique_dim_consecutive(self: Array, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Dynamic:
    """Runs of equal slices along dim reduced to one each (along dim 0, as in unique_dim)."""
    dim = wrap_dim(dim, self.ndim)
    rows = _rows(self, dim)
    result = _grouped(rows, _first_of_run(rows), None, True, True, (rows.shape[0],))
    return _along(self, dim, result)
