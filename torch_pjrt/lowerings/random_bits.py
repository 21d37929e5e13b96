"""From random bits to numbers: the one place that says which value an element gets.

Every random row draws flat, in logical order, from Philox with the key that it is handed, so one key and one element
count give the same numbers whatever the row, the shape's split into dims or the memory layout. Nothing here knows
rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, constant, is_complex, opmath

WORDS = 4  # 32-bit words that a row reserves per element: enough for complex128
_ONES = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}


def draw(rng: Array, count: int) -> Array:
    """count random uint32."""
    return lax.rng_bit_generator(rng, (count,), np.uint32, algorithm=lax.RandomAlgorithm.RNG_PHILOX)[1]


def draw64(rng: Array, count: int) -> Array:
    """count random uint64."""
    words = as_dtype(draw(rng, 2 * count), np.uint64)
    high = lax.slice(words, (count,), (2 * count,))
    return lax.bitwise_or(lax.slice(words, (0,), (count,)), lax.shift_left(high, constant(32, high)))


def stream(rng: Array) -> Array:
    """A key of its own for a row that draws an unknown number of words (rejection loops)."""
    return draw(rng, 4)


def unit(rng: Array, shape: Sequence[int], dtype: np.dtype) -> Array:
    """Uniform on [0, 1) on the grid that the dtype can hold exactly; bfloat16 and float16 come as float32."""
    count = math.prod(shape)
    if np.issubdtype(dtype, np.complexfloating):
        pairs = unit(rng, (2 * count,), np.dtype(np.float64 if dtype == np.complex128 else np.float32))
        return lax.reshape(_paired(pairs, count), tuple(shape))
    wide: Any
    if dtype == np.float64:
        bits, digits, width, wide = draw64(rng, count), 53, 64, np.float64
    else:
        digits = {"bfloat16": 8, "float16": 11}.get(dtype.name, 24)
        bits, width, wide = draw(rng, count), 32, np.float32
    u = as_dtype(lax.shift_right_logical(bits, constant(width - digits, bits)), wide)
    return lax.reshape(lax.mul(u, constant(2.0**-digits, u)), tuple(shape))


def _paired(pairs: Array, count: int) -> Array:
    return lax.complex(lax.slice(pairs, (0,), (count,)), lax.slice(pairs, (count,), (2 * count,)))


def open_unit(rng: Array, count: int, dtype: np.dtype) -> Array:
    """Uniform on (0, 1), ends excluded, fine near 0 (for logarithms): float32 or float64, flat."""
    if dtype == np.float64:
        bits = draw64(rng, count)
        u = as_dtype(lax.shift_right_logical(bits, constant(11, bits)), dtype)
        digits = 53
    else:
        u, digits = as_dtype(draw(rng, count), dtype), 32
    u = lax.mul(lax.add(u, constant(0.5, u)), constant(2.0**-digits, u))
    return lax.min(u, constant(1 - _ONES[dtype], u))


def exponential(rng: Array, shape: Sequence[int], dtype: np.dtype) -> Array:
    """Exponential with rate 1, never 0."""
    return lax.reshape(lax.neg(lax.log(open_unit(rng, math.prod(shape), dtype))), tuple(shape))


def gaussian(rng: Array, shape: Sequence[int], dtype: np.dtype) -> Array:
    """Standard normal (Box-Muller, both of each pair used); complex has variance 1/2 in each part.

    bfloat16 and float16 come as float32.
    """
    count = math.prod(shape)
    if np.issubdtype(dtype, np.complexfloating):
        pairs = gaussian(rng, (2 * count,), np.dtype(np.float64 if dtype == np.complex128 else np.float32))
        return lax.reshape(_paired(lax.mul(pairs, constant(math.sqrt(0.5), pairs)), count), tuple(shape))
    if count == 0:
        return lax.full(tuple(shape), 0, opmath(dtype))
    half = (count + 1) // 2
    u = open_unit(rng, 2 * half, opmath(dtype))
    radius, angle = lax.slice(u, (0,), (half,)), lax.slice(u, (half,), (2 * half,))
    radius = lax.sqrt(lax.mul(constant(-2, radius), lax.log(radius)))
    angle = lax.mul(angle, constant(2 * math.pi, angle))
    z = lax.concatenate([lax.mul(radius, lax.cos(angle)), lax.mul(radius, lax.sin(angle))], 0)
    return lax.reshape(lax.slice(z, (0,), (count,)), tuple(shape))


def scaled(z: Array, mean: Array, std: Array) -> Array:
    """mean + std * z for 0-d mean and std; std only stretches, so it stays real for complex z."""
    if is_complex(z):
        mean = as_dtype(mean, z.dtype)
        std = as_dtype(std, z.dtype)
    return lax.add(lax.mul(z, _spread(std, z)), _spread(mean, z))


def _spread(number: Array, x: Array) -> Array:
    number = as_dtype(number, x.dtype)
    return number if number.shape == x.shape else lax.broadcast(number, x.shape)
