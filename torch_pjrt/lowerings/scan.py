"""Running reductions along one dim: cumulative sum, product, extrema with positions, log-sum-exp.

Narrow floats are accumulated in float32 and cast back; integers in int64, as torch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, constant, is_complex, is_float, opmath, wrap_dim
from torch_pjrt.lowerings.reduction import Out, at_place, cast, signed_places
from torch_pjrt.ops.registry import add_row, row


def _sum_rows(name: str, scan: Callable[..., Array]) -> None:
    def cumulative(self: Array, dim: int, out: Out, dtype: Any = None) -> Array:
        want = out[0][1]
        x = cast(self, want)
        if x.ndim == 0 or x.size == 0:
            return x
        return as_dtype(scan(as_dtype(x, opmath(want)), axis=wrap_dim(dim, x.ndim)), want)

    add_row(name, cumulative)


_sum_rows("cumsum", lax.cumsum)
_sum_rows("cumprod", lax.cumprod)


def _extremum_rows(name: str, scan: Callable[..., Array]) -> None:
    def cumulative(self: Array, dim: int) -> tuple[Array, Array]:
        if self.ndim == 0 or self.size == 0:
            return self, np.zeros(self.shape, np.int64)
        axis = wrap_dim(dim, self.ndim)
        x = as_dtype(self, np.uint8) if self.dtype == np.bool_ else self
        value = scan(x, axis=axis)
        hit = lax.eq(x, value)
        if is_float(x):
            hit = lax.bitwise_or(hit, lax.ne(x, x))
        where = signed_places(x, axis)
        last = lax.cummax(lax.select(hit, where, constant(0, where)), axis=axis)
        value, last = at_place(value, last)
        return as_dtype(value, self.dtype), last

    add_row(name, cumulative)


_extremum_rows("cummax", lax.cummax)
_extremum_rows("cummin", lax.cummin)


def _log_add(a: Array, b: Array) -> Array:
    """log(exp(a) + exp(b)) for complex numbers."""
    swap = lax.lt(lax.real(a), lax.real(b))
    high, low = lax.select(swap, b, a), lax.select(swap, a, b)
    grown = lax.add(high, lax.log1p(lax.exp(lax.sub(low, high))))
    empty = lax.eq(lax.real(high), constant(-math.inf, lax.real(high)))
    return lax.select(empty, high, grown)


@row("logcumsumexp", "_logcumsumexp")
def logcumsumexp(self: Array, dim: int) -> Array:
    """Running log(sum(exp(x)))."""
    if self.ndim == 0 or self.size == 0:
        return self
    axis = wrap_dim(dim, self.ndim)
    if is_complex(self):
        return lax.associative_scan(_log_add, self, axis=axis)
    return as_dtype(lax.cumlogsumexp(as_dtype(self, opmath(self.dtype)), axis=axis), self.dtype)
