"""The regularised incomplete gamma functions: igamma (P) and igammac (Q).

Where a is large and x near it, lax's series takes ever more terms and loses digits: there, the uniform expansion (DLMF
8.12) with the coefficients summed by Gil, Segura and Temme's recurrence (2012).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, constant, isnan
from torch_pjrt.ops.registry import Promote, add_row

_SMALLEST, _LEFT, _RIGHT = 12.0, 0.3, 2.35  # a from here on, x / a within these: so many terms give all digits
_TERMS = {np.dtype(np.float64): 33}
_FEW = 17


@functools.cache
def _coefficients(count: int) -> tuple[float, ...]:
    """The power series of eta / mu in eta, where eta^2 / 2 = mu - log(1 + mu)."""
    mu = [Fraction(0), Fraction(1)]
    for k in range(2, count + 1):
        mu.append((mu[k - 1] - sum(j * mu[k + 1 - j] * mu[j] for j in range(2, k))) / (k + 1))
    series: list[Fraction] = []
    for n in range(count):
        series.append((n + 1) * mu[n + 1] - sum(mu[i] * series[n - i] for i in range(1, n + 1)))
    return tuple(float(f) for f in series)


def _excess(mu: Array, terms: int) -> Array:
    """mu - log(1 + mu), by the series of 2 atanh(mu / (2 + mu)) where it would cancel."""
    part = lax.div(mu, lax.add(mu, constant(2, mu)))
    square = lax.mul(part, part)
    total = constant(0, mu)
    for k in reversed(range(terms // 2)):
        total = lax.add(lax.mul(total, square), constant(2 / (2 * k + 3), mu))
    near = lax.sub(lax.mul(part, mu), lax.mul(lax.mul(part, square), total))
    return lax.select(lax.lt(lax.abs(mu), constant(0.5, mu)), near, lax.sub(mu, lax.log1p(mu)))


def _uniform(a: Array, x: Array, lower: bool) -> Array:
    """P or Q for large a and x near it: half an erfc and a correction."""
    terms = _TERMS.get(np.dtype(a.dtype), _FEW)
    f = _coefficients(terms + 1)
    mu = lax.div(lax.sub(x, a), a)
    excess = _excess(mu, terms)
    eta = lax.mul(lax.sign(mu), lax.sqrt(lax.add(excess, excess)))
    inverse = lax.div(constant(1, a), a)
    beta = [constant(0, a)] * (terms + 1)
    beta[terms - 1], beta[terms - 2] = constant(f[terms], a), constant(f[terms - 1], a)
    for n in range(terms - 2, 0, -1):
        beta[n - 1] = lax.add(lax.mul(lax.mul(constant(n + 1, a), inverse), beta[n + 1]), constant(f[n], a))
    total = constant(0, a)
    for term in reversed(beta):
        total = lax.add(lax.mul(total, eta), term)
    total = lax.div(total, lax.add(constant(1, a), lax.mul(beta[1], inverse)))
    bell = lax.div(lax.exp(lax.neg(lax.mul(a, excess))), lax.mul(lax.sqrt(a), constant(math.sqrt(2 * math.pi), a)))
    way = lax.mul(eta, lax.sqrt(lax.mul(a, constant(0.5, a))))
    half, rest = constant(0.5, a), lax.mul(bell, total)
    if lower:
        return lax.sub(lax.mul(half, lax.erfc(lax.neg(way))), rest)
    return lax.add(lax.mul(half, lax.erfc(way)), rest)


def _incomplete(self: Array, other: Array, lower: bool) -> Array:
    zero, one, endless = constant(0, self), constant(1, self), constant(np.inf, self)
    unknown = constant(np.nan, self)
    at_zero, at_end = (zero, one) if lower else (one, zero)
    ratio = lax.div(other, self)
    near = lax.bitwise_and(lax.gt(ratio, constant(_LEFT, self)), lax.lt(ratio, constant(_RIGHT, self)))
    near = lax.bitwise_and(near, lax.ge(self, constant(_SMALLEST, self)))
    a, x = lax.select(near, one, self), lax.select(near, one, other)
    plain = lax.igamma(a, x) if lower else lax.igammac(a, x)
    some = constant(_SMALLEST, self)
    result = lax.select(near, _uniform(lax.select(near, self, some), lax.select(near, other, some), lower), plain)
    result = lax.select(lax.bitwise_or(isnan(self), isnan(other)), unknown, result)
    # from here on torch's order: a NaN that comes too late is not seen
    result = lax.select(lax.eq(other, endless), at_end, result)
    both = lax.select(lax.eq(other, endless), unknown, at_zero)
    result = lax.select(lax.eq(self, endless), both, result)
    result = lax.select(lax.eq(other, zero), at_zero, result)
    result = lax.select(lax.eq(self, zero), lax.select(lax.gt(other, zero), at_end, unknown), result)
    return lax.select(lax.bitwise_or(lax.lt(self, zero), lax.lt(other, zero)), unknown, result)


add_row("igamma", lambda self, other: _incomplete(self, other, True), promote=Promote.INT_TO_FLOAT)
add_row("igammac", lambda self, other: _incomplete(self, other, False), promote=Promote.INT_TO_FLOAT)
