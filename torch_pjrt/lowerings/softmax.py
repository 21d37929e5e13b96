"""The softmax family and its backwards.

Narrow floats are computed in float32 and rounded once. A row of -inf gives NaN, as in torch, but for the safe and
masked kinds, which say so. Called by program/evaluate.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, keep_dims, opmath, wrap_dim
from torch_pjrt.ops.registry import row

Dims = Sequence[int]


def over(x: Array, dim: int) -> tuple[int, ...]:
    """The dims to reduce: none of a 0-d array."""
    return (wrap_dim(dim, x.ndim),) if x.ndim else ()


def total(x: Array, dims: Dims) -> Array:
    """Sum over dims, kept as size 1, broadcast back to x's shape."""
    result = lax.reduce(x, np.zeros((), x.dtype), lax.add, tuple(dims))
    return broadcast_to(keep_dims(result, dims, x.shape), x.shape)


def peak(x: Array, dims: Dims) -> Array:
    """Maximum over dims (NaN wins), kept as size 1, broadcast back to x's shape."""
    result = lax.reduce(x, np.asarray(-np.inf, x.dtype), lax.max, tuple(dims))
    return broadcast_to(keep_dims(result, dims, x.shape), x.shape)


def softmax(x: Array, dims: Dims) -> Array:
    """exp(x - max) over its sum."""
    e = lax.exp(lax.sub(x, peak(x, dims)))
    return lax.div(e, total(e, dims))


@row("_softmax")
def softmax_row(self: Array, dim: int, half_to_float: bool, out: Any) -> Array:
    """softmax along dim."""
    wide = as_dtype(self, opmath(self.dtype))
    return as_dtype(softmax(wide, over(self, dim)), out[0][1])


@row("_log_softmax")
def log_softmax(self: Array, dim: int, half_to_float: bool, out: Any) -> Array:
    """log of softmax along dim."""
    x, dims = as_dtype(self, opmath(self.dtype)), over(self, dim)
    shifted = lax.sub(x, peak(x, dims))
    return as_dtype(lax.sub(shifted, lax.log(total(lax.exp(shifted), dims))), out[0][1])


@row("_softmax_backward_data")
def softmax_backward(grad_output: Array, output: Array, dim: int, input_dtype: np.dtype) -> Array:
    """(grad - sum(grad * output)) * output."""
    wide = opmath(output.dtype)
    grad, y = as_dtype(grad_output, wide), as_dtype(output, wide)
    return as_dtype(lax.mul(lax.sub(grad, total(lax.mul(grad, y), over(y, dim))), y), input_dtype)


@row("_log_softmax_backward_data")
def log_softmax_backward(grad_output: Array, output: Array, dim: int, input_dtype: np.dtype) -> Array:
    """grad - exp(output) * sum(grad)."""
    wide = opmath(output.dtype)
    grad, y = as_dtype(grad_output, wide), as_dtype(output, wide)
    return as_dtype(lax.sub(grad, lax.mul(lax.exp(y), total(grad, over(y, dim)))), input_dtype)


@row("_safe_softmax")
def safe_softmax(self: Array, dim: int, dtype: np.dtype | None, out: Any) -> Array:
    """softmax that gives 0, not NaN, for rows that are all -inf."""
    x = as_dtype(as_dtype(self, out[0][1]), opmath(out[0][1]))
    dims = over(x, dim)
    top = peak(x, dims)
    empty = lax.eq(top, lax.full_like(top, -np.inf))
    return as_dtype(lax.select(empty, lax.full_like(x, 0), softmax(x, dims)), out[0][1])


def _spread(mask: Array, shape: Sequence[int], mask_type: int | None) -> Array:
    """A mask of type 0 ([L, L]), 1 ([B, L]) or 2 (full) over [B, H, L, L]."""
    if mask_type == 1 and mask.ndim == 2:
        return lax.broadcast_in_dim(mask, tuple(shape), (0, len(shape) - 1))
    return broadcast_to(mask, shape)


@row("_masked_softmax")
def masked_softmax(self: Array, mask: Array, dim: int | None, mask_type: int | None) -> Array:
    """softmax over what the mask leaves (True: left out, gives 0); a row with nothing left gives NaN."""
    x = as_dtype(self, opmath(self.dtype))
    dims = over(x, -1 if dim is None else dim)
    gone = _spread(as_dtype(mask, np.bool_), x.shape, mask_type)
    return as_dtype(softmax(lax.select(gone, lax.full_like(x, -np.inf), x), dims), self.dtype)


@row("_masked_softmax_backward")
def masked_softmax_backward(grad_output: Array, output: Array, mask: Array, dim: int | None) -> Array:
    """softmax's backward; 0 where the mask leaves out."""
    wide = opmath(output.dtype)
    grad, y = as_dtype(grad_output, wide), as_dtype(output, wide)
    dims = over(y, -1 if dim is None else dim)
    gone = broadcast_to(as_dtype(mask, np.bool_), y.shape)
    zero = lax.full_like(y, 0)
    part = lax.select(gone, zero, lax.mul(grad, y))
    result = lax.sub(part, lax.mul(y, total(part, dims)))
    return as_dtype(lax.select(gone, zero, result), output.dtype)
