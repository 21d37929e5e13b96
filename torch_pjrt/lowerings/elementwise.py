"""Arithmetic on equal-shaped arrays: sums, products, quotients, remainders, powers, extremes.

Rows here promote and broadcast, so every array (and every Scalar) arrives with one shape and one dtype. One-argument
functions are in elementwise_unary.py, integers and bits in integer.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, constant, is_complex, isnan, signbit
from torch_pjrt.lowerings.complex_functions import divide, power
from torch_pjrt.lowerings.elementwise_unary import Out, integer_power, static_power, trunc
from torch_pjrt.ops.registry import Promote, add_row, row


@row("add.Tensor", "add.Scalar", promote=Promote.DEFAULT)
def add(self: Array, other: Array, alpha: Array) -> Array:
    """self + alpha * other; logical or for bools."""
    if self.dtype == bool:
        return lax.bitwise_or(self, lax.bitwise_and(alpha, other))
    return lax.add(self, lax.mul(alpha, other))


@row("sub.Tensor", "sub.Scalar", promote=Promote.DEFAULT)
def sub(self: Array, other: Array, alpha: Array) -> Array:
    """self - alpha * other."""
    return lax.sub(self, lax.mul(alpha, other))


@row("rsub.Tensor", "rsub.Scalar", promote=Promote.DEFAULT)
def rsub(self: Array, other: Array, alpha: Array) -> Array:
    """other - alpha * self."""
    return lax.sub(other, lax.mul(alpha, self))


@row("mul.Tensor", "mul.Scalar", promote=Promote.DEFAULT)
def mul(self: Array, other: Array) -> Array:
    """self * other; logical and for bools."""
    return lax.bitwise_and(self, other) if self.dtype == bool else lax.mul(self, other)


@row("div.Tensor", "div.Scalar", promote=Promote.INT_TO_FLOAT)
def div(self: Array, other: Array) -> Array:
    """True division."""
    return divide(self, other) if is_complex(self) else lax.div(self, other)


@row("div.Tensor_mode", "div.Scalar_mode", promote=Promote.DEFAULT)
def div_mode(self: Array, other: Array, rounding_mode: str | None, out: Out) -> Array:
    """Division, rounded towards zero ("trunc") or minus infinity ("floor")."""
    if rounding_mode is None:
        return div(self, other)
    if self.dtype == bool:
        self, other = lax.convert_element_type(self, np.uint8), lax.convert_element_type(other, np.uint8)
    if rounding_mode == "floor":
        return floor_divide(self, other)
    if self.dtype.kind in "iu":
        return lax.div(self, other)
    quotient = lax.div(
        self, lax.optimization_barrier(other)
    )  # else XLA may multiply by 1 / other, one ulp below a whole
    narrow = {"bfloat16": (8, 7), "float16": (5, 10)}.get(out[0][1].name)  # torch rounds the quotient before it cuts
    return trunc(lax.reduce_precision(quotient, *narrow) if narrow else quotient)


def _crosses(remainder: Array, other: Array) -> Array:
    """Whether a truncated remainder is non-zero and has not the divisor's sign."""
    zero = constant(0, other)
    return lax.bitwise_and(lax.ne(remainder, zero), lax.ne(lax.lt(remainder, zero), lax.lt(other, zero)))


@row("floor_divide", "floor_divide.Scalar", promote=Promote.DEFAULT)
def floor_divide(self: Array, other: Array) -> Array:
    """Division rounded to minus infinity; floats by way of the remainder, so that x == q * y + x % y."""
    if self.dtype == bool:
        return lax.bitwise_and(self, other)
    if self.dtype.kind == "u":
        return lax.div(self, other)
    rest = lax.rem(self, other)
    one = constant(1, self)
    if self.dtype.kind == "i":
        quotient = lax.div(self, other)
        return lax.select(_crosses(rest, other), lax.sub(quotient, one), quotient)
    zero, plain = constant(0, self), lax.div(self, other)
    exact = lax.div(lax.sub(self, rest), other)
    exact = lax.select(_crosses(rest, other), lax.sub(exact, one), exact)
    floor = lax.floor(exact)
    floor = lax.select(lax.gt(lax.sub(exact, floor), constant(0.5, self)), lax.add(floor, one), floor)
    floor = lax.select(lax.ne(exact, zero), floor, lax.mul(lax.sign(plain), zero))
    return lax.select(lax.eq(other, zero), plain, floor)


@row("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor", promote=Promote.DEFAULT)
def remainder(self: Array, other: Array) -> Array:
    """The remainder with the divisor's sign (Python's %)."""
    if self.dtype == bool:
        return lax.bitwise_and(self, lax.bitwise_not(other))
    rest = lax.rem(self, other)
    return rest if self.dtype.kind == "u" else lax.select(_crosses(rest, other), lax.add(rest, other), rest)


@row("fmod.Tensor", "fmod.Scalar", promote=Promote.DEFAULT)
def fmod(self: Array, other: Array) -> Array:
    """The remainder with the dividend's sign (C's fmod)."""
    return lax.bitwise_and(self, lax.bitwise_not(other)) if self.dtype == bool else lax.rem(self, other)


@row("pow.Tensor_Scalar", promote=Promote.DEFAULT, static=("exponent",))
def pow_scalar(self: Array, exponent: complex) -> Array:
    """self ** number. The number is in the key, so that squares and roots cost what they should."""
    return static_power(self, exponent)


