"""Orthogonal polynomials p_n(x) where n is an array: one three-term recurrence, run until the largest n.

p_0 = 1, p_1 and the step p_(k+1)(x, k, p_k, p_(k-1)) define a family. Negative degrees give 0, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, constant
from torch_pjrt.ops.registry import Promote, add_row

Step = Callable[[Array, Array, Array, Array], Array]


def _line(x: Array, slope: float, offset: float) -> Array:
    return lax.add(lax.mul(constant(slope, x), x), constant(offset, x))


def _chebyshev(x: Array, k: Array, p: Array, before: Array) -> Array:
    return lax.sub(lax.mul(_line(x, 2, 0), p), before)


def _hermite_physicist(x: Array, k: Array, p: Array, before: Array) -> Array:
    return lax.sub(lax.mul(_line(x, 2, 0), p), lax.mul(_line(k, 2, 0), before))


def _hermite_probabilist(x: Array, k: Array, p: Array, before: Array) -> Array:
    return lax.sub(lax.mul(x, p), lax.mul(k, before))


def _laguerre(x: Array, k: Array, p: Array, before: Array) -> Array:
    return lax.div(lax.sub(lax.mul(lax.sub(_line(k, 2, 1), x), p), lax.mul(k, before)), _line(k, 1, 1))


def _legendre(x: Array, k: Array, p: Array, before: Array) -> Array:
    return lax.div(lax.sub(lax.mul(lax.mul(_line(k, 2, 1), x), p), lax.mul(k, before)), _line(k, 1, 1))


def _polynomial(first: tuple[float, float], step: Step, shifted: bool, limit: bool) -> Callable[[Array, Array], Array]:
    """The row of a family with p_1 = first[0] * x + first[1]; a shifted one takes 2 x - 1 for x."""

    def evaluate(x: Array, n: Array) -> Array:
        if shifted:
            x = _line(x, 2, -1)
        degree = lax.convert_element_type(n, np.int32)
        last = lax.reduce_max(degree, tuple(range(x.ndim)))
        one = constant(1, x)
        start = lax.select(lax.gt(degree, constant(0, degree)), _line(x, *first), one)

        def more(state: tuple[Array, Array, Array]) -> Array:
            return lax.lt(state[0], last)

        def advance(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            k, p, before = state
            going = lax.lt(lax.broadcast(k, x.shape), degree)
            following = step(x, lax.broadcast(lax.convert_element_type(k, x.dtype), x.shape), p, before)
            return lax.add(k, np.int32(1)), lax.select(going, following, p), lax.select(going, p, before)

        value = lax.while_loop(more, advance, (np.int32(1), start, one))[1]
        value = lax.select(lax.lt(degree, constant(0, degree)), constant(0, x), value)
        if not limit:
            return value
        too_high = lax.gt(degree, constant(512 if x.dtype == np.float64 else 128, degree))
        return lax.select(too_high, constant(np.nan, x), value)

    return evaluate


_FAMILIES: dict[str, tuple[tuple[float, float], Step, bool]] = {
    "chebyshev_polynomial_t": ((1, 0), _chebyshev, False),
    "chebyshev_polynomial_u": ((2, 0), _chebyshev, False),
    "chebyshev_polynomial_v": ((2, -1), _chebyshev, False),
    "chebyshev_polynomial_w": ((2, 1), _chebyshev, False),
    "shifted_chebyshev_polynomial_t": ((1, 0), _chebyshev, True),
    "shifted_chebyshev_polynomial_u": ((2, 0), _chebyshev, True),
    "shifted_chebyshev_polynomial_v": ((2, -1), _chebyshev, True),
    "shifted_chebyshev_polynomial_w": ((2, 1), _chebyshev, True),
    "hermite_polynomial_h": ((2, 0), _hermite_physicist, False),
    "hermite_polynomial_he": ((1, 0), _hermite_probabilist, False),
    "laguerre_polynomial_l": ((-1, 1), _laguerre, False),
    "legendre_polynomial_p": ((1, 0), _legendre, False),
}
for _name, (_first, _step, _shifted) in _FAMILIES.items():
    for _overload in ("default", "x_scalar", "n_scalar"):
        _row = _polynomial(_first, _step, _shifted, _name.startswith("hermite"))
        add_row(f"special_{_name}.{_overload}", _row, promote=Promote.INT_TO_FLOAT)
