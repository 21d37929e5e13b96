"""Reductions: sums, products, means, extrema, truth values, spread and norms over any dims.

Values that come with a position (max.dim, argmax) are here too; order statistics (median, kthvalue) are in sort.py and
running reductions in scan.py. Narrow floats are summed in float32. Results take the shape and dtype that torch says.
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
    computed_once,
    constant,
    iota,
    is_complex,
    is_float,
    keep_dims,
    like,
    opmath,
    signbit,
    wrap_dim,
    wrap_dims,
)
from torch_pjrt.lowerings.complex_functions import absolute as length
from torch_pjrt.ops.registry import add_row, row

Out = tuple[tuple[tuple[int, ...], np.dtype], ...]
Dims = Sequence[int] | int | None


def cast(x: Array, dtype: np.dtype) -> Array:
    """Convert as torch does: anything to bool is `!= 0`, complex to real drops the imaginary part."""
    if x.dtype == dtype:
        return x
    if dtype == np.bool_:
        return lax.ne(x, constant(0, x))
    return as_dtype(lax.real(x) if is_complex(x) and dtype.kind != "c" else x, dtype)


def reduced(x: Array, dims: tuple[int, ...], fold: Callable[..., Array], size: Sequence[int]) -> Array:
    """fold (a lax.reduce_*) over dims, in the shape that torch says."""
    return lax.reshape(fold(x, dims) if x.ndim else x, tuple(size))


def count_of(x: Array, dims: tuple[int, ...]) -> int:
    """How many elements each result is made of."""
    return math.prod(x.shape[d] for d in dims)


def add_up(x: Array, dims: tuple[int, ...], size: Sequence[int]) -> Array:
    """Sum over dims. Bools count as "or"."""
    return reduced(x, dims, lax.reduce_or if x.dtype == np.bool_ else lax.reduce_sum, size)


def largest(x: Array, dims: tuple[int, ...], size: Sequence[int]) -> Array:
    """Maximum over dims; NaN wins."""
    return reduced(x, dims, lax.reduce_or if x.dtype == np.bool_ else lax.reduce_max, size)


def smallest(x: Array, dims: tuple[int, ...], size: Sequence[int]) -> Array:
    """Minimum over dims; NaN wins."""
    return reduced(x, dims, lax.reduce_and if x.dtype == np.bool_ else lax.reduce_min, size)


@row("sum.dim_IntList", "sum")
def sum_(self: Array, out: Out, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Sum; integers and bools in int64."""
    size, want = out[0]
    x = cast(self, want)
    return as_dtype(add_up(as_dtype(x, opmath(want)), wrap_dims(dim, self.ndim), size), want)


