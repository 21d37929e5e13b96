"""Functions of one array, and the pieces of them that binary rows need (powers, signs, rounding).

Transcendental functions take integers as floats (INT_TO_FLOAT); rounding and signs keep the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
from jax import lax

from torch_pjrt.lowerings import hyperbolic
from torch_pjrt.lowerings.arrays import Array, constant, is_complex, is_float, isnan
from torch_pjrt.lowerings.complex_functions import FUNCTIONS, divide, power, reciprocal, rsqrt, sqrt
from torch_pjrt.lowerings.complex_functions import absolute as length
from torch_pjrt.ops.registry import Promote, add_row, row

Out = tuple[tuple[tuple[int, ...], np.dtype], ...]


def trunc(x: Array) -> Array:
    """Rounded towards zero."""
    return x if not is_float(x) else lax.select(lax.lt(x, constant(0, x)), lax.ceil(x), lax.floor(x))


def integer_power(x: Array, exponent: Array) -> Array:
    """x ** exponent for integer arrays, wrapping; negative exponents give 0 but for x = 1 and -1."""
    one, zero = constant(1, x), constant(0, x)

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        result, square, left = state
        odd = lax.eq(lax.bitwise_and(left, one), one)
        result = lax.select(odd, lax.mul(result, square), result)
        return result, lax.mul(square, square), lax.shift_right_logical(left, one)

    def more(state: tuple[Array, Array, Array]) -> Array:
        return lax.reduce_or(lax.gt(state[2], zero), tuple(range(x.ndim)))

    if x.dtype.kind == "u":
        return lax.while_loop(more, step, (one, x, exponent))[0]
    minus = constant(-1, x)
    result = lax.while_loop(more, step, (one, x, lax.max(exponent, zero)))[0]
    even = lax.eq(lax.bitwise_and(exponent, one), zero)
    unit = lax.select(lax.bitwise_or(lax.eq(x, one), lax.bitwise_and(lax.eq(x, minus), even)), one, zero)
    unit = lax.select(lax.bitwise_and(lax.eq(x, minus), lax.bitwise_not(even)), minus, unit)
    return lax.select(lax.lt(exponent, zero), unit, result)


def static_power(x: Array, exponent: complex) -> Array:
    """x ** a known number: by products and roots where they are exact, as torch's CPU kernel does."""
    if x.dtype == bool:
        return x if exponent else constant(True, x)
    if x.dtype.kind in "iu":
        return lax.integer_pow(x, int(exponent.real)) if exponent else constant(1, x)
    if is_complex(x):
        return _static_complex_power(x, exponent)
    if exponent == 0.5:
        return lax.sqrt(x)
    if exponent == -0.5:
        return lax.rsqrt(x)
    if exponent in (-2, -1, 0, 1, 2, 3):
        return constant(1, x) if exponent == 0 else lax.integer_pow(x, int(exponent.real))
    return lax.pow(x, constant(exponent, x))


def _static_complex_power(x: Array, exponent: complex) -> Array:
    """The same for complex numbers."""
    if exponent in (0.5, -0.5):
        return sqrt(x) if exponent == 0.5 else rsqrt(x)
    if exponent in (-2, -1, 0, 1, 2, 3):
        whole = int(exponent.real)
        product = constant(1, x) if whole == 0 else lax.integer_pow(x, abs(whole))
        return reciprocal(product) if whole < 0 else product
    return power(x, constant(exponent, x))


@row("abs", promote=Promote.DEFAULT)
def absolute(self: Array) -> Array:
    """|self|; real for complex."""
    if is_complex(self):
        return length(self)
    return self if self.dtype.kind in "ub" else lax.abs(self)


@row("neg", "_neg_view_copy", promote=Promote.DEFAULT)
def neg(self: Array) -> Array:
    """-self; unsigned integers wrap."""
    return lax.neg(self)


@row("sign", promote=Promote.DEFAULT)
def sign(self: Array) -> Array:
    """-1, 0 or 1; NaN gives 0, as torch has it."""
    if self.dtype == bool:
        return self
    zero = constant(0, self)
    above = lax.convert_element_type(lax.gt(self, zero), self.dtype)
    return above if self.dtype.kind == "u" else lax.sub(above, lax.convert_element_type(lax.lt(self, zero), self.dtype))


@row("sgn", promote=Promote.DEFAULT)
def sgn(self: Array) -> Array:
    """sign(self), or self / |self| for complex numbers."""
    if not is_complex(self):
        return sign(self)
    size = lax.abs(self)
    nothing = lax.eq(size, constant(0, size))
    safe = lax.select(nothing, constant(1, size), size)
    unit = lax.complex(lax.div(lax.real(self), safe), lax.div(lax.imag(self), safe))
    return lax.select(nothing, constant(0, self), unit)


def _sine_ratio(x: Array) -> Array:
    return divide(FUNCTIONS["sin"](x), x) if is_complex(x) else lax.div(lax.sin(x), x)


def _sinc(self: Array) -> Array:
    zero = constant(0, self)
    angle = lax.mul(self, constant(math.pi, self))
    safe = lax.select(lax.eq(self, zero), constant(1, self), angle)
    return lax.select(lax.eq(self, zero), constant(1, self), _sine_ratio(safe))


