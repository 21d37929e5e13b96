"""The gamma function's family: its logarithm and derivatives, and the Hurwitz zeta function."""

from __future__ import annotations

import math

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, constant, isnan, signbit
from torch_pjrt.ops.registry import Promote, row


@row("lgamma", promote=Promote.INT_TO_FLOAT)
def lgamma(self: Array) -> Array:
    """log |gamma|, exactly 0 at 1 and 2, where XLA's approximation is not."""
    zero = lax.bitwise_or(lax.eq(self, constant(1, self)), lax.eq(self, constant(2, self)))
    return lax.select(zero, constant(0, self), lax.lgamma(self))


@row("digamma", promote=Promote.INT_TO_FLOAT)
def digamma(self: Array) -> Array:
    """Derivative of lgamma; infinite at zero with the sign opposite to the zero's."""
    endless = constant(np.inf, self)
    pole = lax.select(signbit(self), endless, lax.neg(endless))
    return lax.select(lax.eq(self, constant(0, self)), pole, lax.digamma(self))


def _trigamma(x: Array) -> Array:
    """zeta(2, x), below 1/2 by reflection: (pi / sin(pi x))^2 - trigamma(1 - x); 0 at infinity, where zeta has NaN."""
    low, two = lax.lt(x, constant(0.5, x)), constant(2, x)
    right = zeta(two, lax.select(low, lax.sub(constant(1, x), x), x))
    right = lax.select(lax.eq(x, constant(np.inf, x)), constant(0, x), right)
    cosecant = lax.div(constant(math.pi, x), lax.sin(lax.mul(x, constant(math.pi, x))))
    return lax.select(low, lax.sub(lax.mul(cosecant, cosecant), right), right)


@row("polygamma", promote=Promote.INT_TO_FLOAT)
def polygamma(n: int, self: Array) -> Array:
    """n-th derivative of digamma: (-1)^(n+1) n! zeta(n + 1, x)."""
    if n == 0:
        return digamma(self)
    if n == 1:
        return _trigamma(self)
    factor = (-1.0) ** (n + 1) * math.factorial(n)
    return lax.mul(constant(factor, self), zeta(constant(n + 1, self), self))


@row("mvlgamma", promote=Promote.INT_TO_FLOAT)
def mvlgamma(self: Array, p: int) -> Array:
    """The multivariate log-gamma: sum of lgamma(x - i / 2) for i < p, plus p (p - 1) / 4 log(pi)."""
    total = constant(p * (p - 1) / 4 * math.log(math.pi), self)
    for i in range(p):
        total = lax.add(total, lax.lgamma(lax.sub(self, constant(i / 2, self))))
    return total


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_START, _DEEPEST = 10.0, -1e6


@row("special_zeta", "special_zeta.other_scalar", "special_zeta.self_scalar", promote=Promote.INT_TO_FLOAT)
def zeta(self: Array, other: Array) -> Array:
    """The Hurwitz zeta function: terms (other + k) ** -self to 10, then Euler-Maclaurin (DLMF 25.11.5)."""
    zero, one, start = constant(0, self), constant(1, self), constant(_START, self)
    minus = lax.neg(self)

    def more(state: tuple[Array, Array]) -> Array:
        return lax.reduce_or(lax.le(state[0], start), tuple(range(self.ndim)))

    def advance(state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, total = state
        low = lax.le(a, start)
        return lax.select(low, lax.add(a, one), a), lax.select(low, lax.add(total, lax.pow(a, minus)), total)

    a, total = lax.while_loop(more, advance, (lax.max(other, constant(_DEEPEST, self)), zero))
    last = lax.pow(a, minus)
    integral = lax.div(lax.pow(a, lax.sub(one, self)), lax.sub(self, one))
    total = lax.add(lax.add(total, integral), lax.mul(last, constant(0.5, self)))
    inverse = lax.div(one, a)
    rising, square = lax.mul(lax.mul(self, last), inverse), lax.mul(inverse, inverse)
    for j, number in enumerate(_BERNOULLI, start=1):
        total = lax.add(total, lax.mul(constant(number / math.factorial(2 * j), self), rising))
        pair = lax.mul(lax.add(self, constant(2 * j - 1, self)), lax.add(self, constant(2 * j, self)))
        rising = lax.mul(lax.mul(rising, pair), square)
    whole = lax.eq(lax.floor(other), other)
    unknown = lax.bitwise_or(lax.ne(lax.floor(self), self), lax.lt(other, constant(_DEEPEST, self)))
    left = lax.select(whole, constant(np.inf, self), lax.select(unknown, constant(np.nan, self), total))
    nothing, endless = constant(np.nan, self), constant(np.inf, self)
    limit = lax.select(lax.gt(other, one), nothing, lax.select(lax.eq(other, one), one, endless))  # as torch says
    total = lax.select(lax.bitwise_or(isnan(self), isnan(other)), nothing, total)
    total = lax.select(lax.eq(other, endless), nothing, total)
    total = lax.select(lax.le(other, zero), left, total)
    total = lax.select(lax.bitwise_and(lax.eq(self, constant(np.inf, self)), lax.eq(other, other)), limit, total)
    total = lax.select(lax.eq(self, one), constant(np.inf, self), total)
    return lax.select(lax.lt(self, one), constant(np.nan, self), total)
