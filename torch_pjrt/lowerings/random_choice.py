"""multinomial: drawing categories by weight, with and without replacement.

A category of weight 0 is never drawn. Bad weights (negative, infinite, NaN, all 0, or too few positive ones) are
reported through Checked.
"""

from __future__ import annotations

import numpy as np
from jax import lax

from torch_pjrt.lowerings import random_bits
from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, opmath
from torch_pjrt.ops.registry import Checked, row


@row(
    "multinomial",
    random=random_bits.WORDS,
    checked="a probability is infinite, NaN or negative, or too few are not zero",
)
def multinomial(self: Array, num_samples: int, replacement: bool, rng: Array) -> Checked:
    """num_samples positions per row, drawn in proportion to the row's weights."""
    weights = as_dtype(self, opmath(self.dtype))
    weights = lax.reshape(weights, (1,) * (2 - weights.ndim) + tuple(weights.shape))
    zero = constant(0, weights)
    positive = lax.gt(weights, zero)
    wrong = lax.bitwise_not(lax.bitwise_and(lax.ge(weights, zero), lax.is_finite(weights)))
    enough = lax.reduce_sum(as_dtype(positive, np.int32), (1,))
    few = lax.lt(enough, constant(1 if replacement else num_samples, enough))
    bad = lax.bitwise_or(lax.reduce_or(wrong, (0, 1)), lax.reduce_or(few, (0,)))
    if replacement and num_samples > 1:
        picks = _with_replacement(weights, positive, num_samples, rng)
    else:
        picks = _without_replacement(weights, positive, num_samples, rng)
    return Checked(lax.reshape(as_dtype(picks, np.int64), (*self.shape[:-1], num_samples)), bad)


def _without_replacement(weights: Array, positive: Array, count: int, rng: Array) -> Array:
    """The largest of weight / exponential: the first `count` arrivals of independent clocks with these rates."""
    clocks = random_bits.exponential(rng, weights.shape, weights.dtype)
    keys = lax.select(positive, lax.div(weights, clocks), constant(-1, weights))
    if count == 1:
        return lax.expand_dims(lax.argmax(keys, 1, np.int32), (1,))
    return lax.top_k(keys, count)[1]


def _with_replacement(weights: Array, positive: Array, count: int, rng: Array) -> Array:
    """Inversion of the cumulative weights by bisection, which stay flat across categories of weight 0."""
    rows, size = weights.shape
    sums = lax.cumsum(weights, axis=1)
    steps = lax.cummax(lax.select(positive, sums, constant(-1, sums)), axis=1)
    total = lax.slice_in_dim(steps, size - 1, size, axis=1)
    below_total = lax.nextafter(total, constant(0, total))
    u = random_bits.unit(rng, (rows, count), weights.dtype)
    target = lax.min(lax.mul(u, broadcast_to(total, u.shape)), broadcast_to(below_total, u.shape))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(1,), start_index_map=(1,), operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
    )  # fmt: skip

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = lax.div(lax.add(low, high), constant(2, low))
        at = lax.gather(steps, lax.expand_dims(middle, (2,)), numbers, (1, 1), mode="clip")
        above = lax.gt(at, target)
        return lax.select(above, low, lax.add(middle, constant(1, middle))), lax.select(above, middle, high)

    low = lax.full((rows, count), 0, np.int32)
    rounds = max(int(np.ceil(np.log2(size))), 1) if size else 0
    return lax.fori_loop(np.int32(0), np.int32(rounds), halve, (low, lax.full_like(low, max(size - 1, 0))))[1]