def _log_base(base: float) -> Callable[[Array], Array]:
    def log(self: Array) -> Array:
        return lax.div(lax.log(self), constant(math.log(base), self))

    return log


_FLOAT_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "reciprocal": lambda self: lax.div(constant(1, self), self),
    "sqrt": lambda self: lax.sqrt(self),
    "rsqrt": lambda self: lax.rsqrt(self),
    "exp": lambda self: lax.exp(self),
    "exp2": lambda self: lax.exp2(self),
    "expm1": lambda self: lax.expm1(self),
    "log": lambda self: lax.log(self),
    "log2": _log_base(2),
    "log10": _log_base(10),
    "log1p": lambda self: lax.log1p(self),
    "sin": lambda self: lax.sin(self),
    "cos": lambda self: lax.cos(self),
    "tan": lambda self: lax.tan(self),
    "asin": lambda self: lax.asin(self),
    "acos": lambda self: lax.acos(self),
    "atan": lambda self: lax.atan(self),
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "tanh": lambda self: lax.tanh(self),
    "asinh": lambda self: lax.asinh(self),
    "acosh": lambda self: lax.acosh(self),
    "atanh": lambda self: lax.atanh(self),
    "sinc": _sinc,
    "deg2rad": lambda self: lax.mul(self, constant(math.pi / 180, self)),
    "rad2deg": lambda self: lax.mul(self, constant(180 / math.pi, self)),
}


def _of_both_kinds(real: Callable[[Array], Array], complex_: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def function(self: Array) -> Array:
        return complex_(self) if is_complex(self) else real(self)

    return function


for _name, _fn in _FLOAT_FUNCTIONS.items():
    add_row(_name, _of_both_kinds(_fn, FUNCTIONS.get(_name, _fn)), promote=Promote.INT_TO_FLOAT)


def _keeping_integers(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def rounded(self: Array) -> Array:
        return fn(self) if is_float(self) else self

    return rounded


_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "ceil": lax.ceil,
    "floor": lax.floor,
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "trunc": trunc,
    "frac": lambda x: lax.sub(x, trunc(x)),
}
for _name, _fn in _ROUNDINGS.items():
    add_row(_name, _keeping_integers(_fn), promote=Promote.DEFAULT)


@row("round.decimals", promote=Promote.DEFAULT)
def round_decimals(self: Array, decimals: int) -> Array:
    """Rounded to a number of decimals (tens, hundreds if negative), half to even."""
    if not is_float(self):
        return self
    scale = constant(10.0 ** abs(decimals), self)
    there, back = (lax.mul, lax.div) if decimals >= 0 else (lax.div, lax.mul)
    return back(lax.round(there(self, scale), lax.RoundingMethod.TO_NEAREST_EVEN), scale)


@row("nan_to_num", promote=Promote.DEFAULT)
def nan_to_num(self: Array, nan: Array | None, posinf: Array | None, neginf: Array | None, out: Out) -> Array:
    """NaN becomes nan (or 0), infinities the given numbers or the dtype's largest and smallest."""
    if is_complex(self):
        real = np.dtype(np.float32 if self.dtype == np.complex64 else np.float64)
        a, b, c = (None if n is None else lax.real(n) for n in (nan, posinf, neginf))
        parts = (lax.real(self), lax.imag(self))
        return lax.complex(*(nan_to_num(part, a, b, c, (((), real),)) for part in parts))
    if out[0][1].kind in "iub":
        return self
    limits = ml_dtypes.finfo(out[0][1])
    nan = constant(0, self) if nan is None else nan
    posinf = constant(float(limits.max), self) if posinf is None else posinf
    neginf = constant(float(limits.min), self) if neginf is None else neginf
    finite = lax.select(lax.eq(self, constant(np.inf, self)), posinf, self)
    finite = lax.select(lax.eq(self, constant(-np.inf, self)), neginf, finite)
    return lax.select(isnan(self), nan, finite)


@row("frexp.Tensor", promote=Promote.DEFAULT)
def frexp(self: Array) -> tuple[Array, Array]:
    """(mantissa in [0.5, 1), exponent) with self = mantissa * 2 ** exponent; zero, infinity and NaN keep exponent 0."""
    wide = self.dtype == np.float64
    ints, width, bias, lift = (np.int64, 52, 1022, 54) if wide else (np.int32, 23, 126, 25)
    tiny = lax.lt(lax.abs(self), constant(np.finfo(self.dtype).tiny, self))
    scaled = lax.select(tiny, lax.mul(self, constant(2.0**lift, self)), self)
    bits = lax.bitcast_convert_type(scaled, ints)
    ones = (1 << (11 if wide else 8)) - 1
    field = lax.bitwise_and(lax.shift_right_logical(bits, constant(width, bits)), constant(ones, bits))
    half = lax.bitwise_or(lax.bitwise_and(bits, constant(~(ones << width), bits)), constant(bias << width, bits))
    plain = lax.bitwise_or(lax.eq(self, constant(0, self)), lax.eq(field, constant(ones, bits)))
    exponent = lax.sub(field, lax.select(tiny, constant(bias + lift, bits), constant(bias, bits)))
    mantissa = lax.select(plain, self, lax.bitcast_convert_type(half, self.dtype))
    return mantissa, lax.convert_element_type(lax.select(plain, constant(0, bits), exponent), np.int32)
