"""Segments and bins: reductions over consecutive runs of rows (segment_reduce) and histograms over one or more dims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, iota, like, wrap_dim
from torch_pjrt.lowerings.indexing import gather_along
from torch_pjrt.lowerings.reduction import add_up, largest, smallest
from torch_pjrt.lowerings.scatter import put_slices, scatter_along
from torch_pjrt.lowerings.search import RANGE, positions
from torch_pjrt.ops.registry import Checked, row

_HOW = {"sum": "add", "mean": "add", "prod": "multiply", "max": "amax", "min": "amin"}
_EMPTY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


class Segments:
    """Where segments lie along an axis of data: `ids` in data's shape, `lengths` spread over the result's shape."""

    def __init__(self, shape: Sequence[int], lengths: Array | None, offsets: Array | None, axis: int):
        self.axis = axis
        bounds = as_dtype(offsets, np.int64) if lengths is None else None
        if bounds is None:
            sizes = as_dtype(lengths, np.int64)
            ends = lax.cumsum(sizes, axis=axis) if sizes.size else sizes
        else:
            last = bounds.shape[axis]
            ends = lax.slice_in_dim(bounds, 1, last, axis=axis)
            sizes = lax.sub(ends, lax.slice_in_dim(bounds, 0, last - 1, axis=axis))
        lead, count, size = math.prod(shape[:axis]), sizes.shape[axis], shape[axis]
        places = iota((lead, size), 1)
        ids = positions(lax.reshape(ends, (lead, count)), places, True)
        ids = lax.reshape(ids, tuple(shape[: axis + 1]))
        self.shape = (*shape[:axis], count, *shape[axis + 1 :])
        self.ids = lax.broadcast_in_dim(ids, tuple(shape), tuple(range(axis + 1)))
        self.lengths = lax.broadcast_in_dim(sizes, self.shape, tuple(range(axis + 1)))

    def spread(self, x: Array) -> Array:
        """Each segment's value given to its elements (those of no segment get some value)."""
        inside = lax.min(self.ids, lax.full_like(self.ids, max(self.shape[self.axis] - 1, 0)))
        return gather_along(x, inside, self.axis)

    def fold(self, x: Array, how: str, start: Array) -> Array:
        """Elements combined into their segment's start value."""
        return scatter_along(start, self.ids, x, self.axis, how)


