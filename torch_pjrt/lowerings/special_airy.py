"""The Airy function Ai: Maclaurin's series near zero, and on both sides its asymptotic forms (DLMF 9.7) with the factors
that are smooth in 1 / zeta, zeta = 2/3 |x|^(3/2), fitted by Chebyshev polynomials (to 1e-16, with mpmath).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, constant
from torch_pjrt.ops.registry import Promote, row

# Ai(x) = exp(-zeta) / (2 sqrt(pi) x^(1/4)) D(1 / zeta) from HIGH on.
HIGH = 2.0
_DECAY = (
    0.98440530491715517, -0.014792784850104199, 0.00073271774654267146, -6.1259542341782504e-05,
    6.8347669755726903e-06, -9.2372297354039818e-07, 1.436225340438052e-07, -2.4893194223220961e-08,
    4.7097934400543277e-09, -9.5838637081127331e-10, 2.0745855483677591e-10, -4.737267332192277e-11,
    1.1336099808224236e-11, -2.8277067823193509e-12, 7.3207120951255979e-13, -1.9599793911089723e-13,
    5.4101162570683925e-14, -1.5356466802223836e-14, 4.4723403933000248e-15, -1.3338094674756683e-15,
    4.0665820464562309e-16, -1.2655832256452891e-16,
)  # fmt: skip

# Ai(-x) = (cos(zeta - pi/4) P(1 / zeta^2) + sin(zeta - pi/4) Q(1 / zeta^2) / zeta) / (sqrt(pi) x^(1/4)) from -LOW on.
LOW = -4.0
_COSINE = (
    0.99937088907427785, -0.00062168365843741163, 7.1811937743686453e-06, -2.3162698135017581e-07,
    1.3216283888528755e-08, -1.0938736172758127e-09, 1.1794620737908535e-10, -1.5518841909929856e-11,
    2.3869274114924661e-12, -4.1655288920103501e-13, 8.0716781107414672e-14, -1.708757321110567e-14,
    3.9029451485408141e-15, -9.5239767849070524e-16, 2.4632810885752351e-16, -6.7090774634643674e-17,
)  # fmt: skip
_SINE = (
    0.06882170556308001, -0.00060891518408326937, 1.3174151014089972e-05, -6.0140719129082983e-07,
    4.3275373422984992e-08, -4.2477317329547258e-09, 5.2322853768344934e-10, -7.6722909751150242e-11,
    1.2923809452698712e-11, -2.4385297571082901e-12, 5.0590472378720842e-13, -1.1378513792256329e-13,
    2.7441377308322245e-14, -7.0344821126325593e-15, 1.9032114367198522e-15, -5.4030405414085414e-16,
)  # fmt: skip

_AT_ZERO, _SLOPE_AT_ZERO = 0.35502805388781723926, -0.25881940379280679841
_TERMS = 24
_LARGEST = 103.892  # torch gives 0 above it


def _chebyshev(x: Array, low: float, high: float, coefficients: Sequence[float]) -> Array:
    """A Chebyshev series on [low, high], by Clenshaw's recurrence."""
    twice = lax.mul(lax.sub(x, constant((low + high) / 2, x)), constant(4 / (high - low), x))
    after = later = constant(0, x)
    for c in reversed(coefficients[1:]):
        after, later = lax.add(lax.sub(lax.mul(twice, after), later), constant(c, x)), after
    return lax.add(lax.sub(lax.mul(lax.mul(twice, constant(0.5, x)), after), later), constant(coefficients[0], x))


def _near(x: Array) -> Array:
    """Two series in x^3, one for the value and one for the slope at zero."""
    cube = lax.mul(x, lax.mul(x, x))
    value, slope = 1.0, 1.0
    values, slopes = [value], [slope]
    for k in range(1, _TERMS):
        value /= (3 * k - 1) * 3 * k
        slope /= 3 * k * (3 * k + 1)
        values.append(value)
        slopes.append(slope)

    def horner(numbers: list[float]) -> Array:
        total = constant(numbers[-1], x)
        for number in reversed(numbers[:-1]):
            total = lax.add(lax.mul(total, cube), constant(number, x))
        return total

    first = lax.mul(horner(values), constant(_AT_ZERO, x))
    return lax.add(first, lax.mul(lax.mul(horner(slopes), x), constant(_SLOPE_AT_ZERO, x)))


def _zeta(size: Array) -> Array:
    return lax.mul(constant(2 / 3, size), lax.mul(size, lax.sqrt(size)))


@row("special_airy_ai", promote=Promote.INT_TO_FLOAT)
def airy_ai(x: Array) -> Array:
    """Ai(x); NaN at both infinities, as torch says."""
    high = lax.max(x, constant(HIGH, x))
    zeta = _zeta(high)
    least = 2 / 3 * HIGH**1.5
    decay = _chebyshev(lax.div(constant(1, zeta), zeta), 0, 1 / least, _DECAY)
    quarter = lax.sqrt(lax.sqrt(high))
    right = lax.div(lax.mul(lax.exp(lax.neg(zeta)), decay), lax.mul(quarter, constant(2 * math.sqrt(math.pi), x)))

    low = lax.max(lax.neg(x), constant(-LOW, x))
    zeta = _zeta(low)
    inverse = lax.div(constant(1, zeta), zeta)
    square = lax.mul(inverse, inverse)
    least = 2 / 3 * (-LOW) ** 1.5
    turns = _zeta(as_dtype(low, np.float64))  # many of them: in float32 their rounding would be that of the result
    turns = lax.rem(lax.sub(turns, constant(math.pi / 4, turns)), constant(2 * math.pi, turns))
    phase = as_dtype(turns, x.dtype)
    cosine = lax.mul(lax.cos(phase), _chebyshev(square, 0, least**-2, _COSINE))
    sine = lax.mul(lax.sin(phase), lax.mul(inverse, _chebyshev(square, 0, least**-2, _SINE)))
    left = lax.div(lax.add(cosine, sine), lax.mul(lax.sqrt(lax.sqrt(low)), constant(math.sqrt(math.pi), x)))

    middle = _near(lax.clamp(constant(LOW, x), x, constant(HIGH, x)))
    result = lax.select(lax.gt(x, constant(HIGH, x)), right, middle)
    result = lax.select(lax.lt(x, constant(LOW, x)), left, result)
    result = lax.select(lax.gt(x, constant(_LARGEST, x)), constant(0, x), result)
    endless = lax.eq(lax.abs(x), constant(np.inf, x))
    return lax.select(lax.bitwise_or(endless, lax.ne(x, x)), constant(np.nan, x), result)
