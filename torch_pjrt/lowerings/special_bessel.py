"""Bessel functions. I by lax; J, Y and K by quadrature of their integrals, whose error falls exponentially.

Small arguments of J and Y (DLMF 10.9.1, 10.8.3): J_n(x) is a mean of cos(n t - x sin t) over a period, and Y_0 adds
Neumann's series, summed into fixed weights. Large arguments: Hankel's expansion (DLMF 10.17). K (DLMF 10.32.9):
exp(x) K_v(x) = integral of exp(-x (cosh t - 1)) cosh(v t) over t > 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, constant
from torch_pjrt.lowerings.special import polynomial
from torch_pjrt.ops.registry import Promote, add_row, row

_FAR = 25.0  # where Hankel's expansion takes over: its smallest term is exp(-2 x)
_POINTS = 64
_ANGLES = (np.arange(_POINTS // 2) + 0.5) * np.pi / _POINTS  # the other half is their mirror image
_ORDERS = np.arange(1, _POINTS // 2)
_NEUMANN = (np.cos(2 * np.outer(_ANGLES, _ORDERS)) * (-1.0) ** _ORDERS / _ORDERS).sum(1)


def i0(self: Array) -> Array:
    """exp(|x|) * i0e(x)."""
    return lax.mul(lax.exp(lax.abs(self)), lax.bessel_i0e(self))


def i1(self: Array) -> Array:
    """exp(|x|) * i1e(x)."""
    return lax.mul(lax.exp(lax.abs(self)), lax.bessel_i1e(self))


def _periodic(x: Array, terms: Callable[[Array, Array, Array], tuple[Array, Array]]) -> tuple[Array, Array]:
    """Sums of two terms(sin t, weight, x sin t) over the angles, divided by their number."""
    sines, weights = (lax.convert_element_type(v, x.dtype) for v in (np.sin(_ANGLES), _NEUMANN))

    def body(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        sine, weight = (lax.broadcast(lax.dynamic_index_in_dim(v, k, 0, False), x.shape) for v in (sines, weights))
        first, second = terms(sine, weight, lax.mul(x, sine))
        return lax.add(sums[0], first), lax.add(sums[1], second)

    zero = constant(0, x)
    first, second = lax.fori_loop(0, len(_ANGLES), body, (zero, zero))
    scale = constant(1 / len(_ANGLES), x)
    return lax.mul(first, scale), lax.mul(second, scale)


def _near0(x: Array) -> tuple[Array, Array]:
    """J_0 and the Neumann sum of Y_0, for 0 <= x <= _FAR."""

    def terms(sine: Array, weight: Array, phase: Array) -> tuple[Array, Array]:
        cosine = lax.cos(phase)
        return cosine, lax.mul(weight, cosine)

    return _periodic(x, terms)


def _near1(x: Array) -> tuple[Array, Array]:
    """J_1 = -J_0' and minus the derivative of the Neumann sum."""

    def terms(sine: Array, weight: Array, phase: Array) -> tuple[Array, Array]:
        value = lax.mul(sine, lax.sin(phase))
        return value, lax.mul(weight, value)

    return _periodic(x, terms)


