"""Special functions with a closed form in jax.lax: error functions, entropies, logarithms of sums and products.

Gamma functions are in special_gamma.py, Bessel functions in special_bessel.py, polynomials in special_polynomials.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, constant, is_complex, isnan
from torch_pjrt.lowerings.complex_functions import FUNCTIONS
from torch_pjrt.ops.registry import Promote, add_row, row

for _name, _fn in {
    "erf": lambda self: lax.erf(self),
    "erfc": lambda self: lax.erfc(self),
    "erfinv": lambda self: lax.erf_inv(self),
}.items():
    add_row(_name, _fn, promote=Promote.INT_TO_FLOAT)


def polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Horner's rule, highest power first."""
    result = constant(coefficients[0], x)
    for c in coefficients[1:]:
        result = lax.add(lax.mul(result, x), constant(c, x))
    return result


def _kind(x: Array, name: str) -> Callable[[Array], Array]:
    return FUNCTIONS[name] if is_complex(x) else getattr(lax, name)


def _log_of_sum(base: float) -> Callable[[Array, Array], Array]:
    scale = math.log(base)

    def log_of_sum(self: Array, other: Array) -> Array:
        left, right = (lax.real(x) if is_complex(x) else x for x in (self, other))
        swap = lax.lt(left, right)
        big, small = lax.select(swap, other, self), lax.select(swap, self, other)
        rest = lax.mul(lax.sub(small, big), constant(scale, big))
        exp, log, log1p = (_kind(big, name) for name in ("exp", "log", "log1p"))
        total = lax.add(big, lax.div(log1p(exp(rest)), constant(scale, big)))
        same = lax.eq(self, other)
        if not is_complex(self):  # two equal infinities: their difference is not a number, their sum is
            endless = lax.bitwise_and(same, lax.eq(lax.abs(self), constant(np.inf, self)))
            return lax.select(endless, self, total)
        endless = lax.bitwise_and(lax.eq(left, right), lax.eq(lax.abs(left), constant(np.inf, left)))
        summed = log(lax.add(exp(self), exp(other)))
        below = lax.bitwise_and(endless, lax.lt(left, constant(0, left)))
        return lax.select(below, other, lax.select(endless, summed, total))

    return log_of_sum


add_row("logaddexp", _log_of_sum(math.e), promote=Promote.INT_TO_FLOAT)
add_row("logaddexp2", _log_of_sum(2), promote=Promote.INT_TO_FLOAT)


def _product_with_log(log: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    def product(self: Array, other: Array) -> Array:
        zero = constant(0, self)
        result = lax.select(lax.eq(self, zero), zero, lax.mul(self, log(other)))
        return lax.select(isnan(other), other, result)

    return product


for _name in ("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other"):
    add_row(_name, _product_with_log(lax.log), promote=Promote.INT_TO_FLOAT)
for _name in ("special_xlog1py", "special_xlog1py.self_scalar", "special_xlog1py.other_scalar"):
    add_row(_name, _product_with_log(lax.log1p), promote=Promote.INT_TO_FLOAT)


@row("special_entr", promote=Promote.INT_TO_FLOAT)
def entr(self: Array) -> Array:
    """-x * log(x); 0 at 0, minus infinity below."""
    zero = constant(0, self)
    result = lax.neg(lax.mul(self, lax.log(self)))
    result = lax.select(lax.eq(self, zero), zero, result)
    return lax.select(lax.lt(self, zero), constant(-np.inf, self), result)


@row("special_erfcx", promote=Promote.INT_TO_FLOAT)
def erfcx(self: Array) -> Array:
    """exp(x^2) * erfc(x), by a continued fraction (Lentz, backwards) where the product would underflow."""
    squared = lax.mul(self, self)
    plain = lax.mul(lax.exp(squared), lax.erfc(self))
    far = lax.max(self, constant(2, self))
    tail = far
    for k in range(60, 0, -1):
        tail = lax.add(far, lax.div(constant(k / 2, self), tail))
    tail = lax.div(constant(1 / math.sqrt(math.pi), self), tail)
    return lax.select(lax.gt(self, constant(2, self)), tail, plain)


@row("special_log_ndtr", promote=Promote.INT_TO_FLOAT)
def log_ndtr(self: Array) -> Array:
    """Log of the normal distribution function; through erfcx on the far left, where the function itself underflows."""
    scaled = lax.mul(self, constant(math.sqrt(0.5), self))
    half, minus_one = constant(0.5, self), constant(-1, self)
    left = lax.min(scaled, minus_one)
    low = lax.sub(lax.log(lax.mul(half, erfcx(lax.neg(left)))), lax.mul(left, left))
    high = lax.log1p(lax.neg(lax.mul(half, lax.erfc(lax.max(scaled, minus_one)))))
    return lax.select(lax.lt(self, minus_one), low, high)


@row("special_ndtri", promote=Promote.INT_TO_FLOAT)
def ndtri(self: Array) -> Array:
    """Inverse of the normal distribution function: Acklam's rational start, two Newton steps on the smaller tail."""
    one, half = constant(1, self), constant(0.5, self)
    right = lax.gt(self, half)
    tail = lax.select(right, lax.sub(one, self), self)
    radius = lax.sqrt(lax.mul(constant(-2, self), lax.log(tail)))
    a = (-39.69683028665376, 220.9460984245205, -275.9285104469687, 138.3577518672690, -30.66479806614716,
         2.506628277459239)  # fmt: skip
    b = (-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572, 1.0)
    c = (-0.007784894002430293, -0.3223964580411365, -2.400758277161838, -2.549732539343734, 4.374664141464968,
         2.938163982698783)  # fmt: skip
    d = (0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0)
    middle = lax.sub(tail, half)
    square = lax.mul(middle, middle)
    x_middle = lax.div(lax.mul(polynomial(square, a), middle), polynomial(square, b))
    x = lax.select(
        lax.lt(tail, constant(0.02425, self)), lax.div(polynomial(radius, c), polynomial(radius, d)), x_middle
    )
    for _ in range(2):  # f(x) = log ndtr(x) - log p; f' = pdf / cdf = sqrt(2 / pi) / erfcx(-x / sqrt 2)
        z = lax.mul(x, constant(-math.sqrt(0.5), x))
        scaled = erfcx(z)
        log_cdf = lax.sub(lax.log(lax.mul(half, scaled)), lax.mul(z, z))
        step = lax.mul(lax.sub(log_cdf, lax.log(tail)), lax.mul(scaled, constant(math.sqrt(math.pi / 2), x)))
        x = lax.sub(x, step)
    x = lax.select(right, lax.neg(x), x)
    x = lax.select(lax.eq(self, constant(0, self)), constant(-np.inf, self), x)
    x = lax.select(lax.eq(self, one), constant(np.inf, self), x)
    outside = lax.bitwise_or(lax.lt(self, constant(0, self)), lax.gt(self, one))
    return lax.select(lax.bitwise_or(outside, isnan(self)), constant(np.nan, self), x)
