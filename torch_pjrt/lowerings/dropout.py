"""Dropout: the mask, from the random operand, and its use. Attention draws its own mask with these functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, like, opmath
from torch_pjrt.ops.registry import row

Out = tuple[tuple[tuple[int, ...], np.dtype], ...]


def kept(rng: Array, p: Any, shape: Sequence[int]) -> Array:
    """Bools that are True with probability 1 - p; p is a number or a 0-d array."""
    _, bits = lax.rng_bit_generator(rng, tuple(shape), dtype=np.uint32, algorithm=lax.RandomAlgorithm.RNG_PHILOX)
    uniform = lax.mul(as_dtype(lax.shift_right_logical(bits, np.uint32(8)), np.float32), np.float32(2.0**-24))
    return lax.ge(uniform, like(p, uniform))


@row("native_dropout", random=1)
def native_dropout(input: Array, p: Any, train: bool | None, rng: Array) -> tuple[Array, Array]:
    """(input * mask / (1 - p), mask); p == 1 gives zeros; nothing is dropped unless training."""
    if train is False:
        return input, lax.full(input.shape, True)
    mask = kept(rng, p, input.shape)
    wide = as_dtype(input, opmath(input.dtype))
    rate = lax.sub(np.asarray(1, _real(wide)), lax.convert_element_type(p, _real(wide)))
    scale = lax.select(lax.eq(rate, lax.full_like(rate, 0)), rate, lax.div(lax.full_like(rate, 1), rate))
    zero = lax.full_like(wide, 0)
    return as_dtype(
        lax.select(mask, lax.mul(wide, broadcast_to(as_dtype(scale, wide.dtype), wide.shape)), zero), input.dtype
    ), mask


@row("native_dropout_backward")
def native_dropout_backward(grad_output: Array, mask: Array, scale: Any, out: Out) -> Array:
    """grad * mask * scale, in a float dtype."""
    wide = as_dtype(grad_output, opmath(out[0][1]))
    result = lax.mul(lax.mul(wide, as_dtype(mask, wide.dtype)), like(scale, wide))
    return as_dtype(result, out[0][1])


def _real(x: Array) -> np.dtype:
    """The real dtype of the same width."""
    return np.zeros((), x.dtype).real.dtype
