"""Complex numbers made from parts, and taken apart. (real and imag are views in torch, so they are not here.)"""

from __future__ import annotations

import math

from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_together, constant, is_complex, isnan, opmath
from torch_pjrt.ops.registry import Promote, row


@row("_conj_physical", "_conj_copy", promote=Promote.DEFAULT)
def conj(self: Array) -> Array:
    """The complex conjugate; real numbers as they are."""
    return lax.conj(self) if is_complex(self) else self


@row("angle", promote=Promote.INT_TO_FLOAT)
def angle(self: Array) -> Array:
    """The argument of a complex number; 0 or pi for reals, NaN for NaN."""
    if is_complex(self):
        return lax.atan2(lax.imag(self), lax.real(self))
    turned = lax.select(lax.lt(self, constant(0, self)), constant(math.pi, self), constant(0, self))
    return lax.select(isnan(self), self, turned)


@row("complex")
def make_complex(real: Array, imag: Array) -> Array:
    """real + i * imag."""
    return lax.complex(*_at_least_float32(real, imag))


@row("polar")
def polar(abs: Array, angle: Array) -> Array:
    """abs * exp(i * angle)."""
    abs, angle = _at_least_float32(abs, angle)
    return lax.complex(lax.mul(abs, lax.cos(angle)), lax.mul(abs, lax.sin(angle)))


def _at_least_float32(*parts: Array) -> list[Array]:
    return broadcast_together(*(as_dtype(p, opmath(p.dtype)) for p in parts))
