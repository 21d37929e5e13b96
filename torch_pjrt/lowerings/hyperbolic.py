"""The real hyperbolic sine and cosine to a few units in the last place.

XLA's add log(1/2) to the argument, whose rounding grows with it: 1e-6 at 20 in float32. Here one exponential of half the
argument is squared, which does not overflow before the result does.
"""

from __future__ import annotations

from jax import lax

from torch_pjrt.lowerings.arrays import Array, constant


def _halves(x: Array) -> tuple[Array, Array]:
    """exp(|x|) / 2 and exp(-|x|) / 2."""
    half = constant(0.5, x)
    root = lax.exp(lax.mul(half, lax.abs(x)))
    return lax.mul(lax.mul(half, root), root), lax.div(lax.div(half, root), root)


def cosh(x: Array) -> Array:
    """The hyperbolic cosine."""
    return lax.add(*_halves(x))


def sinh(x: Array) -> Array:
    """The hyperbolic sine; XLA's is exact for small numbers."""
    size = lax.sub(*_halves(x))
    zero = constant(0, x)
    return lax.select(lax.lt(lax.abs(x), constant(1, x)), lax.sinh(x), lax.select(lax.lt(x, zero), lax.neg(size), size))
