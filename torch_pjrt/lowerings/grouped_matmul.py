"""Grouped matrix products: one product per expert of a mixture, with the groups' sizes known only at run time.

Two-dimensional operands hold their groups one after another, and `offs` says where each ends; rows after the last end
are zero. Ragged contractions have a lowering of their own on accelerators. Called by program/evaluate.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, opmath
from torch_pjrt.lowerings.matmul import BATCHED, product
from torch_pjrt.ops.registry import row

# rows of the left side in groups, each with a matrix of its own; and columns in groups, each giving a matrix
ROWS = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])
INNER = lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), [1], [])


def _sizes(offs: Array) -> Array:
    """The groups' sizes from their ends."""
    before = lax.pad(offs, np.zeros((), offs.dtype), [(1, -1, 0)])
    return lax.sub(offs, before)


@row("_grouped_mm")
def grouped_mm(
    self: Array, mat2: Array, offs: Array | None, bias: Array | None, out_dtype: Any, precision: Any
) -> Array:
    """[rows, k] @ [groups, k, n], [groups, m, k] @ [k, columns], [m, inner] @ [inner, n] per group, or plain batches."""
    dtype = out_dtype or self.dtype
    if offs is None:
        return as_dtype(product(self, mat2, BATCHED, precision), dtype)
    left, right, numbers = self, mat2, ROWS
    if self.ndim == 3:
        left, right = lax.transpose(mat2, (1, 0)), lax.transpose(self, (0, 2, 1))
    elif mat2.ndim == 2:
        numbers = INNER
    wide = opmath(self.dtype)
    result = lax.ragged_dot_general(
        left, right, _sizes(offs), numbers, precision=precision, preferred_element_type=wide
    )
    return as_dtype(lax.transpose(result, (1, 0)) if self.ndim == 3 else result, dtype)
