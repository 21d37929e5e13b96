"""Writing by position: scatter, index_put, index_add and their kin, one value or one slice per index.

Owns `scatter_along` (one element per index) and `put_slices` (one slice per index), each with a way to combine. Where
indices repeat, adding adds all of them and plain writing lets the last one win on the chips that scatter in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import (
    Array,
    as_dtype,
    broadcast_to,
    computed_first,
    constant,
    is_float,
    like,
    opmath,
    wrap_dim,
)
from torch_pjrt.lowerings.indexing import (
    Place,
    as_row,
    cut_to,
    expand_masks,
    narrowed,
    no_bad,
    outside,
    take_slices,
    wrapped,
)
from torch_pjrt.ops.registry import Checked, add_row, row

DROP = lax.GatherScatterMode.FILL_OR_DROP

_COMBINE: dict[str, Callable[..., Array]] = {
    "set": lax.scatter,
    "add": lax.scatter_add,
    "sum": lax.scatter_add,
    "mean": lax.scatter_add,
    "multiply": lax.scatter_mul,
    "prod": lax.scatter_mul,
    "amax": lax.scatter_max,
    "amin": lax.scatter_min,
}
_BOOL = {"sum": "amax", "add": "amax", "mean": "amin", "multiply": "amin", "prod": "amin"}  # "or", "and"


def scattered(x: Array, start: Array, values: Array, numbers: lax.ScatterDimensionNumbers, how: str) -> Array:
    """lax.scatter_* with bools as bytes and narrow floats summed in float32; positions out of range are dropped."""
    if x.dtype == np.bool_:
        how = _BOOL.get(how, how)
        wide = np.dtype(np.uint8)
    else:
        wide = opmath(x.dtype) if how in ("add", "sum", "mean", "multiply", "prod") else x.dtype
    if all(
        n == 1 or not isinstance(n, int) for n in start.shape[:-1]
    ):  # one window: XLA takes it for a dynamic_update_slice
        values = computed_first(values)
    result = _COMBINE[how](as_dtype(x, wide), start, as_dtype(values, wide), numbers, mode=DROP)
    return as_dtype(result, x.dtype)


def scatter_along(x: Array, index: Array, values: Array, dim: int, how: str) -> Array:
    """x[i, index[i, j, k], k] combined with values[i, j, k] for dim 1; index may be smaller than x elsewhere."""
    if index.size == 0:
        return x
    region = cut_to(x, index.shape, dim)
    others = tuple(d for d in range(x.ndim) if d != dim)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(),
        inserted_window_dims=(dim,),
        scatter_dims_to_operand_dims=(dim,),
        operand_batching_dims=others,
        scatter_indices_batching_dims=others,
    )
    start = lax.reshape(narrowed(index, x.shape[dim]), (*index.shape, 1))
    new = scattered(region, start, values, numbers, how)
    return new if new.shape == x.shape else lax.dynamic_update_slice(x, new, (0,) * x.ndim)


def put_slices(x: Array, index: Array, values: Array, dim: int, how: str) -> Array:
    """x's slices along dim at a vector of indices, combined with values (index's dim in the place of dim)."""
    if index.size == 0 or x.size == 0:
        return x
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(d for d in range(x.ndim) if d != dim),
        inserted_window_dims=(dim,),
        scatter_dims_to_operand_dims=(dim,),
    )
    start = lax.reshape(narrowed(index, x.shape[dim]), (*index.shape, 1))
    return scattered(x, start, values, numbers, how)


def neutral(how: str, dtype: np.dtype) -> Any:
    """What combining leaves unchanged."""
    if how in ("add", "sum", "mean"):
        return 0
    if how in ("multiply", "prod"):
        return 1
    if dtype == np.bool_:
        return how == "amin"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if how == "amax" else np.iinfo(dtype).max
    return -math.inf if how == "amax" else math.inf


def floor_divided(total: Array, count: Array) -> Array:
    """Mean from sum and count: floats divide, integers round down."""
    if is_float(total):
        return as_dtype(
            lax.div(as_dtype(total, opmath(total.dtype)), as_dtype(count, opmath(total.dtype))), total.dtype
        )
    if total.dtype.kind not in "iu":
        return total if total.dtype == np.bool_ else lax.div(total, as_dtype(count, total.dtype))
    count = as_dtype(count, total.dtype)
    quotient = lax.div(total, count)
    if total.dtype.kind == "u":
        return quotient
    short = lax.lt(lax.rem(total, count), constant(0, total))
    return lax.sub(quotient, as_dtype(short, total.dtype))


def combined(put: Callable[[Array, Array, str], Array], x: Array, values: Array, how: str, include_self: bool) -> Array:
    """put(target, values, how), with the old values left out when include_self is False, and means divided."""
    seen = None
    if how == "mean" and x.dtype != np.bool_:
        ones = lax.full(values.shape, 1, np.int64)
        seen = put(lax.full(x.shape, 0, np.int64), ones, "add")
    base = x
    if not include_self:
        touched = put(lax.full(x.shape, False), lax.full(values.shape, True), "set")
        base = lax.select(touched, constant(neutral(how, x.dtype), x), x)
    wide = opmath(x.dtype) if how in ("sum", "mean", "prod") else x.dtype
    result = put(as_dtype(base, wide), as_dtype(values, wide), how)
    if seen is not None:
        count = lax.add(seen, constant(1, seen)) if include_self else lax.max(seen, constant(1, seen))
        result = floor_divided(result, count)
    return as_dtype(result, x.dtype)


def _scatter(self: Array, dim: int, index: Array, values: Array, how: str, include_self: bool = True) -> Checked:
    x, place, values = as_row(self), as_row(index), as_row(values)
    dim = wrap_dim(dim, x.ndim)
    values = lax.slice(values, (0,) * values.ndim, place.shape)

    def put(target: Array, new: Array, how: str) -> Array:
        return scatter_along(target, place, new, dim, how)

    result = put(x, values, how) if how in ("set", "add", "multiply") else combined(put, x, values, how, include_self)
    return Checked(lax.reshape(result, self.shape), outside(place, x.shape[dim]))


@row("scatter.src", checked=True)
def scatter_src(self: Array, dim: int, index: Array, src: Array) -> Checked:
    """self with src written at index along dim."""
    return _scatter(self, dim, index, src, "set")


@row("scatter.value", checked=True)
def scatter_value(self: Array, dim: int, index: Array, value: Any) -> Checked:
    """self with one number written at index along dim."""
    return _scatter(self, dim, index, lax.broadcast(as_dtype(value, self.dtype), index.shape), "set")


@row("scatter_add", checked=True)
def scatter_add(self: Array, dim: int, index: Array, src: Array) -> Checked:
    """self with src added at index along dim."""
    return _scatter(self, dim, index, src, "add")


@row("scatter.reduce", checked=True)
def scatter_reduce_src(self: Array, dim: int, index: Array, src: Array, reduce: str) -> Checked:
    """self with src added to or multiplied into the places at index."""
    return _scatter(self, dim, index, src, reduce)


@row("scatter.value_reduce", checked=True)
def scatter_value_reduce(self: Array, dim: int, index: Array, value: Any, reduce: str) -> Checked:
    """As scatter.reduce with one number."""
    return _scatter(self, dim, index, lax.broadcast(as_dtype(value, self.dtype), index.shape), reduce)


@row("scatter_reduce.two", checked=True)
def scatter_reduce(self: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool = True) -> Checked:
    """sum, prod, mean, amax or amin of what falls on each place."""
    return _scatter(self, dim, index, src, reduce, include_self)


def _index(self: Array, dim: int, index: Array, values: Array, how: str, include_self: bool = True) -> Checked:
    x, place = as_row(self), as_row(index)
    dim = wrap_dim(dim, x.ndim)
    shape = tuple(place.shape[0] if d == dim else n for d, n in enumerate(x.shape))
    values = lax.reshape(values, shape) if values.size == math.prod(shape) else broadcast_to(values, shape)

    def put(target: Array, new: Array, how: str) -> Array:
        return put_slices(target, place, new, dim, how)

    result = put(x, values, how) if how in ("set", "add") else combined(put, x, values, how, include_self)
    return Checked(lax.reshape(result, self.shape), outside(place, x.shape[dim]))


@row("index_add", checked=True)
def index_add(self: Array, dim: int, index: Array, source: Array, alpha: Any = 1) -> Checked:
    """self with alpha * source added to the slices at index."""
    alpha = like(alpha, source)
    scaled = lax.bitwise_and(source, alpha) if self.dtype == np.bool_ else lax.mul(source, alpha)
    return _index(self, dim, index, scaled, "add")


@row("index_copy", checked=True)
def index_copy(self: Array, dim: int, index: Array, source: Array) -> Checked:
    """self with the slices at index replaced."""
    return _index(self, dim, index, source, "set")


@row("index_reduce", checked=True)
def index_reduce(self: Array, dim: int, index: Array, source: Array, reduce: str, include_self: bool = True) -> Checked:
    """prod, mean, amax or amin over the slices that fall on each index."""
    return _index(self, dim, index, source, reduce, include_self)


@row("index_fill.int_Scalar", "index_fill.int_Tensor", checked=True)
def index_fill(self: Array, dim: int, index: Array, value: Any) -> Checked:
    """self with one number in the slices at index; negative indices count from the end."""
    x = as_row(self)
    place = wrapped(as_row(index), x.shape[wrap_dim(dim, x.ndim)])
    return _index(self, dim, place, as_dtype(value, self.dtype), "set")


@row("put", checked=True)
def put(self: Array, index: Array, source: Array, accumulate: bool = False) -> Checked:
    """The flattened array with source written (or added) at index."""
    place = lax.reshape(wrapped(index, self.size), (index.size,))
    flat, values = lax.reshape(self, (self.size,)), lax.reshape(source, (source.size,))
    result = put_slices(flat, place, values, 0, "add" if accumulate else "set")
    return Checked(lax.reshape(result, self.shape), outside(place, self.size))


def put_at(self: Array, indices: Sequence[Array | None], values: Array, accumulate: bool) -> Checked:
    """self with values (broadcast) written or added at self[indices]."""
    if is_lone_mask(indices):
        return put_under(self, indices, values, accumulate)
    indices = expand_masks(indices)
    how = "add" if accumulate else "set"
    if all(i is None for i in indices):
        new = broadcast_to(as_dtype(values, self.dtype), self.shape)
        return Checked(_plain_add(self, new) if accumulate else new, no_bad())
    place = Place(self.shape, indices)
    if self.size == 0 or 0 in place.shape:
        return Checked(self, place.bad)
    spare = max(values.ndim - len(place.shape), 0)
    values = broadcast_to(lax.reshape(values, values.shape[spare:]), place.shape)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=place.window,
        inserted_window_dims=place.dims,
        scatter_dims_to_operand_dims=place.dims,
    )
    return Checked(scattered(self, place.coords, values, numbers, how), place.bad)


def is_lone_mask(indices: Sequence[Array | None]) -> bool:
    """One bool mask and whole dims otherwise: then no size depends on values."""
    given = [i for i in indices if i is not None]
    return len(given) == 1 and given[0].dtype in (np.dtype(np.bool_), np.dtype(np.uint8))


def put_under(self: Array, indices: Sequence[Array | None], values: Array, accumulate: bool) -> Checked:
    """self with values, in order, written or added where a mask over some of the dims holds."""
    front = next(d for d, i in enumerate(indices) if i is not None)
    mask = as_dtype(indices[front], np.bool_)
    middle, back = math.prod(mask.shape), self.shape[front + mask.ndim :]
    lead = self.shape[:front]
    if self.size == 0:
        return Checked(self, no_bad())
    count = values.shape[-1 - len(back)] if values.ndim > len(back) else 1
    values = lax.reshape(values, values.shape[max(values.ndim - 1 - front - len(back), 0) :])
    hits = lax.reshape(mask, (middle,))
    bad: Array = no_bad()
    if count == 1:
        new = broadcast_to(values, (*lead, 1, *back))
        new = lax.broadcast_in_dim(
            lax.reshape(new, (*lead, *back)), (*lead, middle, *back), _but(front, self.ndim - mask.ndim + 1)
        )
    else:
        running = lax.cumsum(as_dtype(hits, np.int64), axis=0)
        bad = lax.ne(lax.index_in_dim(running, middle - 1, 0, False), np.int64(count))
        if count == 0:
            return Checked(self, bad)
        place = lax.clamp(np.int64(0), lax.sub(running, constant(1, running)), np.int64(count - 1))
        new = take_slices(broadcast_to(values, (*lead, count, *back)), place, front)
    new = as_dtype(lax.reshape(new, self.shape), self.dtype)
    where = lax.broadcast_in_dim(mask, self.shape, tuple(range(front, front + mask.ndim)))
    return Checked(lax.select(where, _plain_add(self, new) if accumulate else new, self), bad)


def _but(dim: int, rank: int) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d != dim)


def _plain_add(x: Array, y: Array) -> Array:
    return lax.bitwise_or(x, y) if x.dtype == np.bool_ else lax.add(x, y)


def index_put(self: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False) -> Checked:
    """self with values written at self[indices]; accumulate adds, repeated positions each."""
    return put_at(self, indices, values, accumulate)


for _name in ("index_put", "_unsafe_index_put"):
    add_row(_name, index_put, checked=True)


@row("_index_put_impl", checked=True)
def index_put_impl(
    self: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False, unsafe: bool = False
) -> Checked:
    """The form that index_put_ is built on."""
    return put_at(self, indices, values, accumulate)


@row("_unsafe_masked_index_put_accumulate")
def unsafe_masked_index_put_accumulate(
    self: Array, mask: Array, indices: Sequence[Array | None], values: Array
) -> Array:
    """values added at self[indices] where mask holds."""
    if self.size == 0:
        return self
    clipped = [
        None if i is None else lax.clamp(np.int64(-n), as_dtype(i, np.int64), np.int64(n - 1))
        for i, n in zip(indices, self.shape, strict=False)
    ]
    size = lax.broadcast_shapes(mask.shape, values.shape)
    values, mask = broadcast_to(values, size), broadcast_to(mask, size)
    return put_at(self, clipped, lax.select(mask, values, constant(0, values)), True).value