@row("segment_reduce", checked="the lengths of the segments are negative or do not add up to the size")
def segment_reduce(
    data: Array,
    reduce: str,
    lengths: Array | None = None,
    indices: Array | None = None,
    offsets: Array | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Checked:
    """Sum, mean, prod, max or min of each segment along axis; bad if lengths do not add up to it, unless unsafe."""
    bad = (
        np.zeros((), np.bool_) if unsafe or lengths is None else _unfit(lengths, data.shape[wrap_dim(axis, data.ndim)])
    )
    return Checked(_reduced(data, reduce, lengths, offsets, axis, initial), bad)


def _unfit(lengths: Array, size: int) -> Array:
    """Whether a length is negative, or the lengths of a row do not add up to size."""
    lengths = as_dtype(lengths, np.int64)
    total = lax.reduce_sum(lengths, (lengths.ndim - 1,))
    wrong = lax.reduce_or(lax.ne(total, constant(size, total)), tuple(range(total.ndim)))
    negative = lax.reduce_or(lax.lt(lengths, constant(0, lengths)), tuple(range(lengths.ndim)))
    return lax.bitwise_or(wrong, negative)


def _reduced(data: Array, reduce: str, lengths: Array | None, offsets: Array | None, axis: int, initial: Any) -> Array:
    parts = Segments(data.shape, lengths, offsets, wrap_dim(axis, data.ndim))
    start = lax.full(parts.shape, _EMPTY[reduce], data.dtype)
    if initial is not None:
        start = like(initial, start)
    result = parts.fold(data, _HOW[reduce], start)
    if reduce != "mean":
        return result
    count = as_dtype(parts.lengths, data.dtype)
    empty = lax.eq(count, constant(0, count))
    mean = lax.div(result, lax.select(empty, constant(1, count), count))
    return lax.select(empty, constant(math.nan, mean), mean) if initial is None else mean


@row("_segment_reduce_backward")
def segment_reduce_backward(
    grad: Array,
    output: Array,
    data: Array,
    reduce: str,
    lengths: Array | None = None,
    offsets: Array | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Array:
    """Each element's share of its segment's gradient."""
    parts = Segments(data.shape, lengths, offsets, wrap_dim(axis, data.ndim))
    given = parts.spread(grad)
    if reduce == "mean":
        given = lax.div(given, parts.spread(as_dtype(parts.lengths, data.dtype)))
    elif reduce in ("max", "min"):
        hit = lax.bitwise_or(lax.eq(data, parts.spread(output)), lax.ne(data, data))
        share = parts.fold(as_dtype(hit, data.dtype), "add", lax.full(parts.shape, 0, data.dtype))
        given = lax.select(hit, lax.div(given, parts.spread(share)), constant(0, given))
    elif reduce == "prod":
        zero = lax.eq(data, constant(0, data))
        zeros = parts.fold(as_dtype(zero, data.dtype), "add", lax.full(parts.shape, 0, data.dtype))
        start = lax.full(parts.shape, 1, data.dtype) if initial is None else like(initial, output)
        rest = parts.fold(lax.select(zero, constant(1, data), data), "multiply", start)
        others = lax.sub(parts.spread(zeros), as_dtype(zero, data.dtype))
        without = lax.div(parts.spread(rest), lax.select(zero, constant(1, data), data))
        given = lax.select(lax.eq(others, constant(0, others)), lax.mul(given, without), constant(0, given))
    inside = lax.lt(parts.ids, lax.full_like(parts.ids, parts.shape[parts.axis]))
    return lax.select(inside, given, constant(0, given))


def even_edges(low: Array, high: Array, bins: int) -> Array:
    """bins + 1 evenly spaced edges, exact at both ends (as torch.linspace, from both ends inwards)."""
    step = lax.div(lax.sub(high, low), np.asarray(bins, low.dtype))
    at = lax.iota(low.dtype, bins + 1)
    across = lambda x: lax.broadcast(x, at.shape)  # noqa: E731
    up = lax.add(across(low), lax.mul(across(step), at))
    down = lax.sub(across(high), lax.mul(across(step), lax.sub(constant(bins, at), at)))
    return lax.select(lax.lt(at, constant((bins + 1) // 2, at)), up, down)


def _edges_of(columns: Array, bins: Sequence[int], limits: Sequence[float] | None) -> tuple[list[Array], Array]:
    """Edges for each column of [n, d], over the given limits or the data's range, and whether that is not finite."""
    out, bad = [], lax.full((), False)
    for d, count in enumerate(bins):
        x = lax.index_in_dim(columns, d, 1, False)
        low: Any
        high: Any
        if limits is not None:
            low, high = (np.asarray(v, x.dtype) for v in limits[2 * d : 2 * d + 2])
        elif x.size:
            low, high = smallest(x, (0,), ()), largest(x, (0,), ())
        else:
            low, high = np.zeros((), x.dtype), np.ones((), x.dtype)
        bad = lax.bitwise_or(bad, lax.bitwise_not(lax.bitwise_and(lax.is_finite(low), lax.is_finite(high))))
        same, half = lax.eq(low, high), np.asarray(0.5, x.dtype)
        low, high = lax.select(same, lax.sub(low, half), low), lax.select(same, lax.add(high, half), high)
        out.append(even_edges(low, high, count))
    return out, bad


def _binned(columns: Array, edges: Sequence[Array], weight: Array | None, density: bool) -> Array:
    """Weights of the rows of [n, d] added up in the bins between edges."""
    dtype, shape = columns.dtype, tuple(e.shape[0] - 1 for e in edges)
    count = columns.shape[0]
    place, inside = lax.full((count,), 0, np.int64), lax.full((count,), True)
    for d, edge in enumerate(edges):
        x = lax.index_in_dim(columns, d, 1, False)
        at = lax.reshape(positions(lax.reshape(edge, (1, edge.shape[0])), lax.reshape(x, (1, count)), True), (count,))
        first, last = (lax.broadcast(lax.index_in_dim(edge, end, 0, False), x.shape) for end in (0, -1))
        at = lax.sub(as_dtype(at, np.int64), as_dtype(lax.eq(x, last), np.int64))
        at = lax.sub(at, constant(1, at))
        # not by the position found: given edges need not rise
        inside = lax.bitwise_and(inside, lax.bitwise_and(lax.ge(x, first), lax.le(x, last)))
        place = lax.add(lax.mul(place, constant(shape[d], place)), at)
    place = lax.select(inside, place, constant(math.prod(shape), place))
    each = lax.full((count,), 1, dtype) if weight is None else lax.reshape(as_dtype(weight, dtype), (count,))
    hist = lax.reshape(put_slices(lax.full((math.prod(shape),), 0, dtype), place, each, 0, "add"), shape)
    if density:
        hist = lax.div(hist, broadcast_to(add_up(hist, tuple(range(hist.ndim)), ()), shape))
        for d, edge in enumerate(edges):
            width = lax.sub(lax.slice_in_dim(edge, 1, None), lax.slice_in_dim(edge, 0, shape[d]))
            hist = lax.div(hist, lax.broadcast_in_dim(width, shape, (d,)))
    return hist


def _columns(x: Array, count: int) -> Array:
    return lax.reshape(x, (x.size // count, count))


@row("histogram.bin_ct", checked=RANGE)
def histogram(
    self: Array,
    bins: int = 100,
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> Checked:
    """Histogram over equal bins, and their edges."""
    edges, bad = _edges_of(_columns(self, 1), [bins], range)
    return Checked((_binned(_columns(self, 1), edges, weight, density), edges[0]), bad)


@row("histogram.bins_tensor")
def histogram_edges(
    self: Array, bins: Array, weight: Array | None = None, density: bool = False
) -> tuple[Array, Array]:
    """Histogram over the bins between given edges."""
    return _binned(_columns(self, 1), [bins], weight, density), bins


@row("_histogramdd_bin_edges", checked=RANGE)
def histogramdd_bin_edges(
    self: Array,
    bins: Sequence[int],
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> Checked:
    """Equal edges for each dim."""
    return Checked(*_edges_of(_columns(self, len(bins)), bins, range))


@row("_histogramdd_from_bin_cts", checked=RANGE)
def histogramdd_from_counts(
    self: Array,
    bins: Sequence[int],
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> Checked:
    """Histogram over several dims with equal bins."""
    columns = _columns(self, len(bins))
    edges, bad = _edges_of(columns, bins, range)
    return Checked(_binned(columns, edges, weight, density), bad)


@row("_histogramdd_from_bin_tensors")
def histogramdd_from_edges(
    self: Array, bins: Sequence[Array], weight: Array | None = None, density: bool = False
) -> Array:
    """Histogram over several dims between given edges."""
    return _binned(_columns(self, len(bins)), list(bins), weight, density)
