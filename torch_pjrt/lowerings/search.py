"""Searching sorted sequences, membership and counting into equal bins: searchsorted, bucketize, isin, histc."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, is_float
from torch_pjrt.lowerings.indexing import gather_along
from torch_pjrt.lowerings.reduction import Out, largest, smallest
from torch_pjrt.lowerings.scatter import put_slices
from torch_pjrt.ops.registry import Checked, Promote, add_row, row


def positions(sequence: Array, values: Array, right: bool) -> Array:
    """How many elements of each sorted row of sequence [rows, n] come before each value [rows, m]; int32 or int64.

    A NaN in either counts as larger than everything.
    """
    n = sequence.shape[-1]
    kind = np.int32 if n < 2**31 - 1 else np.int64
    low, high = lax.full(values.shape, 0, kind), lax.full(values.shape, n, kind)
    if n == 0 or values.size == 0:
        return low
    stays_left = lax.gt if right else lax.ge

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = lax.div(lax.add(low, high), constant(2, low))
        found = gather_along(sequence, lax.min(middle, constant(n - 1, middle)), 1)
        left = lax.bitwise_or(stays_left(found, values), lax.ge(low, high))
        return lax.select(left, low, lax.add(middle, constant(1, middle))), lax.select(
            left, lax.min(middle, high), high
        )

    return lax.fori_loop(0, n.bit_length(), halve, (low, high))[0]


def search(sequence: Array, values: Array, right: bool, sorter: Array | None, out: Out) -> Array:
    """Positions of values in sequence, whose last dim is sorted (or is sorted by sorter)."""
    if sequence.ndim == 1:
        rows, wanted = lax.reshape(sequence, (1, sequence.size)), lax.reshape(values, (1, values.size))
    else:
        lead = math.prod(sequence.shape[:-1])
        rows = lax.reshape(sequence, (lead, sequence.shape[-1]))
        wanted = lax.reshape(values, (lead, values.shape[-1]))
    if sorter is not None:
        rows = gather_along(rows, lax.reshape(sorter, rows.shape), 1)
    size, dtype = out[0]
    return as_dtype(lax.reshape(positions(rows, wanted, right), size), dtype)


@row("searchsorted.Tensor", "searchsorted.Scalar", promote=Promote.DEFAULT, broadcast=False, keep=("sorter",))
def searchsorted(
    sorted_sequence: Array,
    self: Array,
    out: Out,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    """Where each value would go."""
    return search(sorted_sequence, self, right or side == "right", sorter, out)


def bucketize(self: Array, boundaries: Array, out: Out, out_int32: bool = False, right: bool = False) -> Array:
    """Which bucket each value falls in."""
    return search(boundaries, self, right, None, out)


for _name in ("bucketize.Tensor", "bucketize.Scalar"):
    add_row(_name, bucketize, promote=Promote.DEFAULT, broadcast=False)


_FEW_BINS = 256  # so many are counted by comparing, where a scatter is slow (TPU) or refused for integers (Trainium)


RANGE = "the range of a histogram is not finite"


@row("histc", promote=Promote.NONE, checked=RANGE)
def histc(self: Array, platform: str, bins: int = 100, min: Any = 0, max: Any = 0) -> Checked:
    """How many elements fall in each of `bins` equal parts of min..max (the data's range when they are equal).

    Integers, which CPU torch refuses, go to their part by integer division, as on CUDA.
    """
    flat = lax.reshape(self, (self.size,))
    kind = np.dtype(np.int64 if not is_float(flat) else np.float32 if flat.dtype.itemsize < 4 else flat.dtype)
    x, low, high = as_dtype(flat, kind), as_dtype(min, kind), as_dtype(max, kind)
    if x.size:
        same = lax.eq(low, high)
        low, high = lax.select(same, smallest(x, (0,), ()), low), lax.select(same, largest(x, (0,), ()), high)
    bad = lax.full((), False)
    if is_float(x):
        bad = lax.bitwise_not(lax.bitwise_and(lax.is_finite(low), lax.is_finite(high)))
    same, one = lax.eq(low, high), np.ones((), kind)
    low, high = lax.select(same, lax.sub(low, one), low), lax.select(same, lax.add(high, one), high)
    low_all, high_all = broadcast_to(low, x.shape), broadcast_to(high, x.shape)
    inside = lax.bitwise_and(lax.ge(x, low_all), lax.le(x, high_all))
    scaled = lax.div(lax.mul(lax.sub(x, low_all), constant(bins, x)), lax.sub(high_all, low_all))
    place = lax.min(
        as_dtype(lax.select(inside, scaled, constant(0, x)), np.int64), lax.full(x.shape, bins - 1, np.int64)
    )
    place = lax.select(inside, place, lax.full(x.shape, bins, np.int64))
    if platform != "cpu" and bins <= _FEW_BINS:
        shape = (x.size, bins)
        hit = lax.eq(lax.broadcast_in_dim(place, shape, (0,)), lax.broadcasted_iota(np.int64, shape, 1))
        count = lax.reduce_sum(as_dtype(hit, np.int64), (0,))
    else:
        count = put_slices(lax.full((bins,), 0, np.int64), place, lax.full(x.shape, 1, np.int64), 0, "add")
    return Checked(as_dtype(count, self.dtype), bad)


def isin(found: Array, among: Array, invert: bool, size: tuple[int, ...]) -> Array:
    """Whether each element of found equals any of among."""
    flat, tests = lax.reshape(found, (found.size,)), lax.reshape(among, (among.size,))
    if flat.dtype == np.bool_:
        flat, tests = as_dtype(flat, np.uint8), as_dtype(tests, np.uint8)
    if tests.size == 0:
        hit = lax.full(flat.shape, False)
    elif tests.size <= 64:
        shape = (flat.size, tests.size)
        same = lax.eq(lax.broadcast_in_dim(flat, shape, (0,)), lax.broadcast_in_dim(tests, shape, (1,)))
        hit = lax.reduce_or(same, (1,))
    else:
        rows, wanted = lax.reshape(lax.sort(tests), (1, tests.size)), lax.reshape(flat, (1, flat.size))
        place = positions(rows, wanted, False)
        near = gather_along(rows, lax.min(place, constant(tests.size - 1, place)), 1)
        hit = lax.reshape(lax.eq(near, wanted), flat.shape)
    return lax.reshape(lax.bitwise_not(hit) if invert else hit, size)


def _isin_row(name: str, elements: str, tests: str) -> None:
    def run(out: Out, assume_unique: bool = False, invert: bool = False, **given: Array) -> Array:
        return isin(given[elements], given[tests], invert, out[0][0])

    add_row(name, run, promote=Promote.DEFAULT, broadcast=False)


_isin_row("isin.Tensor_Tensor", "elements", "test_elements")
_isin_row("isin.Tensor_Scalar", "elements", "test_element")
_isin_row("isin.Scalar_Tensor", "element", "test_elements")