@row("nansum")
def nansum(self: Array, out: Out, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Sum with NaN taken as zero; a complex number is NaN if a part is."""
    if self.dtype.kind not in "biu":
        self = lax.select(lax.ne(self, self), constant(0, self), self)
    return sum_(self, out, dim)


@row("mean.dim", "mean")
def mean(self: Array, out: Out, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Mean; NaN of nothing."""
    size, want = out[0]
    x = as_dtype(cast(self, want), opmath(want))
    dims = wrap_dims(dim, self.ndim)
    total = add_up(x, dims, size)
    return as_dtype(lax.div(total, constant(count_of(x, dims), total)), want)


@row("prod.dim_int", "prod")
def prod(self: Array, out: Out, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Product; integers and bools in int64."""
    size, want = out[0]
    x = as_dtype(cast(self, want), opmath(want))
    fold = lax.reduce_and if want == np.bool_ else lax.reduce_prod
    return as_dtype(reduced(x, wrap_dims(dim, self.ndim), fold, size), want)


@row("amax", "max")
def amax(self: Array, out: Out, dim: Dims = None, keepdim: bool = False) -> Array:
    """Maximum over dims."""
    return largest(computed_once(self), wrap_dims(dim, self.ndim), out[0][0])


@row("amin", "min")
def amin(self: Array, out: Out, dim: Dims = None, keepdim: bool = False) -> Array:
    """Minimum over dims."""
    return smallest(computed_once(self), wrap_dims(dim, self.ndim), out[0][0])


@row("aminmax", "_aminmax", "_aminmax.dim")
def aminmax(self: Array, out: Out, dim: Dims = None, keepdim: bool = False) -> tuple[Array, Array]:
    """Minimum and maximum."""
    return amin(self, out, dim), amax(self, out, dim)


def signed_places(x: Array, dim: int) -> Array:
    """Positions along dim; of floats twice the position, plus 1 where x has a minus sign (at_place takes them apart)."""
    if not is_float(x):
        return iota(x.shape, dim, np.int32 if x.shape[dim] < 2**31 else np.int64)
    where = iota(x.shape, dim, np.int32 if x.shape[dim] < 2**30 else np.int64)
    return lax.add(lax.add(where, where), as_dtype(signbit(x), where.dtype))


def at_place(value: Array, place: Array) -> tuple[Array, Array]:
    """An extremum and its position, int64, from one of signed_places: a zero has the sign of the zero that is there."""
    if not is_float(value):
        return value, as_dtype(place, np.int64)
    zero = constant(0, value)
    minus = lax.eq(lax.bitwise_and(place, constant(1, place)), constant(1, place))
    value = lax.select(lax.eq(value, zero), lax.select(minus, lax.neg(zero), zero), value)
    return value, as_dtype(lax.shift_right_logical(place, constant(1, place)), np.int64)


def first_at(x: Array, value: Array, dim: int) -> tuple[Array, Array]:
    """value (an extremum along dim, that dim dropped) and the first position that holds it, or NaN if value is NaN."""
    hit = lax.eq(x, broadcast_to(keep_dims(value, (dim,), x.shape), x.shape))
    if is_float(x):
        hit = lax.bitwise_or(hit, lax.ne(x, x))
    where = signed_places(x, dim)
    last = max(x.shape[dim] - 1, 0) * (2 if is_float(x) else 1)
    return at_place(value, lax.reduce_min(lax.select(hit, where, constant(last, where)), (dim,)))


def _with_position(x: Array, dim: int, pick: Callable[..., Array]) -> tuple[Array, Array]:
    """Extremum and its first position along dim, the dim dropped. 0-d arrays count as size 1."""
    if x.ndim == 0:
        return x, np.zeros((), np.int64)
    shape, x = x.shape[:dim] + x.shape[dim + 1 :], computed_once(x)
    value = pick(x, (dim,), shape)
    return first_at(x, value, dim)


def _extremum_rows(name: str, pick: Callable[..., Array]) -> None:
    def with_dim(self: Array, dim: int, out: Out, keepdim: bool = False) -> tuple[Array, Array]:
        value, index = _with_position(self, wrap_dim(dim, self.ndim), pick)
        return lax.reshape(value, out[0][0]), lax.reshape(index, out[1][0])

    def position(self: Array, out: Out, dim: int | None = None, keepdim: bool = False) -> Array:
        if dim is None:
            self, dim = lax.reshape(self, (self.size,)), 0
        return lax.reshape(_with_position(self, wrap_dim(dim, self.ndim), pick)[1], out[0][0])

    add_row(f"{name}.dim", with_dim)
    add_row(f"arg{name}", position)


_extremum_rows("max", largest)
_extremum_rows("min", smallest)


def _truth_rows(name: str, fold: Callable[..., Array]) -> None:
    def truth(self: Array, out: Out, dim: Dims = None, keepdim: bool = False) -> Array:
        # dim=[] reduces nothing in .dims, unlike everywhere else
        dims = () if dim is not None and not isinstance(dim, int) and not len(dim) else wrap_dims(dim, self.ndim)
        return as_dtype(reduced(cast(self, np.dtype(np.bool_)), dims, fold, out[0][0]), out[0][1])

    for overload in ("default", "dim", "dims"):
        add_row(f"{name}.{overload}", truth)


_truth_rows("all", lax.reduce_and)
_truth_rows("any", lax.reduce_or)


@row("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(self: Array, out: Out, dim: Dims = None) -> Array:
    """How many elements are not zero."""
    hits = as_dtype(lax.ne(self, constant(0, self)), np.int64)
    return add_up(hits, wrap_dims(dim, self.ndim), out[0][0])


def moments(x: Array, dims: tuple[int, ...], correction: Array | None) -> tuple[Array, Array]:
    """Variance (real) and mean over dims, the dims kept as size 1."""
    count = count_of(x, dims)
    kept = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    total = add_up(x, dims, kept)
    center = lax.div(total, constant(count, total))
    away = lax.sub(x, broadcast_to(center, x.shape))
    square = lax.square(away)
    if is_complex(x):
        square = lax.add(lax.square(lax.real(away)), lax.square(lax.imag(away)))
    spread = add_up(square, dims, kept)
    if correction is None:
        divisor = constant(max(count - 1, 0), spread)
    else:
        divisor = lax.max(lax.sub(constant(count, spread), like(correction, spread)), constant(0, spread))
    return lax.div(spread, divisor), center


def _spread_rows(name: str, root: bool) -> None:
    def spread(self: Array, out: Out, dim: Dims = None, correction: Any = None, keepdim: bool = False) -> Any:
        wide = as_dtype(self, opmath(self.dtype))
        value, center = moments(wide, wrap_dims(dim, self.ndim), correction)
        results = (lax.sqrt(value) if root else value, center)[: len(out)]
        return tuple(as_dtype(lax.reshape(r, size), dtype) for r, (size, dtype) in zip(results, out, strict=True))

    add_row(f"{name}.correction", spread)


for _name in ("var", "std", "var_mean", "std_mean"):
    _spread_rows(_name, _name.startswith("std"))


def norm_over(x: Array, p: float, dims: tuple[int, ...], size: Sequence[int]) -> Array:
    """The p-norm over dims; p may be 0 and +-inf. Real for complex x.

    Its gradient looks for the elements as long as the norm, so lengths are computed as the row of abs computes them.
    """
    size_of = length(x) if is_complex(x) else lax.abs(x)
    if p == math.inf:
        return largest(computed_once(size_of), dims, size)
    if p == -math.inf:
        return smallest(computed_once(size_of), dims, size)
    if p == 0:
        return add_up(as_dtype(lax.ne(size_of, constant(0, size_of)), size_of.dtype), dims, size)
    if p == 1:
        return add_up(size_of, dims, size)
    if p == 2:
        square = lax.square(x)
        if is_complex(x):
            square = lax.add(lax.square(lax.real(x)), lax.square(lax.imag(x)))
        return lax.sqrt(add_up(square, dims, size))
    total = add_up(lax.pow(size_of, constant(p, size_of)), dims, size)
    return lax.pow(total, constant(1.0 / p, total))


def _norm(x: Array, p: Any, dim: Dims, dtype: Any, out: Out) -> Array:
    size, want = out[0]
    if dtype is not None:
        x = cast(x, dtype)
    x = as_dtype(x, opmath(x.dtype))
    return as_dtype(norm_over(x, 2.0 if p is None else float(p), wrap_dims(dim, x.ndim), size), want)


@row("linalg_vector_norm", static=("ord",))
def linalg_vector_norm(
    self: Array, out: Out, ord: Any = 2, dim: Dims = None, keepdim: bool = False, dtype: Any = None
) -> Array:
    """Vector norm over dims."""
    return _norm(self, ord, dim, dtype, out)


@row("norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dtype", static=("p",))
def norm(self: Array, out: Out, p: Any = 2, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Vector norm over dims; p=None is 2."""
    return _norm(self, p, dim, dtype, out)


@row("dist", static=("p",))
def dist(self: Array, other: Array, out: Out, p: Any = 2) -> Array:
    """Norm of the difference."""
    size, want = out[0]
    shape = lax.broadcast_shapes(self.shape, other.shape)
    wide = opmath(np.promote_types(self.dtype, other.dtype) if self.dtype != other.dtype else self.dtype)
    away = lax.sub(broadcast_to(as_dtype(self, wide), shape), broadcast_to(as_dtype(other, wide), shape))
    return as_dtype(norm_over(away, float(p), tuple(range(len(shape))), size), want)


@row("logsumexp")
def logsumexp(self: Array, out: Out, dim: Dims = None, keepdim: bool = False) -> Array:
    """log(sum(exp(x))), safe for large and infinite x."""
    size, want = out[0]
    x = as_dtype(as_dtype(self, want), opmath(want))
    dims = wrap_dims(dim, x.ndim)
    if x.size == 0:
        total = add_up(x, dims, size)
        return as_dtype(lax.log(total), want)
    real = lax.real(x) if is_complex(x) else x
    kept = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    top = largest(real, dims, kept)
    top = lax.select(lax.eq(lax.abs(top), constant(math.inf, top)), constant(0, top), top)
    shifted = lax.sub(x, as_dtype(broadcast_to(top, x.shape), x.dtype))
    total = lax.log(add_up(lax.exp(shifted), dims, size))
    return as_dtype(lax.add(total, as_dtype(lax.reshape(top, size), total.dtype)), want)


@row("trace")
def trace(self: Array, out: Out) -> Array:
    """Sum of the diagonal; integers in int64."""
    want = out[0][1]
    on = lax.eq(iota(self.shape, 0), iota(self.shape, 1))
    x = as_dtype(cast(self, want), opmath(want))
    return as_dtype(add_up(lax.select(on, x, constant(0, x)), (0, 1), ()), want)
