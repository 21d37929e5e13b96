"""Fake quantization: values rounded to a grid and back, with the mask of those that were inside the range.

Real quantized tensors (quint8 and kin) have no place on a PJRT device; integer matrix products are in matmul.py.
"""

from __future__ import annotations

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, constant, like
from torch_pjrt.ops.registry import row


def _snapped(x: Array, scale: Array, zero_point: Array, low: int, high: int) -> tuple[Array, Array]:
    """x on the grid, and which elements were inside; scale and zero_point have x's shape."""
    wide = as_dtype(x, np.float64 if x.dtype == np.float64 else np.float32)
    scale, zero = as_dtype(scale, wide.dtype), as_dtype(zero_point, wide.dtype)
    steps = lax.mul(wide, lax.div(constant(1, scale), scale))
    level = lax.add(lax.round(steps, lax.RoundingMethod.TO_NEAREST_EVEN), zero)
    inside = lax.bitwise_and(lax.ge(level, constant(low, level)), lax.le(level, constant(high, level)))
    held = lax.clamp(constant(low, level), level, constant(high, level))
    return as_dtype(lax.mul(lax.sub(held, zero), scale), x.dtype), inside


@row("fake_quantize_per_tensor_affine_cachemask")
def per_tensor(self: Array, scale: Array, zero_point: int, quant_min: int, quant_max: int) -> tuple[Array, Array]:
    """One scale and zero point for all."""
    s = lax.broadcast(as_dtype(scale, np.float32), self.shape)
    return _snapped(self, s, lax.full_like(s, zero_point), quant_min, quant_max)


@row("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def per_tensor_switched(
    self: Array, scale: Array, zero_point: Array, fake_quant_enabled: Array, quant_min: int, quant_max: int
) -> tuple[Array, Array]:
    """As above with tensors of one element, and a switch: off passes all through, all inside."""
    s, z = (like(lax.reshape(a, ()), as_dtype(self, np.float32)) for a in (scale, zero_point))
    value, inside = _snapped(self, s, z, quant_min, quant_max)
    on = lax.reshape(lax.ne(fake_quant_enabled, constant(0, fake_quant_enabled)), ())
    on = lax.broadcast(on, self.shape)
    return lax.select(on, value, self), lax.bitwise_or(inside, lax.bitwise_not(on))


@row("fake_quantize_per_channel_affine_cachemask")
def per_channel(
    self: Array, scale: Array, zero_point: Array, axis: int, quant_min: int, quant_max: int
) -> tuple[Array, Array]:
    """A scale and a zero point for each position of a dim."""
    dim = axis % self.ndim
    s, z = (lax.broadcast_in_dim(as_dtype(a, np.float32), self.shape, (dim,)) for a in (scale, zero_point))
    return _snapped(self, s, z, quant_min, quant_max)
