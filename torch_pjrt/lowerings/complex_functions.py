"""Functions of complex numbers with CPU torch's branch cuts, infinities and NaN (annex G of C99).

XLA is right for ordinary numbers, but loses the sign of zero, which chooses the side of a branch cut, and many limits. Each
function here takes XLA's result, or real functions of the parts, and sets the parts that are at a limit. Rows call these
for complex operands; real ones go to lax straight.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jax import lax

from torch_pjrt.lowerings import hyperbolic
from torch_pjrt.lowerings.arrays import Array, constant, isnan, signbit

Function = Callable[[Array], Array]
Parts = tuple[Array, Array]


def parts(z: Array) -> Parts:
    """(real, imaginary)."""
    return lax.real(z), lax.imag(z)


def both(a: Array, b: Array) -> Array:
    """Where both are True."""
    return lax.bitwise_and(a, b)


def is_zero(x: Array) -> Array:
    """0 or -0."""
    return lax.eq(x, constant(0, x))


def is_endless(x: Array) -> Array:
    """Either infinity."""
    return lax.eq(lax.abs(x), constant(np.inf, x))


def signed(size: Array, sign: Array) -> Array:
    """|size| with the sign of a number; that of NaN is positive."""
    size = lax.abs(size)
    return lax.select(both(signbit(sign), lax.bitwise_not(isnan(sign))), lax.neg(size), size)


def _times(x: Array, y: Array) -> Array:
    """x * y, where zero times infinity or NaN is zero."""
    nothing = lax.bitwise_or(is_zero(x), is_zero(y))
    one = constant(1, x)
    return lax.select(nothing, lax.mul(signed(constant(0, x), x), signed(one, y)), lax.mul(x, y))


def divide(z: Array, w: Array) -> Array:
    """z / w by Smith's method, as torch does it: of two infinite parts it makes NaN, where C99 would make 0."""
    (a, b), (c, d) = parts(z), parts(w)
    wide = lax.ge(lax.abs(c), lax.abs(d))
    big, small = lax.select(wide, c, d), lax.select(wide, d, c)
    ratio = lax.div(small, big)
    scale = lax.div(constant(1, c), lax.add(big, lax.mul(small, ratio)))
    first, second = lax.select(wide, a, b), lax.select(wide, b, a)
    rest = lax.mul(first, ratio)
    real = lax.mul(lax.add(first, lax.mul(second, ratio)), scale)
    imag = lax.mul(lax.select(wide, lax.sub(b, rest), lax.sub(rest, a)), scale)
    nothing = both(is_zero(c), is_zero(d))
    by_zero = [lax.div(x, lax.abs(y)) for x, y in ((a, c), (b, d))]
    return lax.complex(lax.select(nothing, by_zero[0], real), lax.select(nothing, by_zero[1], imag))


def reciprocal(z: Array) -> Array:
    """1 / z."""
    return divide(constant(1, z), z)


def absolute(z: Array) -> Array:
    """The length of z: infinite if one part is, even if the other is NaN."""
    a, b = parts(z)
    length = lax.abs(z)
    return lax.select(lax.bitwise_or(is_endless(a), is_endless(b)), constant(np.inf, length), length)


def exp(z: Array) -> Array:
    """e ** z."""
    a, b = parts(z)
    real, imag = parts(lax.exp(z))
    imag = lax.select(is_zero(b), b, imag)
    lost = both(is_endless(a), lax.bitwise_not(lax.is_finite(b)))
    zero = constant(0, a)
    below = lax.lt(a, zero)
    real = lax.select(lost, lax.select(below, zero, a), real)
    return lax.complex(real, lax.select(lost, lax.select(below, signed(zero, b), constant(np.nan, b)), imag))


def exp2(z: Array) -> Array:
    """2 ** z."""
    a, b = (lax.mul(x, constant(math.log(2), x)) for x in parts(z))
    return exp(lax.complex(a, b))


def expm1(z: Array) -> Array:
    """e ** z - 1."""
    a, b = parts(z)
    real, imag = parts(lax.expm1(z))
    real_axis = is_zero(b)
    return lax.complex(
        lax.select(both(real_axis, is_zero(a)), a, real), lax.select(real_axis, lax.mul(lax.exp(a), b), imag)
    )


