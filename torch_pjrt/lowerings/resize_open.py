"""Resizing to or from sizes that stay open in an export (symbolic sizes of jax.export).

interpolation.py computes a constant matrix per dim, which takes numbers. Here positions and weights are computed in the
program instead, by the same formulas and in the same precision: a few taps per position, or a whole matrix for antialiased
filters, which have as many taps as an image shrinks. Called by interpolation.py only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant


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

    def of_bytes(self, x: Array, dim: int) -> Array:
        """The same in integers, rounded, as torch has it for bytes."""
        at = lax.broadcasted_iota(np.int32, (self.taps[0][0].shape[0], x.shape[dim]), 1)
        total = lax.full(at.shape, 0, np.float64)
        for index, weight in self.taps:
            here = lax.eq(at, lax.broadcast_in_dim(index, at.shape, (0,)))
            value = constant(1, total) if weight is None else lax.broadcast_in_dim(weight, at.shape, (0,))
            total = lax.add(total, lax.select(here, value, constant(0, total)))
        return Weights(total).of_bytes(x, dim)


@dataclass(frozen=True, slots=True)
class Weights:
    """Each output position as a sum of all input positions, weighted by its row of a matrix that the program computes."""

    values: Array
    exact = False

    def applied(self, x: Array, dim: int) -> Array:
        """x with its dim resized."""
        numbers = (((dim,), (1,)), ((), ()))
        y = lax.dot_general(x, as_dtype(self.values, x.dtype), numbers, precision=lax.Precision.HIGHEST)
        return lax.transpose(y, (*range(dim), y.ndim - 1, *range(dim, y.ndim - 1)))

    def of_bytes(self, x: Array, dim: int) -> Array:
        """The same in integers, rounded: with 16-bit weights of as many binary places as the largest leaves room for."""
        largest = lax.reduce(self.values, np.float64(0), lax.max, (0, 1))
        tried = lax.iota(np.int32, 22)
        scaled = lax.mul(broadcast_to(largest, (22,)), np.float64(2) ** np.arange(1, 23))
        wide = lax.ge(lax.floor(lax.add(scaled, constant(0.5, scaled))), constant(1 << 15, scaled))
        places = lax.reduce(lax.select(wide, tried, constant(22, tried)), np.int32(22), lax.min, (0,))
        grown = lax.mul(self.values, broadcast_to(lax.exp2(as_dtype(places, np.float64)), self.values.shape))
        grown = lax.add(grown, lax.mul(lax.sign(grown), constant(0.5, grown)))
        total = Weights(as_dtype(grown, np.int32)).applied(x, dim)
        half = lax.shift_right_logical(lax.shift_left(np.int32(1), places), np.int32(1))
        return lax.shift_right_arithmetic(
            lax.add(total, broadcast_to(half, total.shape)), broadcast_to(places, total.shape)
        )


def is_open(*sizes: Any) -> bool:
    """Whether a size is a symbol."""
    return not all(isinstance(n, int) for n in sizes)


def _everywhere(value: Any, new: Any, real: Any) -> Array:
    """A number, which may be a size, for each output position."""
    return (
        lax.full((new,), value, real) if isinstance(value, float) else as_dtype(lax.full((new,), value, np.int64), real)
    )


def _ratio(size: Any, new: Any, scale: float | None, corners: bool, real: Any) -> Array:
    """Input positions per output position, for each of these."""
    if corners:
        steps = _everywhere(new - 1, new, real)
        ratio = lax.div(_everywhere(size - 1, new, real), lax.max(steps, constant(1, steps)))
        return lax.select(lax.gt(steps, constant(0, steps)), ratio, constant(0, ratio))
    if scale is not None and scale > 0:
        return _everywhere(1.0 / scale, new, real)
    return lax.div(_everywhere(size, new, real), _everywhere(new, new, real))


def _source(size: Any, new: Any, scale: float | None, corners: bool, real: Any, shift: float) -> Array:
    """Where output positions lie among input positions, not yet rounded."""
    at = lax.iota(real, new)
    if not corners:
        at = lax.add(at, _everywhere(shift, new, real))
    return lax.mul(at, _ratio(size, new, scale, corners, real))


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


def _cubic_kernel(x: Array, a: float, far: bool) -> Array:
    """The cubic convolution kernel (Keys, 1981) at distances from 0 to 1, or (far) from 1 to 2."""
    factors = (a, -5 * a, 8 * a, -4 * a) if far else (a + 2, -(a + 3), 0, 1)
    total = constant(factors[0], x)
    for factor in factors[1:]:
        total = lax.add(lax.mul(total, x), constant(factor, x))
    return total


def cubic(size: Any, new: Any, scale: float | None, corners: bool, real: Any) -> Taps:
    """Four taps."""
    source = _source(size, new, scale, corners, real, 0.5)
    if not corners:
        source = lax.sub(source, constant(0.5, source))
    low = lax.floor(source)
    part = lax.sub(source, low)
    return Taps(
        tuple(
            (
                _index(lax.add(low, constant(k, low)), size),
                _cubic_kernel(lax.abs(lax.sub(part, constant(k, part))), -0.75, far=k in (-1, 2)),
            )
            for k in (-1, 0, 1, 2)
        )
    )


def _zero_from(x: Array, end: float, value: Array) -> Array:
    return lax.select(lax.lt(x, constant(end, x)), value, constant(0, x))


def _sinc(x: Array) -> Array:
    angle = lax.mul(x, constant(np.pi, x))
    safe = lax.select(lax.eq(x, constant(0, x)), constant(1, x), angle)
    return lax.select(lax.eq(x, constant(0, x)), constant(1, x), lax.div(lax.sin(safe), safe))


def _filter(kind: str, x: Array) -> Array:
    """An antialiasing filter at distances x >= 0."""
    if kind == "bilinear":
        return lax.max(lax.sub(constant(1, x), x), constant(0, x))
    if kind == "bicubic":
        near = lax.lt(x, constant(1, x))
        return _zero_from(x, 2, lax.select(near, *(_cubic_kernel(x, -0.5, far) for far in (False, True))))
    return _zero_from(x, 3, lax.mul(_sinc(x), _sinc(lax.div(x, constant(3, x)))))


def antialiased(size: Any, new: Any, scale: float | None, corners: bool, real: Any, *, kind: str, taps: int) -> Weights:
    """A filter of so many taps, widened by the shrinking ratio, its weights summing to 1."""
    ratio = _ratio(size, new, scale, corners, real)
    wide = lax.max(ratio, constant(1, ratio))
    support = lax.mul(wide, constant(taps * 0.5, wide))
    centre = lax.mul(ratio, lax.add(lax.iota(real, new), constant(0.5, ratio)))
    low, high = (
        lax.convert_element_type(lax.add(move(centre, support), constant(0.5, centre)), np.int32)
        for move in (lax.sub, lax.add)
    )
    shape = (new, size)
    low, high, centre, wide = (lax.broadcast_in_dim(x, shape, (0,)) for x in (low, high, centre, wide))
    place = lax.broadcasted_iota(np.int32, shape, 1)
    inside = lax.bitwise_and(lax.ge(place, low), lax.lt(place, high))
    far = lax.abs(lax.div(lax.add(lax.sub(as_dtype(place, real), centre), constant(0.5, centre)), wide))
    values = lax.select(inside, _filter(kind, far), constant(0, far))
    total = lax.reduce(values, np.zeros((), real), lax.add, (1,))
    total = lax.select(lax.eq(total, constant(0, total)), constant(1, total), total)
    return Weights(lax.div(values, lax.broadcast_in_dim(total, shape, (0,))))