def _hankel(x: Array, order: int, second_kind: bool) -> Array:
    """sqrt(2 / (pi x)) (P cos w - Q sin w), w = x - (order / 2 + 1 / 4) pi; Y swaps cos w for sin w."""
    terms = [1.0]
    for k in range(1, 21):
        terms.append(terms[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    inverse = lax.div(constant(1, x), x)
    square = lax.mul(inverse, inverse)
    p = polynomial(square, tuple(t * (-1) ** k for k, t in enumerate(terms[0::2]))[::-1])
    q = lax.mul(inverse, polynomial(square, tuple(t * (-1) ** k for k, t in enumerate(terms[1::2]))[::-1]))
    shift = (order / 2 + 0.25) * math.pi
    sine, cosine = lax.sin(x), lax.cos(x)  # of the unshifted angle: large x keep all their digits
    cos_s, sin_s = constant(math.cos(shift), x), constant(math.sin(shift), x)
    cos_w = lax.add(lax.mul(cosine, cos_s), lax.mul(sine, sin_s))
    sin_w = lax.sub(lax.mul(sine, cos_s), lax.mul(cosine, sin_s))
    wave = (
        lax.add(lax.mul(p, sin_w), lax.mul(q, cos_w))
        if second_kind
        else (lax.sub(lax.mul(p, cos_w), lax.mul(q, sin_w)))
    )
    return lax.mul(lax.sqrt(lax.mul(constant(2 / math.pi, x), inverse)), wave)


def _either(x: Array, near: Callable[[Array], Array], order: int, second_kind: bool) -> Array:
    """near(x) up to _FAR, Hankel's expansion beyond; x is not negative."""
    edge = constant(_FAR, x)
    return lax.select(lax.gt(x, edge), _hankel(lax.max(x, edge), order, second_kind), near(lax.min(x, edge)))


@row("special_bessel_j0", promote=Promote.INT_TO_FLOAT)
def j0(self: Array) -> Array:
    """J_0."""
    return _either(lax.abs(self), lambda x: _near0(x)[0], 0, False)


@row("special_bessel_j1", promote=Promote.INT_TO_FLOAT)
def j1(self: Array) -> Array:
    """J_1, an odd function."""
    size = _either(lax.abs(self), lambda x: _near1(x)[0], 1, False)
    return lax.select(lax.lt(self, constant(0, self)), lax.neg(size), size)


def _second_kind(x: Array, near: Callable[[Array], Array], order: int) -> Array:
    zero = constant(0, x)
    value = _either(lax.select(lax.gt(x, zero), x, constant(1, x)), near, order, True)
    value = lax.select(lax.ne(x, x), x, value)
    value = lax.select(lax.eq(x, zero), constant(-np.inf, x), value)
    return lax.select(lax.lt(x, zero), constant(np.nan, x), value)


def _log_half(x: Array) -> Array:
    return lax.add(lax.log(lax.mul(x, constant(0.5, x))), constant(np.euler_gamma, x))


@row("special_bessel_y0", promote=Promote.INT_TO_FLOAT)
def y0(self: Array) -> Array:
    """Y_0; minus infinity at 0, NaN below."""

    def near(x: Array) -> Array:
        j, neumann = _near0(x)
        return lax.mul(constant(2 / math.pi, x), lax.sub(lax.mul(_log_half(x), j), lax.mul(constant(2, x), neumann)))

    return _second_kind(self, near, 0)


@row("special_bessel_y1", promote=Promote.INT_TO_FLOAT)
def y1(self: Array) -> Array:
    """Y_1; minus infinity at 0, NaN below."""

    def near(x: Array) -> Array:
        j, neumann = _near1(x)
        inner = lax.sub(lax.mul(_log_half(x), j), lax.div(_near0(x)[0], x))
        return lax.mul(constant(2 / math.pi, x), lax.sub(inner, lax.mul(constant(2, x), neumann)))

    return _second_kind(self, near, 1)


def scaled_k(x: Array, order: int) -> Array:
    """exp(x) K_order(x) of order 0 or 1; infinite at 0, NaN below.

    The trapezoid's step follows the width of the integrand; near zero the leading term is exact (DLMF 10.30).
    """
    zero, one, tiny = constant(0, x), constant(1, x), constant(1e-17, x)
    safe = lax.max(x, tiny)
    step = lax.div(constant(0.25, x), lax.sqrt(lax.add(one, lax.mul(safe, constant(1 / 8, x)))))

    def body(k: Array, total: Array) -> Array:
        t = lax.mul(step, lax.broadcast(lax.convert_element_type(k, x.dtype), x.shape))
        half = lax.sinh(lax.mul(t, constant(0.5, x)))  # cosh t - 1 = 2 sinh(t / 2)^2
        # neither 2 x nor the square of half may leave the range
        decay = lax.exp(lax.mul(constant(-2, x), lax.mul(lax.mul(safe, half), half)))
        grown = lax.cosh(lax.mul(t, constant(order, x))) if order else one
        return lax.add(total, lax.select(lax.eq(decay, zero), zero, lax.mul(decay, grown)))

    total = lax.fori_loop(1, 320, body, constant(0.5, x))
    value = lax.mul(total, step)
    leading = lax.div(one, x) if order else lax.sub(constant(math.log(2) - np.euler_gamma, x), lax.log(x))
    value = lax.select(lax.lt(x, tiny), leading, value)
    value = lax.select(lax.eq(x, zero), constant(np.inf, x), value)
    value = lax.select(lax.eq(x, constant(np.inf, x)), zero, value)
    return lax.select(lax.lt(x, zero), constant(np.nan, x), lax.select(lax.ne(x, x), x, value))


def _spherical_j0(x: Array) -> Array:
    square = lax.mul(x, x)
    series = polynomial(square, (1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0))
    small = lax.lt(lax.abs(x), constant(0.3, x))
    safe = lax.select(small, constant(1, x), x)
    value = lax.select(small, series, lax.div(lax.sin(safe), safe))
    return lax.select(lax.eq(lax.abs(x), constant(np.inf, x)), constant(0, x), value)


def _damped(order: int) -> Callable[[Array], Array]:
    def k(self: Array) -> Array:
        return lax.mul(lax.exp(lax.neg(self)), scaled_k(self, order))

    return k


_ONE_ARGUMENT: dict[str, Callable[[Array], Array]] = {
    "i0": i0,
    "special_modified_bessel_i0": i0,
    "special_i1": i1,
    "special_modified_bessel_i1": i1,
    "special_i0e": lambda self: lax.bessel_i0e(self),
    "special_i1e": lambda self: lax.bessel_i1e(self),
    "special_modified_bessel_k0": _damped(0),
    "special_modified_bessel_k1": _damped(1),
    "special_scaled_modified_bessel_k0": lambda x: scaled_k(x, 0),
    "special_scaled_modified_bessel_k1": lambda x: scaled_k(x, 1),
    "special_spherical_bessel_j0": _spherical_j0,
}
for _name, _fn in _ONE_ARGUMENT.items():
    add_row(_name, _fn, promote=Promote.INT_TO_FLOAT)
