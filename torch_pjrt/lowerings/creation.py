"""Arrays from nothing: constants, ranges, triangles; and copies with a change of dtype.

Factories have no tensor operands; `out` tells the shape and dtype that torch wants. Random factories are in random.py.
"""

from __future__ import annotations

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, iota, is_float, opmath
from torch_pjrt.ops.registry import Promote, add_row, row

Out = tuple[tuple[tuple[int, ...], np.dtype], ...]


# Constants. `self`, where there is one, only gives shape and dtype.
@row("full", promote=Promote.DEFAULT)
def full(size: tuple[int, ...], fill_value: Array, dtype: np.dtype | None, out: Out) -> Array:
    """fill_value everywhere."""
    return broadcast_to(fill_value, out[0][0])


@row("full_like", promote=Promote.DEFAULT, keep=("self",), broadcast=False)
def full_like(self: Array, fill_value: Array, dtype: np.dtype | None, out: Out) -> Array:
    """fill_value everywhere."""
    return broadcast_to(fill_value, out[0][0])


@row("new_full", promote=Promote.DEFAULT, keep=("self",), broadcast=False)
def new_full(self: Array, size: tuple[int, ...], fill_value: Array, dtype: np.dtype | None, out: Out) -> Array:
    """fill_value everywhere."""
    return broadcast_to(fill_value, out[0][0])


@row("scalar_tensor", promote=Promote.DEFAULT)
def scalar_tensor(s: Array, dtype: np.dtype | None) -> Array:
    """A 0-d array of one number."""
    return s


@row("fill.Scalar", "fill.Tensor", promote=Promote.DEFAULT, keep=("self",), broadcast=False)
def fill(self: Array, value: Array, out: Out) -> Array:
    """value in self's shape and dtype."""
    return broadcast_to(value, out[0][0])


def _constant_rows(name: str, value: int) -> None:
    """The ways to write one constant: by size, like a tensor, new from a tensor."""

    def by_size(size: tuple[int, ...], dtype: np.dtype | None, out: Out) -> Array:
        return lax.full(*_shape_value_dtype(out, value))

    def by_like(self: Array, dtype: np.dtype | None, out: Out) -> Array:
        return lax.full(*_shape_value_dtype(out, value))

    def by_new(self: Array, size: tuple[int, ...], dtype: np.dtype | None, out: Out) -> Array:
        return lax.full(*_shape_value_dtype(out, value))

    by_size_names = {"empty": ("empty.memory_format",), "zeros": ("zeros", "_efficientzerotensor")}.get(name, (name,))
    for by_size_name in by_size_names:
        add_row(by_size_name, by_size)
    add_row(f"{name}_like", by_like)
    add_row(f"new_{name}", by_new)


def _shape_value_dtype(out: Out, value: int) -> tuple[tuple[int, ...], int, np.dtype]:
    return out[0][0], value, out[0][1]


for _name, _value in {"zeros": 0, "ones": 1, "empty": 0}.items():
    _constant_rows(_name, _value)


@row("empty_strided")
def empty_strided(size: tuple[int, ...], stride: tuple[int, ...], dtype: np.dtype | None, out: Out) -> Array:
    """Zeros: nothing on the device is left uninitialised."""
    return lax.full(*_shape_value_dtype(out, 0))


@row("zero")
def zero(self: Array) -> Array:
    """Zeros in self's shape and dtype."""
    return lax.full_like(self, 0)


# Ranges. The numbers of arange decide its length, so they are in the key; those of linspace are operands.
def _arange(start: float, step: float, out: Out) -> Array:
    (size,), dtype = out[0]
    if not is_float(lax.full((), 0, dtype)):
        index = iota((size,), 0, np.int64)
        return as_dtype(lax.add(lax.mul(index, _filled(step, index)), _filled(start, index)), dtype)
    exact = (
        all(isinstance(n, (int, float)) for n in (size, start, step))
        and float(start).is_integer()
        and float(step).is_integer()
        and abs(start) + abs(step) * size < 2**24
    )
    work = np.float32 if exact and dtype != np.float64 else np.float64
    index = lax.convert_element_type(iota((size,), 0, np.int32 if exact else np.int64), work)
    return as_dtype(lax.add(lax.mul(index, _filled(step, index)), _filled(start, index)), dtype)


def _filled(number: float, x: Array) -> Array:
    """A number, which may be a symbolic size of jax.export, as an array of x's shape and dtype."""
    if isinstance(number, (int, float)):
        return lax.full_like(x, number if is_float(x) else int(number))
    return as_dtype(lax.full(x.shape, number, np.int64), x.dtype)


@row("arange", static=("end",))
def arange(end: float, dtype: np.dtype | None, out: Out) -> Array:
    """0, 1, ... below end."""
    return _arange(0, 1, out)


@row("arange.start", static=("start", "end"))
def arange_start(start: float, end: float, dtype: np.dtype | None, out: Out) -> Array:
    """start, start + 1, ... below end."""
    return _arange(start, 1, out)


@row("arange.start_step", static=("start", "end", "step"))
def arange_step(start: float, end: float, step: float, dtype: np.dtype | None, out: Out) -> Array:
    """start, start + step, ... before end."""
    return _arange(start, step, out)


add_row("range", arange_start, static=("start", "end"))
add_row("range.step", arange_step, static=("start", "end", "step"))