def log(z: Array) -> Array:
    """The logarithm with an imaginary part in [-pi, pi]."""
    a, b = parts(z)
    real, imag = parts(lax.log(z))
    endless = lax.bitwise_or(is_endless(a), is_endless(b))
    return lax.complex(lax.select(endless, constant(np.inf, real), real), imag)


def log_to(base: float) -> Function:
    """The logarithm to a base."""

    def logarithm(z: Array) -> Array:
        return lax.complex(*(lax.div(x, constant(math.log(base), x)) for x in parts(log(z))))

    return logarithm


def log1p(z: Array) -> Array:
    """log(1 + z)."""
    a, b = parts(z)
    real, imag = parts(lax.log1p(z))
    nothing = both(is_zero(a), is_zero(b))
    return lax.complex(lax.select(nothing, a, real), lax.select(nothing, b, imag))


def sqrt(z: Array) -> Array:
    """The root with a real part that is not negative; the cut is the negative reals."""
    a, b = parts(z)
    real, imag = parts(lax.sqrt(z))
    imag = signed(imag, b)
    upward, unknown = is_endless(b), both(is_endless(a), isnan(b))
    right = both(unknown, lax.gt(a, constant(0, a)))
    endless = constant(np.inf, a)
    real = lax.select(lax.bitwise_or(upward, right), endless, lax.select(unknown, b, real))
    imag = lax.select(upward, b, lax.select(right, b, lax.select(unknown, endless, imag)))
    return lax.complex(real, imag)


def rsqrt(z: Array) -> Array:
    """1 / sqrt(z)."""
    return reciprocal(sqrt(z))


def _waves(size: Array, angle: Array) -> tuple[Parts, Array]:
    """((cosh size, sinh size), whether size is infinite and the angle says nothing)."""
    return (hyperbolic.cosh(size), hyperbolic.sinh(size)), both(is_endless(size), lax.bitwise_not(lax.is_finite(angle)))


def _one_part(lost: Array, part: Array) -> Array:
    """Infinity where the direction is lost."""
    return lax.select(lost, constant(np.inf, part), part)


def sinh(z: Array) -> Array:
    """The hyperbolic sine."""
    a, b = parts(z)
    (even, odd), lost = _waves(a, b)
    return lax.complex(_one_part(lost, _times(odd, lax.cos(b))), _times(even, lax.sin(b)))


def cosh(z: Array) -> Array:
    """The hyperbolic cosine."""
    a, b = parts(z)
    (even, odd), lost = _waves(a, b)
    return lax.complex(_one_part(lost, _times(even, lax.cos(b))), _times(odd, lax.sin(b)))


def sin(z: Array) -> Array:
    """The sine."""
    a, b = parts(z)
    (even, odd), lost = _waves(b, a)
    return lax.complex(_times(even, lax.sin(a)), _one_part(lost, _times(odd, lax.cos(a))))


def cos(z: Array) -> Array:
    """The cosine."""
    a, b = parts(z)
    (even, odd), lost = _waves(b, a)
    return lax.complex(_one_part(lost, _times(even, lax.cos(a))), lax.neg(_times(odd, lax.sin(a))))


def tanh(z: Array) -> Array:
    """The hyperbolic tangent."""
    a, b = parts(z)
    real, imag = parts(lax.tanh(z))
    imag = lax.select(both(is_endless(a), is_endless(b)), signed(constant(0, b), b), imag)
    return lax.complex(lax.select(is_zero(a), a, real), lax.select(is_zero(b), b, imag))


def _turned(fn: Function) -> Function:
    """-i * fn(i * z): the circular function of a hyperbolic one."""

    def circular(z: Array) -> Array:
        a, b = parts(z)
        real, imag = parts(fn(lax.complex(lax.neg(b), a)))
        return lax.complex(imag, lax.neg(real))

    return circular


def asin(z: Array) -> Array:
    """The inverse sine; the cuts are the reals beyond 1 and -1."""
    a, b = parts(z)
    real, imag = parts(lax.asin(z))
    real = lax.select(is_zero(a), a, real)
    return lax.complex(signed(real, a), signed(imag, b))


def acos(z: Array) -> Array:
    """The inverse cosine; cuts as asin."""
    a, b = parts(z)
    real, imag = parts(lax.acos(z))
    real = lax.select(both(is_zero(a), isnan(b)), constant(math.pi / 2, a), real)
    return lax.complex(real, lax.neg(signed(imag, b)))


