"""Sampling images at given points: grid_sampler_2d and 3d, forward and backward.

The gradients are those of the forward: clamping passes no gradient at or beyond the border and rounding passes none,
as in torch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, opmath
from torch_pjrt.ops.registry import add_row

LINEAR, NEAREST, CUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2


def _to_pixels(x: Array, size: int, corners: bool) -> Array:
    """From [-1, 1] to positions of pixels."""
    one = constant(1, x)
    if corners:
        return lax.mul(lax.add(x, one), constant((size - 1) / 2, x))
    return lax.div(lax.sub(lax.mul(lax.add(x, one), constant(size, x)), one), constant(2, x))


def _reflected(x: Array, low: float, high: float) -> Array:
    """Folded into [low, high] by reflection at the ends."""
    span = high - low
    if span <= 0:
        return lax.mul(x, constant(0, x))
    x = lax.sub(x, constant(low, x))
    x = lax.select(lax.lt(x, constant(0, x)), lax.neg(x), x)
    flips = lax.floor(lax.div(x, constant(span, x)))
    extra = lax.rem(x, constant(span, x))
    even = lax.eq(lax.rem(flips, constant(2, flips)), constant(0, flips))
    return lax.add(lax.select(even, extra, lax.sub(constant(span, extra), extra)), constant(low, extra))


def _inside(x: Array, size: int, padding: int, corners: bool) -> Array:
    """A position moved into the image as the padding says."""
    if padding == REFLECTION:
        x = _reflected(x, 0, size - 1) if corners else _reflected(x, -0.5, size - 0.5)
    return x if padding == ZEROS else lax.clamp(constant(0, x), x, constant(size - 1, x))


def _at(image: Array, sizes: Sequence[int], taps: Sequence[Array]) -> Array:
    """image (N, C, S) at whole positions (N, P) per dim; 0 outside: (N, C, P)."""
    within = None
    flat: Any = None
    for size, tap in zip(sizes, taps, strict=True):
        ok = lax.bitwise_and(lax.ge(tap, constant(0, tap)), lax.le(tap, constant(size - 1, tap)))
        index = as_dtype(lax.select(ok, tap, constant(0, tap)), np.int32)
        within = ok if within is None else lax.bitwise_and(within, ok)
        flat = index if flat is None else lax.add(lax.mul(flat, constant(size, flat)), index)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(1,), collapsed_slice_dims=(2,), start_index_map=(2,), operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    )  # fmt: skip
    sizes_of = (1, image.shape[1], 1)
    found = lax.gather(image, lax.expand_dims(flat, (2,)), numbers, sizes_of, mode="promise_in_bounds")
    return lax.select(_over_channels(within, found), found, constant(0, found))


def _over_channels(x: Array, like: Array) -> Array:
    return lax.broadcast_in_dim(x, like.shape, (0, 2))


def _cubic_weights(t: Array) -> list[Array]:
    """Weights of the four taps around, cubic convolution with a = -0.75."""
    a = -0.75

    def near(x: Array) -> Array:
        y = lax.sub(lax.mul(constant(a + 2, x), x), constant(a + 3, x))
        return lax.add(lax.mul(lax.mul(y, x), x), constant(1, x))

    def far(x: Array) -> Array:
        y = lax.sub(lax.mul(constant(a, x), x), constant(5 * a, x))
        y = lax.add(lax.mul(y, x), constant(8 * a, x))
        return lax.sub(lax.mul(y, x), constant(4 * a, x))

    one = constant(1, t)
    rest = lax.sub(one, t)
    return [far(lax.add(t, one)), near(t), near(rest), far(lax.add(rest, one))]


def _sampled(image: Array, grid: Array, mode: int, padding: int, corners: bool) -> Array:
    batch, channels, *sizes = image.shape
    flat = lax.reshape(image, (batch, channels, math.prod(sizes)))
    points = math.prod(grid.shape[1:-1])
    places = []
    for index, size in enumerate(sizes):  # the grid's last dim is x, y(, z): the image's dims backwards
        x = lax.index_in_dim(grid, len(sizes) - 1 - index, grid.ndim - 1, keepdims=False)
        places.append(_to_pixels(lax.reshape(x, (batch, points)), size, corners))
    if mode != CUBIC:
        places = [_inside(x, size, padding, corners) for x, size in zip(places, sizes, strict=True)]
    if mode == NEAREST:
        result = _at(flat, sizes, [lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN) for x in places])
    else:
        floors = [lax.floor(x) for x in places]
        parts = [lax.sub(x, f) for x, f in zip(places, floors, strict=True)]
        offsets = (-1, 0, 1, 2) if mode == CUBIC else (0, 1)
        choices = []
        for floor, part, size in zip(floors, parts, sizes, strict=True):
            weights = _cubic_weights(part) if mode == CUBIC else [lax.sub(constant(1, part), part), part]
            taps = [lax.add(floor, constant(o, floor)) for o in offsets]
            if mode == CUBIC:
                taps = [_inside(t, size, padding, corners) for t in taps]
            choices.append(list(zip(taps, weights, strict=True)))
        result = None
        for combination in itertools.product(*choices):
            value = _at(flat, sizes, [tap for tap, _ in combination])
            weight = combination[0][1]
            for _, w in combination[1:]:
                weight = lax.mul(weight, w)
            term = lax.mul(value, _over_channels(weight, value))
            result = term if result is None else lax.add(result, term)
    return lax.reshape(result, (batch, channels, *grid.shape[1:-1]))


def grid_sampler(input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Array:
    """The image at each point of the grid (coordinates from -1 to 1)."""
    wide = opmath(input.dtype)
    image, places = as_dtype(input, wide), as_dtype(grid, wide)
    return as_dtype(_sampled(image, places, interpolation_mode, padding_mode, align_corners), input.dtype)


def grid_sampler_backward(
    grad_output: Array, input: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool,
    output_mask: Sequence[bool],
) -> list[Array]:  # fmt: skip
    """The gradients of image and grid that are asked for."""
    wide = opmath(input.dtype)
    image, places, grad = (as_dtype(a, wide) for a in (input, grid, grad_output))

    def forward(image: Array, places: Array) -> Array:
        return _sampled(image, places, interpolation_mode, padding_mode, align_corners)

    if not output_mask[0]:
        grads = (None, jax.vjp(lambda p: forward(image, p), places)[1](grad)[0])
    else:
        grads = jax.vjp(forward, image, places)[1](grad)
    results = [as_dtype(grads[0], input.dtype)] if output_mask[0] else []
    if output_mask[1] or not output_mask[0]:
        results.append(broadcast_to(as_dtype(grads[1], grid.dtype), grid.shape))
    return results


for _rank in (2, 3):
    add_row(f"grid_sampler_{_rank}d", grid_sampler)
    add_row(f"grid_sampler_{_rank}d_backward", grid_sampler_backward)