@row("pow.Tensor_Tensor", "pow.Scalar", promote=Promote.DEFAULT)
def pow_tensor(self: Array, exponent: Array) -> Array:
    """self ** exponent, element by element."""
    if self.dtype == bool:
        return lax.bitwise_or(self, lax.bitwise_not(exponent))
    if self.dtype.kind in "iu":
        return integer_power(self, exponent)
    return power(self, exponent) if is_complex(self) else lax.pow(self, exponent)


def at_least(x: Array, low: Array) -> Array:
    """max(x, low), and x itself where they are equal: torch's clamp keeps the sign of zero."""
    return lax.select(lax.ge(x, low), x, lax.max(x, low))


def at_most(x: Array, high: Array) -> Array:
    """min(x, high), and x itself where they are equal."""
    return lax.select(lax.le(x, high), x, lax.min(x, high))


@row("clamp", "clamp.Tensor", promote=Promote.DEFAULT)
def clamp(self: Array, min: Array | None, max: Array | None) -> Array:
    """self within [min, max]; max wins where they cross, NaN in any of them gives NaN."""
    if min is not None:
        self = at_least(self, min)
    return self if max is None else at_most(self, max)


@row("clamp_min", "clamp_min.Tensor", promote=Promote.DEFAULT)
def clamp_min(self: Array, min: Array) -> Array:
    """max(self, min)."""
    return at_least(self, min)


@row("clamp_max", "clamp_max.Tensor", promote=Promote.DEFAULT)
def clamp_max(self: Array, max: Array) -> Array:
    """min(self, max)."""
    return at_most(self, max)


def _skipping_nan(pick: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """The larger or smaller of two, where a NaN loses against a number."""

    def extreme(self: Array, other: Array) -> Array:
        return lax.select(isnan(self), other, lax.select(isnan(other), self, pick(self, other)))

    return extreme


for _name, _fn in {
    "maximum": lambda self, other: lax.max(self, other),
    "minimum": lambda self, other: lax.min(self, other),
    "fmax": _skipping_nan(lax.max),
    "fmin": _skipping_nan(lax.min),
}.items():
    add_row(_name, _fn, promote=Promote.DEFAULT)


@row("atan2", promote=Promote.INT_TO_FLOAT)
def atan2(self: Array, other: Array) -> Array:
    """The angle of the point (other, self)."""
    return lax.atan2(self, other)


@row("hypot", promote=Promote.INT_TO_FLOAT)
def hypot(self: Array, other: Array) -> Array:
    """sqrt(self^2 + other^2), without overflow on the way."""
    a, b = lax.abs(self), lax.abs(other)
    big, small = lax.max(a, b), lax.min(a, b)
    ratio = lax.div(small, lax.select(lax.eq(big, constant(0, a)), constant(1, a), big))
    length = lax.mul(big, lax.sqrt(lax.add(constant(1, a), lax.mul(ratio, ratio))))
    endless = constant(np.inf, a)
    return lax.select(lax.bitwise_or(lax.eq(a, endless), lax.eq(b, endless)), endless, length)


@row("copysign.Tensor", "copysign.Scalar", promote=Promote.INT_TO_FLOAT)
def copysign(self: Array, other: Array) -> Array:
    """|self| with other's sign bit."""
    size = lax.abs(self)
    return lax.select(signbit(other), lax.neg(size), size)


@row("lerp.Scalar", "lerp.Tensor", promote=Promote.DEFAULT)
def lerp(self: Array, end: Array, weight: Array) -> Array:
    """self + weight * (end - self), taken from the nearer end so that weight 1 gives end exactly."""
    way, one = lax.sub(end, self), constant(1, self)
    size = lax.abs(weight)
    near = lax.lt(size, constant(0.5, size))
    return lax.select(near, lax.add(self, lax.mul(weight, way)), lax.sub(end, lax.mul(way, lax.sub(one, weight))))


@row("addcmul", promote=Promote.DEFAULT)
def addcmul(self: Array, tensor1: Array, tensor2: Array, value: Array) -> Array:
    """self + value * tensor1 * tensor2."""
    return lax.add(self, lax.mul(lax.mul(value, tensor1), tensor2))


@row("addcdiv", promote=Promote.DEFAULT)
def addcdiv(self: Array, tensor1: Array, tensor2: Array, value: Array) -> Array:
    """self + value * tensor1 / tensor2."""
    scaled = lax.mul(value, tensor1)
    return lax.add(self, divide(scaled, tensor2) if is_complex(scaled) else lax.div(scaled, tensor2))


@row("heaviside", promote=Promote.DEFAULT)
def heaviside(self: Array, values: Array) -> Array:
    """0 below zero, 1 above, values at zero."""
    if self.dtype == bool:
        return lax.bitwise_or(self, values)
    zero = constant(0, self)
    return lax.select(lax.eq(self, zero), values, lax.convert_element_type(lax.gt(self, zero), self.dtype))


@row("ldexp.Tensor", promote=Promote.INT_TO_FLOAT)
def ldexp(self: Array, other: Array) -> Array:
    """self * 2 ** other, in three factors so that no power overflows before the product does."""
    if is_complex(self):
        return lax.mul(self, lax.pow(constant(2, other), other))
    limit, two = constant(2200 if self.dtype == np.float64 else 330, other), constant(2, other)
    other = lax.max(lax.min(other, limit), lax.neg(limit))
    third = trunc(lax.div(other, constant(3, other)))
    power, rest = lax.pow(two, third), lax.pow(two, lax.sub(other, lax.add(third, third)))
    return lax.mul(lax.mul(lax.mul(self, power), rest), power)
