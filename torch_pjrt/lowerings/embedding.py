"""Embedding tables: the gradient of a lookup, renormalisation, and bags of rows.

The plain lookup is in indexing.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, constant, isnan, like, opmath
from torch_pjrt.lowerings.indexing import outside, take_slices
from torch_pjrt.lowerings.reduction import Out, add_up, norm_over
from torch_pjrt.lowerings.scatter import put_slices
from torch_pjrt.ops.registry import Checked, row

SUM, MEAN, MAX = 0, 1, 2


def counts(indices: Array, size: int, dtype: Any) -> Array:
    """How often each of 0..size-1 occurs in a vector of indices."""
    return put_slices(lax.full((size,), 0, dtype), indices, lax.full(indices.shape, 1, dtype), 0, "add")


@row("embedding_dense_backward")
def embedding_dense_backward(
    grad_output: Array, indices: Array, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Array:
    """Sum of the gradients that fall on each row; the padding row gets none."""
    width = grad_output.shape[-1]
    place = as_dtype(lax.reshape(indices, (indices.size,)), np.int64)
    wide = opmath(grad_output.dtype)
    grad = as_dtype(lax.reshape(grad_output, (indices.size, width)), wide)
    if scale_grad_by_freq:
        often = take_slices(counts(place, num_weights, wide), place, 0)
        grad = lax.div(grad, lax.broadcast_in_dim(often, grad.shape, (0,)))
    if padding_idx >= 0:  # a position past the end is dropped
        place = lax.select(lax.eq(place, constant(padding_idx, place)), constant(num_weights, place), place)
    return as_dtype(put_slices(lax.full((num_weights, width), 0, wide), place, grad, 0, "add"), grad_output.dtype)


@row("embedding_renorm", static=("norm_type",), checked=True)
def embedding_renorm(self: Array, indices: Array, max_norm: Any, norm_type: float) -> Checked:
    """self with the looked-up rows whose norm exceeds max_norm scaled down to it."""
    place = lax.reshape(indices, (indices.size,))
    wide = as_dtype(self, opmath(self.dtype))
    size = norm_over(wide, float(norm_type), (1,), (self.shape[0],))
    limit = like(max_norm, size)
    used = put_slices(lax.full(size.shape, False), place, lax.full(place.shape, True), 0, "set")
    scale = lax.div(limit, lax.add(size, constant(1e-7, size)))
    scale = lax.select(lax.bitwise_and(used, lax.gt(size, limit)), scale, constant(1, scale))
    scaled = lax.mul(wide, lax.broadcast_in_dim(scale, wide.shape, (0,)))
    return Checked(as_dtype(scaled, self.dtype), outside(place, self.shape[0]))


def bags_of(offsets: Array, count: int) -> Array:
    """Which bag each of `count` positions is in, from where each bag starts; int64."""
    starts = put_slices(
        lax.full((count + 1,), 0, np.int64), as_dtype(offsets, np.int64), lax.full(offsets.shape, 1, np.int64), 0, "add"
    )
    return lax.slice_in_dim(lax.sub(lax.cumsum(starts, axis=0), np.int64(1)), 0, count)


def _unfit(offsets: Array, count: int) -> Array:
    """Whether offsets do not rise from 0 to at most count."""
    if not offsets.size:
        return lax.full((), False)
    starts = as_dtype(offsets, np.int64)
    before = lax.concatenate((lax.full((1,), 0, np.int64), lax.slice_in_dim(starts, 0, offsets.size - 1)), 0)
    falls = lax.reduce_or(lax.lt(starts, before), (0,))
    ends = lax.gt(lax.index_in_dim(starts, offsets.size - 1, 0, False), np.int64(count))
    return lax.bitwise_or(lax.bitwise_or(falls, ends), lax.ne(lax.index_in_dim(starts, 0, 0, False), np.int64(0)))


def _real(indices: Array, padding_idx: int) -> Array:
    """Which indices are not padding."""
    return lax.full(indices.shape, True) if padding_idx < 0 else lax.ne(indices, constant(padding_idx, indices))


def _across(x: Array, shape: tuple[int, ...]) -> Array:
    """A vector repeated along the second dim."""
    return lax.broadcast_in_dim(x, shape, (0,))


def _bag_max(rows: Array, bag: Array, indices: Array, real: Array, num_bags: int) -> tuple[Array, Array]:
    """Elementwise maximum of each bag's rows and the table row that it came from; zeros for an empty bag.

    As in torch, a NaN counts only in a bag's first row.
    """
    count, width = rows.shape
    last = constant(max(num_bags - 1, 0), bag)
    place = lax.select(real, bag, constant(num_bags, bag))
    order = lax.iota(np.int64, count)
    head = put_slices(lax.full((num_bags,), count, np.int64), place, order, 0, "amin")
    unknown = isnan(rows)
    heads = lax.bitwise_and(unknown, _across(lax.eq(order, take_slices(head, lax.min(place, last), 0)), rows.shape))
    rows = lax.select(unknown, constant(-math.inf, rows), rows)  # torch compares from a bag's first row on
    rows = lax.select(heads, constant(math.nan, rows), rows)
    top = put_slices(lax.full((num_bags, width), -math.inf, rows.dtype), place, rows, 0, "amax")
    mine = take_slices(top, lax.min(bag, last), 0)
    hit = lax.bitwise_or(lax.bitwise_and(lax.eq(rows, mine), lax.bitwise_not(unknown)), heads)
    order = lax.select(hit, _across(order, rows.shape), lax.full(rows.shape, count, np.int64))
    first = put_slices(lax.full((num_bags, width), count, np.int64), place, order, 0, "amin")
    empty = lax.eq(first, constant(count, first))
    source = take_slices(indices, lax.min(first, constant(max(count - 1, 0), first)), 0)
    return lax.select(empty, constant(0, top), top), lax.select(empty, constant(0, source), source)


@row(
    "_embedding_bag",
    "_embedding_bag_forward_only",
    checked="an index of embedding_bag is outside the table, or its offsets do not rise from 0 to the number of indices",
)
def embedding_bag(
    weight: Array,
    indices: Array,
    offsets: Array,
    out: Out,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Checked:
    """Sum, mean or maximum of each bag's rows; then what the backward pass needs: bags, their sizes, maxima's rows."""
    (num_bags, width), dtype = out[0]
    count = indices.shape[0]
    bag = bags_of(offsets, count)
    real = _real(indices, padding_idx)
    rows = as_dtype(take_slices(weight, indices, 0), opmath(dtype))
    place = lax.select(real, bag, constant(num_bags, bag))
    often = put_slices(lax.full((num_bags,), 0, np.int64), place, lax.full(bag.shape, 1, np.int64), 0, "add")
    source = lax.full((0,), 0, out[3][1])
    if mode == MAX:
        if count and num_bags:
            result, source = _bag_max(rows, bag, indices, real, num_bags)
        else:
            result, source = lax.full((num_bags, width), 0, rows.dtype), lax.full(out[3][0], 0, out[3][1])
    else:
        if per_sample_weights is not None:
            rows = lax.mul(rows, _across(as_dtype(per_sample_weights, rows.dtype), rows.shape))
        result = put_slices(lax.full((num_bags, width), 0, rows.dtype), place, rows, 0, "add")
        if mode == MEAN:
            result = lax.div(result, _across(as_dtype(lax.max(often, constant(1, often)), rows.dtype), result.shape))
    size = lax.pad(often, np.int64(0), [(0, out[2][0][0] - num_bags, 0)])
    saved = [as_dtype(x, d) for x, (_, d) in zip((bag, size, source), out[1:], strict=True)]
    bad = lax.bitwise_or(outside(indices, weight.shape[0]), _unfit(offsets, count))
    return Checked((as_dtype(result, dtype), *saved), bad)


def _table_gradient(
    grad: Array, indices: Array, bag: Array, bag_size: Array, source: Array, num_weights: int,
    scale_grad_by_freq: bool, mode: int, per_sample_weights: Array | None, padding_idx: int,
) -> Array:  # fmt: skip
    """What each row of the table gets from the bags that it is in."""
    num_bags, width = grad.shape
    wide = as_dtype(grad, opmath(grad.dtype))
    blank = lax.full((num_weights, width), 0, wide.dtype)
    if grad.size == 0 or indices.size == 0:
        return as_dtype(blank, grad.dtype)
    if mode == MAX:
        some = lax.gt(lax.slice_in_dim(bag_size, 0, num_bags), lax.full((num_bags,), 0, bag_size.dtype))
        given = lax.select(_across(some, wide.shape), wide, constant(0, wide))
        place = lax.add(
            lax.mul(as_dtype(source, np.int64), lax.full(source.shape, width, np.int64)),
            lax.broadcasted_iota(np.int64, source.shape, 1),
        )
        flat = put_slices(
            lax.reshape(blank, (blank.size,)),
            lax.reshape(place, (place.size,)),
            lax.reshape(given, (given.size,)),
            0,
            "add",
        )
        return as_dtype(lax.reshape(flat, blank.shape), grad.dtype)
    rows = take_slices(wide, bag, 0)
    if per_sample_weights is not None:
        rows = lax.mul(rows, _across(as_dtype(per_sample_weights, rows.dtype), rows.shape))
    if mode == MEAN:
        size = take_slices(as_dtype(bag_size, rows.dtype), bag, 0)
        rows = lax.div(rows, _across(lax.max(size, constant(1, size)), rows.shape))
    place = as_dtype(indices, np.int64)
    if scale_grad_by_freq:
        often = take_slices(counts(place, num_weights, rows.dtype), place, 0)
        rows = lax.div(rows, _across(often, rows.shape))
    place = lax.select(_real(indices, padding_idx), place, constant(num_weights, place))
    return as_dtype(put_slices(blank, place, rows, 0, "add"), grad.dtype)


def _saved_bags(offset2bag: Array, offsets: Array | None, indices: Array) -> Array:
    """The bags that the forward pass saved, or, where it saved none, the bags found again."""
    if offset2bag.size == indices.size or offsets is None:
        return as_dtype(offset2bag, np.int64)
    return bags_of(offsets, indices.shape[0])


@row("_embedding_bag_backward")
def embedding_bag_backward(
    grad: Array,
    indices: Array,
    offsets: Array,
    offset2bag: Array,
    bag_size: Array,
    maximum_indices: Array,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Array | None,
    padding_idx: int = -1,
) -> Array:
    """Gradient of the table (dense, also where a sparse one was asked for)."""
    bag = _saved_bags(offset2bag, offsets, indices)
    return _table_gradient(
        grad,
        indices,
        bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


@row("_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    grad: Array,
    indices: Array,
    offset2bag: Array,
    bag_size: Array,
    maximum_indices: Array,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Array | None,
    padding_idx: int = -1,
) -> Array:
    """Gradient of the table."""
    bag = as_dtype(offset2bag, np.int64)
    return _table_gradient(
        grad,
        indices,
        bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


@row("_embedding_bag_per_sample_weights_backward")
def embedding_bag_per_sample_weights_backward(
    grad: Array, weight: Array, indices: Array, offsets: Array, offset2bag: Array, mode: int, padding_idx: int = -1
) -> Array:
    """How each row's weight moves its bag: the row times the bag's gradient."""
    if indices.size == 0:
        return lax.full(indices.shape, 0, grad.dtype)
    wide = opmath(grad.dtype)
    rows = as_dtype(take_slices(weight, indices, 0), wide)
    given = as_dtype(take_slices(grad, _saved_bags(offset2bag, offsets, indices), 0), wide)
    total = add_up(lax.mul(rows, given), (1,), indices.shape)
    return as_dtype(lax.select(_real(indices, padding_idx), total, constant(0, total)), grad.dtype)
