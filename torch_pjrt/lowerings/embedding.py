"""Embedding tables: the gradient of a lookup, renormalisation, and bags of rows.

The plain lookup is in indexing.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, opmath
from torch_pjrt.lowerings.indexing import no_bad, outside, take_slices
from torch_pjrt.lowerings.scatter import put_slices
from torch_pjrt.ops.registry import Checked, row


def counts(indices: Array, size: int, dtype: Any) -> Array:
    """How often each of 0..size-1 occurs in a vector of indices."""
    return put_slices(lax.full((size,), 0, dtype), indices, lax.full(indices.shape, 1, dtype), 0, "add")


@row("embedding_dense_backward")
def embedding_dense_backward(
    grad_output: Array, indices: Array, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Array:
    """Sum of the gradients that fall on each row; the padding row gets none."""
    width = grad_output.shape[-1]
    place = as_dtype(lax.reshape(indices, (indices.size,)), np.int64)
    wide = opmath(grad_output.dtype)
    grad = as_dtype(lax.reshape(grad_output, (indices.size, width)), wide)
    if scale_grad_by_freq:
        often = take_slices(counts(place, num_weights, wide), place, 0)
        grad = lax.div(grad, lax.broadcast_in_dim(often, grad.shape, (0,)))
    if padding_idx >= 0:  # a position past the end is dropped
        place = lax.select(lax.eq(place, constant(padding_idx, place)), constant(num_weights, place), place)
    return as_dtype(put_slices(lax.full((num_weights, width), 0, wide), place, grad, 0, "add"), grad_output.dtype)
