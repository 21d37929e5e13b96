"""Distributions drawn by rejection, in loops that end when all is accepted: gamma, Dirichlet, Poisson, binomial.

They draw an unknown number of words, so each takes a stream of its own from the key that it is handed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jax import lax

from torch_pjrt.lowerings import random_bits
from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, opmath
from torch_pjrt.ops.registry import row

_Propose = Callable[[Array], tuple[Array, Array]]


def rejected(rng: Array, start: Array, todo: Array, propose: _Propose) -> Array:
    """Propose (value, accepted) again and again until all that is to do is accepted."""

    def again(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        key, value, left = state
        proposal, accepted = propose(key)
        value = lax.select(lax.bitwise_and(left, accepted), proposal, value)
        return random_bits.stream(key), value, lax.bitwise_and(left, lax.bitwise_not(accepted))

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        return lax.reduce_or(state[2], tuple(range(state[2].ndim)))

    return lax.while_loop(unfinished, again, (random_bits.stream(rng), start, todo))[1]


def _keys(key: Array) -> tuple[Array, Array]:
    """Two independent keys from one."""
    both = random_bits.draw(key, 12)
    return lax.slice(both, (4,), (8,)), lax.slice(both, (8,), (12,))


def _open(key: Array, x: Array) -> Array:
    return lax.reshape(random_bits.open_unit(key, x.size, x.dtype), x.shape)


def log_gamma_draw(alpha: Array, rng: Array) -> Array:
    """The logarithm of a gamma variate (Marsaglia and Tsang, 2000; shapes below 1 are boosted)."""
    one = constant(1, alpha)
    small = lax.lt(alpha, one)
    d = lax.sub(lax.select(small, lax.add(alpha, one), alpha), constant(1 / 3, alpha))
    c = lax.div(one, lax.sqrt(lax.mul(constant(9, d), d)))
    boost_key, loop_key = _keys(rng)

    def propose(key: Array) -> tuple[Array, Array]:
        first, second = _keys(key)
        x = random_bits.gaussian(first, d.shape, d.dtype)
        t = lax.add(one, lax.mul(c, x))
        inside = lax.gt(t, constant(0, t))
        v = lax.select(inside, lax.mul(lax.mul(t, t), t), one)
        u = lax.log(_open(second, d))
        limit = lax.add(lax.mul(constant(0.5, x), lax.mul(x, x)), lax.mul(d, lax.add(lax.sub(one, v), lax.log(v))))
        return lax.add(lax.log(d), lax.log(v)), lax.bitwise_and(inside, lax.lt(u, limit))

    usable = lax.bitwise_and(lax.gt(alpha, constant(0, alpha)), lax.is_finite(alpha))
    start = lax.select(lax.eq(alpha, constant(0, alpha)), constant(-np.inf, alpha), constant(np.nan, alpha))
    value = rejected(loop_key, start, usable, propose)
    boost = lax.div(lax.log(_open(boost_key, alpha)), lax.select(small, lax.max(alpha, constant(1e-30, alpha)), one))
    return lax.select(lax.bitwise_and(small, usable), lax.add(value, boost), value)


@row("_standard_gamma", random=random_bits.WORDS)
def standard_gamma(self: Array, rng: Array) -> Array:
    """Gamma variates of these shapes, scale 1; at least the smallest positive normal number, as torch does."""
    draw = lax.exp(log_gamma_draw(as_dtype(self, opmath(self.dtype)), rng))
    least = np.finfo(draw.dtype).tiny if self.dtype != np.float16 else 2.0**-14
    return as_dtype(lax.max(draw, constant(least, draw)), self.dtype)


@row("_sample_dirichlet", random=random_bits.WORDS)
def sample_dirichlet(self: Array, rng: Array) -> Array:
    """Gamma variates scaled to sum to 1 along the last dim, in logarithms so that tiny shapes survive."""
    draw = log_gamma_draw(as_dtype(self, opmath(self.dtype)), rng)
    top = lax.reduce_max(draw, (draw.ndim - 1,))
    shifted = lax.exp(lax.sub(draw, broadcast_to(lax.expand_dims(top, (top.ndim,)), draw.shape)))
    total = lax.reduce_sum(shifted, (draw.ndim - 1,))
    return as_dtype(lax.div(shifted, broadcast_to(lax.expand_dims(total, (total.ndim,)), draw.shape)), self.dtype)


def poisson_draw(rate: Array, rng: Array) -> Array:
    """Counts at these rates: arrivals one by one below 10, transformed rejection (Hormann's PTRS, 1993) above."""
    zero, ten = constant(0, rate), constant(10, rate)
    usable = lax.bitwise_and(lax.gt(rate, zero), lax.is_finite(rate))
    large = lax.ge(rate, ten)
    big = lax.select(large, rate, ten)
    b = lax.add(constant(0.931, big), lax.mul(constant(2.53, big), lax.sqrt(big)))
    a = lax.add(constant(-0.059, b), lax.mul(constant(0.02483, b), b))
    inverse = lax.add(constant(1.1239, b), lax.div(constant(1.1328, b), lax.sub(b, constant(3.4, b))))
    edge = lax.sub(constant(0.9277, b), lax.div(constant(3.6224, b), lax.sub(b, constant(2, b))))

    def propose(key: Array) -> tuple[Array, Array]:
        first, second = _keys(key)
        u = lax.sub(_open(first, rate), constant(0.5, rate))
        v = _open(second, rate)
        us = lax.sub(constant(0.5, u), lax.abs(u))
        slope = lax.add(lax.div(lax.add(a, a), us), b)
        k = lax.floor(lax.add(lax.add(lax.mul(slope, u), big), constant(0.43, u)))
        quick = lax.bitwise_and(lax.ge(us, constant(0.07, us)), lax.le(v, edge))
        outside = lax.bitwise_or(lax.lt(k, zero), lax.bitwise_and(lax.lt(us, constant(0.013, us)), lax.gt(v, us)))
        height = lax.log(lax.div(lax.mul(v, inverse), lax.add(lax.div(a, lax.mul(us, us)), b)))
        density = lax.sub(lax.sub(lax.mul(k, lax.log(big)), big), lax.lgamma(lax.add(k, constant(1, k))))
        slow = lax.bitwise_and(lax.bitwise_not(outside), lax.le(height, density))
        return k, lax.bitwise_or(quick, slow)

    few_key, many_key = _keys(rng)
    start = lax.select(lax.eq(rate, zero), zero, constant(np.nan, rate))
    value = rejected(many_key, start, lax.bitwise_and(usable, large), propose)
    small = lax.bitwise_and(usable, lax.bitwise_not(large))
    return lax.select(small, _arrivals(few_key, lax.select(small, rate, zero)), value)


def _arrivals(rng: Array, rate: Array) -> Array:
    """How many exponential gaps fit into `rate`."""

    def again(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        key, left, count = state
        left = lax.sub(left, lax.neg(lax.log(_open(key, rate))))
        more = as_dtype(lax.ge(left, constant(0, left)), rate.dtype)
        return random_bits.stream(key), left, lax.add(count, more)

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        return lax.reduce_or(lax.gt(state[1], constant(0, state[1])), tuple(range(rate.ndim)))

    return lax.while_loop(unfinished, again, (random_bits.stream(rng), rate, constant(0, rate)))[2]


@row("poisson", random=random_bits.WORDS)
def poisson(self: Array, rng: Array) -> Array:
    """Poisson counts at these rates."""
    return as_dtype(poisson_draw(as_dtype(self, opmath(self.dtype)), rng), self.dtype)


def _binomial_small(rng: Array, count: Array, p: Array) -> Array:
    """Successes as the number of geometric gaps that fit into `count` trials."""
    scale = lax.log1p(lax.neg(p))

    def again(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        key, left, found = state
        gap = lax.ceil(lax.div(lax.log(_open(key, p)), scale))
        left = lax.sub(left, lax.max(gap, constant(1, gap)))
        hit = as_dtype(lax.ge(left, constant(0, left)), p.dtype)
        return random_bits.stream(key), left, lax.add(found, hit)

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        return lax.reduce_or(lax.gt(state[1], constant(0, state[1])), tuple(range(p.ndim)))

    return lax.while_loop(unfinished, again, (random_bits.stream(rng), count, constant(0, count)))[2]


@row("binomial", random=random_bits.WORDS)
def binomial(count: Array, prob: Array, rng: Array) -> Array:
    """Successes in `count` trials: geometric gaps where few are expected, else Hormann's BTRS (1993)."""
    wide = opmath(count.dtype)
    n, p = as_dtype(count, wide), as_dtype(prob, wide)
    zero, one, half = constant(0, n), constant(1, n), constant(0.5, n)
    flipped = lax.gt(p, half)
    q = lax.select(flipped, lax.sub(one, p), p)
    usable = lax.bitwise_and(lax.gt(n, zero), lax.bitwise_and(lax.gt(q, zero), lax.is_finite(n)))
    large = lax.bitwise_and(usable, lax.ge(lax.mul(n, q), constant(10, n)))
    small = lax.bitwise_and(usable, lax.bitwise_not(large))
    few_key, many_key = _keys(rng)
    m, r = lax.select(large, n, constant(40, n)), lax.select(large, q, half)
    spread = lax.sqrt(lax.mul(lax.mul(m, r), lax.sub(one, r)))
    b = lax.add(constant(1.15, n), lax.mul(constant(2.53, n), spread))
    a = lax.add(lax.add(constant(-0.0873, n), lax.mul(constant(0.0248, n), b)), lax.mul(constant(0.01, n), r))
    centre = lax.add(lax.mul(m, r), half)
    edge = lax.sub(constant(0.92, n), lax.div(constant(4.2, n), b))
    alpha = lax.mul(lax.add(constant(2.83, n), lax.div(constant(5.1, n), b)), spread)
    mode = lax.floor(lax.mul(lax.add(m, one), r))
    odds = lax.log(lax.div(r, lax.sub(one, r)))

    def weight(k: Array) -> Array:
        ways = lax.add(lax.lgamma(lax.add(k, one)), lax.lgamma(lax.add(lax.sub(m, k), one)))
        return lax.sub(lax.mul(k, odds), ways)

    def propose(key: Array) -> tuple[Array, Array]:
        first, second = _keys(key)
        u, v = lax.sub(_open(first, n), half), _open(second, n)
        us = lax.sub(half, lax.abs(u))
        k = lax.floor(lax.add(lax.mul(lax.add(lax.div(lax.add(a, a), us), b), u), centre))
        quick = lax.bitwise_and(lax.ge(us, constant(0.07, us)), lax.le(v, edge))
        inside = lax.bitwise_and(lax.ge(k, zero), lax.le(k, m))
        height = lax.log(lax.div(lax.mul(v, alpha), lax.add(lax.div(a, lax.mul(us, us)), b)))
        slow = lax.le(height, lax.sub(weight(k), weight(mode)))
        return k, lax.bitwise_and(inside, lax.bitwise_or(quick, slow))

    value = rejected(many_key, zero, large, propose)
    few = _binomial_small(few_key, lax.select(small, n, zero), lax.select(small, q, half))
    value = lax.select(small, few, value)
    value = lax.select(flipped, lax.sub(n, value), value)
    broken = lax.bitwise_or(lax.ne(n, n), lax.ne(p, p))
    return as_dtype(lax.select(broken, constant(math.nan, n), value), count.dtype)