def _evenly(start: Array, end: Array, steps: int, dtype: np.dtype, work: np.dtype) -> Array:
    """steps numbers from start to end, both included, computed from the nearer end as torch does."""
    if dtype.kind in "iu":  # torch reads the ends in the result's dtype first
        start, end = (as_dtype(as_dtype(x, dtype), work) for x in (start, end))
    start, end = (broadcast_to(as_dtype(x, work), (steps,)) for x in (start, end))
    index = iota((steps,), 0, np.int32)
    # XLA would multiply by the rounded inverse of a constant, which misses integers: -49 * (1 / 49) > -1
    intervals = lax.optimization_barrier(_at_least_one(steps - 1, start))
    step = lax.div(lax.sub(end, start), intervals)
    back = lax.sub(lax.full(index.shape, steps - 1, index.dtype), index)
    low = lax.add(start, lax.mul(step, as_dtype(index, work)))
    high = lax.sub(end, lax.mul(step, as_dtype(back, work)))
    return lax.select(lax.lt(index, _at_least_one(steps // 2, index)), low, high)


def _at_least_one(number: int, x: Array) -> Array:
    """max(number, 1), which may be a symbolic size of jax.export, as an array of x's shape and dtype."""
    if isinstance(number, int):
        return lax.full_like(x, max(number, 1))
    return as_dtype(lax.max(lax.full(x.shape, number, np.int32), np.int32(1)), x.dtype)


def _work(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float64) if dtype.kind in "iub" else opmath(dtype)


# The same operators for an open number of points, which ATen's schemas have as a plain int (export/open_calls.py).
OPEN_SCHEMAS = {
    "linspace": "(Tensor start, Tensor end, SymInt steps, *, ScalarType? dtype=None) -> Tensor",
    "logspace": "(Tensor start, Tensor end, SymInt steps, Tensor base, *, ScalarType? dtype=None) -> Tensor",
}


@row("linspace", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor", "pjrt::linspace")
def linspace(start: Array, end: Array, steps: int, dtype: np.dtype | None, out: Out) -> Array:
    """steps evenly spaced numbers from start to end, both included."""
    want = out[0][1]
    return as_dtype(_evenly(start, end, steps, want, _work(want)), want)


@row("logspace", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor", "pjrt::logspace")
def logspace(start: Array, end: Array, steps: int, base: Array, dtype: np.dtype | None, out: Out) -> Array:
    """base ** linspace(start, end, steps)."""
    want = out[0][1]
    powers = _evenly(start, end, steps, want, _work(want))
    result = lax.pow(broadcast_to(as_dtype(base, powers.dtype), (steps,)), powers)
    return as_dtype(as_dtype(result, np.int64) if want.kind in "iu" else result, want)  # wraps, as on the CPU


# Triangles.
def _below(shape: tuple[int, ...], diagonal: int) -> Array:
    """True where column - row <= diagonal, over the last two dims."""
    rows, columns = (iota(shape[-2:], d, np.int64) for d in (0, 1))
    mask = lax.le(lax.sub(columns, rows), lax.full_like(rows, diagonal))
    return broadcast_to(mask, shape)


@row("tril")
def tril(self: Array, diagonal: int) -> Array:
    """The part on and below a diagonal, zeros above."""
    return lax.select(_below(self.shape, diagonal), self, lax.full_like(self, 0))


@row("triu")
def triu(self: Array, diagonal: int) -> Array:
    """The part on and above a diagonal, zeros below."""
    return lax.select(_below(self.shape, diagonal - 1), lax.full_like(self, 0), self)


@row("eye")
def eye(n: int, dtype: np.dtype | None, out: Out) -> Array:
    """Ones on the diagonal."""
    rows, columns = (iota(out[0][0], d, np.int32) for d in (0, 1))
    return as_dtype(lax.eq(rows, columns), out[0][1])


@row("eye.m")
def eye_m(n: int, m: int, dtype: np.dtype | None, out: Out) -> Array:
    """Ones on the diagonal of an n x m matrix."""
    return eye(n, dtype, out)


def _triangle(first: np.ndarray, count: np.ndarray, out: Out) -> Array:
    """(row, column) of the cells when row r holds columns first[r] ... first[r] + count[r] - 1."""
    total = out[0][0][1]
    if not total:
        return lax.full(*_shape_value_dtype(out, 0))
    starts = np.cumsum(count) - count
    marks = lax.full((total,), 0, np.int64).at[starts].add(np.int64(1), mode="drop")
    rows = lax.sub(lax.cumsum(marks), lax.full((total,), 1, np.int64))
    shift = lax.convert_element_type(first - starts, np.int64)
    columns = lax.add(iota((total,), 0, np.int64), shift.at[rows].get(mode="promise_in_bounds"))
    return as_dtype(lax.concatenate([x.reshape(1, total) for x in (rows, columns)], 0), out[0][1])


@row("tril_indices")
def tril_indices(row: int, col: int, offset: int, dtype: np.dtype | None, out: Out) -> Array:
    """Indices of the lower triangle, row by row."""
    count = np.clip(np.arange(row) + offset + 1, 0, col)
    return _triangle(np.zeros_like(count), count, out)


@row("triu_indices")
def triu_indices(row: int, col: int, offset: int, dtype: np.dtype | None, out: Out) -> Array:
    """Indices of the upper triangle, row by row."""
    first = np.clip(np.arange(row) + offset, 0, col)
    return _triangle(first, col - first, out)


# Copies. The evaluator casts the result to the dtype that torch says.
@row("_to_copy", promote=Promote.DEFAULT)
def to_copy(self: Array, dtype: np.dtype | None) -> Array:
    """self in another dtype."""
    return self


@row("copy", promote=Promote.DEFAULT, keep=("self",))
def copy(self: Array, src: Array) -> Array:
    """src in self's shape and dtype."""
    return src


@row("clone", "lift", "lift_fresh_copy")
def clone(self: Array) -> Array:
    """self: values are immutable, so a copy is the same value."""
    return self
