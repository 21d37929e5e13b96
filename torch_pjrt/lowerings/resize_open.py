"""Resizing to or from sizes that stay open in an export (symbolic sizes of jax.export): nearest and linear.

interpolation.py computes a constant matrix per dim, which takes numbers. Here positions and weights are computed in the
program instead, by the same formulas and in the same precision. Called by interpolation.py only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype


@dataclass(frozen=True, slots=True)
class Taps:
    """Each output position as a weighted sum of input positions; a weight of None is 1."""

    taps: tuple[tuple[Array, Array | None], ...]

    @property
    def exact(self) -> bool:
        """Whether values are copied, not mixed."""
        return all(weight is None for _, weight in self.taps)

    def applied(self, x: Array, dim: int) -> Array:
        """x with its dim resized."""
        total = None
        for index, weight in self.taps:
            part = x.at[(slice(None),) * dim + (index,)].get(mode="promise_in_bounds")
            if weight is not None:
                part = lax.mul(part, lax.broadcast_in_dim(as_dtype(weight, x.dtype), part.shape, (dim,)))
            total = part if total is None else lax.add(total, part)
        return total


def is_open(*sizes: Any) -> bool:
    """Whether a size is a symbol."""
    return not all(isinstance(n, int) for n in sizes)


def _everywhere(value: Any, new: Any, real: Any) -> Array:
    """A number, which may be a size, for each output position."""
    return (
        lax.full((new,), value, real) if isinstance(value, float) else as_dtype(lax.full((new,), value, np.int64), real)
    )


def _source(size: Any, new: Any, scale: float | None, corners: bool, real: Any, shift: float) -> Array:
    """Where output positions lie among input positions, not yet rounded."""
    at = lax.iota(real, new)
    if corners:
        steps = lax.max(_everywhere(new - 1, new, real), _everywhere(1.0, new, real))
        return lax.mul(at, lax.div(_everywhere(size - 1, new, real), steps))
    if scale is not None and scale > 0:
        ratio = _everywhere(1.0 / scale, new, real)
    else:
        ratio = lax.div(_everywhere(size, new, real), _everywhere(new, new, real))
    return lax.mul(lax.add(at, _everywhere(shift, new, real)), ratio)


def _index(source: Array, size: Any) -> Array:
    whole = lax.convert_element_type(source, np.int32)
    return lax.clamp(lax.full_like(whole, 0), whole, lax.full(whole.shape, size - 1, np.int32))


def nearest(size: Any, new: Any, scale: float | None, shift: float) -> Taps:
    """Floor of the scaled position; in float32, as torch does."""
    if shift == 0 and new in (size, 2 * size):  # torch then ignores a scale that says otherwise
        at = lax.iota(np.int32, new)
        return Taps(((at if new == size else lax.shift_right_logical(at, lax.full_like(at, 1)), None),))
    return Taps(((_index(lax.floor(_source(size, new, scale, False, np.float32, shift)), size), None),))


def linear(size: Any, new: Any, scale: float | None, corners: bool, real: Any) -> Taps:
    """Two taps."""
    if new == size:  # torch then copies, whatever the scale
        return Taps(((lax.iota(np.int32, new), None),))
    source = _source(size, new, scale, corners, real, 0.5)
    if not corners:
        source = lax.max(lax.sub(source, _everywhere(0.5, new, real)), _everywhere(0.0, new, real))
    low = _index(source, size)
    part = lax.sub(source, lax.convert_element_type(low, real))
    part = lax.clamp(lax.full_like(part, 0), part, lax.full_like(part, 1))
    after = _index(lax.add(low, lax.full_like(low, 1)), size)
    return Taps(((low, lax.sub(lax.full_like(part, 1), part)), (after, part)))