def asinh(z: Array) -> Array:
    """The inverse hyperbolic sine; the cuts are the imaginary numbers beyond i and -i."""
    a, b = parts(z)
    real, imag = parts(lax.asinh(z))
    imag = lax.select(is_zero(b), b, imag)
    return lax.complex(signed(real, a), signed(imag, b))


def acosh(z: Array) -> Array:
    """The inverse hyperbolic cosine; the cut is the reals below 1."""
    a, b = parts(z)
    real, imag = parts(lax.acosh(z))
    imag = lax.select(both(is_zero(a), isnan(b)), constant(math.pi / 2, a), imag)
    return lax.complex(real, signed(imag, b))


def atanh(z: Array) -> Array:
    """The inverse hyperbolic tangent; the cuts are the reals beyond 1 and -1."""
    a, b = parts(z)
    real, imag = parts(lax.atanh(z))
    nan, unknown = constant(np.nan, a), lax.bitwise_or(isnan(a), isnan(b))
    small = lax.bitwise_or(both(isnan(a), is_endless(b)), lax.bitwise_or(is_endless(a), is_zero(a)))
    real = lax.select(both(unknown, lax.bitwise_not(small)), nan, lax.select(unknown, constant(0, a), real))
    imag = lax.select(both(unknown, lax.bitwise_not(is_endless(b))), nan, imag)
    return lax.complex(signed(real, a), signed(imag, b))


def logistic(z: Array) -> Array:
    """1 / (1 + exp(-z))."""
    a, b = parts(z)
    real, imag = parts(lax.logistic(z))
    lost = both(lax.eq(a, constant(np.inf, a)), lax.bitwise_not(lax.is_finite(b)))
    return lax.complex(lax.select(lost, constant(1, a), real), lax.select(lost, constant(0, b), imag))


def _multiply(z: Array, w: Array) -> Array:
    """z * w, where the product of an infinite number and one that is not zero is infinite: C99's."""
    (a, b), (c, d) = parts(z), parts(w)
    real, imag = parts(lax.mul(z, w))

    def boxed(x: Array, y: Array) -> Parts:
        """The parts as 1 and 0 where they make an infinite number; else as they are, but NaN as 0."""
        endless, (zero, one) = lax.bitwise_or(is_endless(x), is_endless(y)), (constant(0, x), constant(1, x))
        plain = [lax.select(isnan(p), zero, p) for p in (x, y)]
        box = [signed(lax.select(is_endless(p), one, zero), p) for p in (x, y)]
        return lax.select(endless, box[0], plain[0]), lax.select(endless, box[1], plain[1])

    endless = lax.bitwise_not(lax.bitwise_and(*(_never_endless(x) for x in (z, w))))
    mend = both(both(isnan(real), isnan(imag)), endless)
    (a, b), (c, d) = boxed(a, b), boxed(c, d)
    huge = constant(np.inf, a)
    return lax.complex(
        lax.select(mend, lax.mul(huge, lax.sub(lax.mul(a, c), lax.mul(b, d))), real),
        lax.select(mend, lax.mul(huge, lax.add(lax.mul(a, d), lax.mul(b, c))), imag),
    )


def _never_endless(z: Array) -> Array:
    a, b = parts(z)
    return lax.bitwise_not(lax.bitwise_or(is_endless(a), is_endless(b)))


def power(z: Array, exponent: Array) -> Array:
    """z ** exponent; 1 where both are 0."""
    finite = [lax.is_finite(x) for x in (*parts(z), *parts(exponent))]
    nothing = both(*(is_zero(x) for x in parts(z)))
    plain = both(both(both(*finite[:2]), both(*finite[2:])), lax.bitwise_not(nothing))
    result = lax.select(plain, lax.pow(z, exponent), exp(_multiply(exponent, log(z))))
    return lax.select(both(nothing, both(*(is_zero(x) for x in parts(exponent)))), constant(1, z), result)


# What lax does to real numbers -> the same for complex ones.
FUNCTIONS: dict[str, Function] = {
    "reciprocal": reciprocal,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": log_to(2),
    "log10": log_to(10),
    "log1p": log1p,
    "sin": sin,
    "cos": cos,
    "tan": _turned(tanh),
    "asin": asin,
    "acos": acos,
    "atan": _turned(atanh),
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
}
