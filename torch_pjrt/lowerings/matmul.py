"""Matrix products: mm, bmm, the addmm family, dots, linear and its backward.

Every product is one dot_general. Narrow floats accumulate in float32 and are rounded once, after the addition; bools
multiply as "any of the ands". Integers wrap in their own width. Called by program/evaluate.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, is_complex, like, opmath
from torch_pjrt.ops.registry import row

Dims = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]

MATRIX: Dims = (((1,), (0,)), ((), ()))
BATCHED: Dims = (((2,), (1,)), ((0,), (0,)))
VECTOR: Dims = (((0,), (0,)), ((), ()))


def product(a: Array, b: Array, dims: Dims, precision: Any, dtype: np.dtype | None = None) -> Array:
    """dot_general in the accumulation dtype (or the one given)."""
    if a.dtype == bool:
        count = lax.dot_general(as_dtype(a, np.float32), as_dtype(b, np.float32), dims)
        return lax.gt(count, lax.full_like(count, 0))
    dtype = dtype or opmath(a.dtype)
    lead = dims[1][0]
    if lead and all(isinstance(a.shape[d], int) and a.shape[d] == 1 for d in lead):
        return _unbatched(a, b, dims, precision, dtype)
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=dtype)


def _unbatched(a: Array, b: Array, dims: Dims, precision: Any, dtype: np.dtype) -> Array:
    """A product whose batch dims have size 1: XLA on the CPU drops those too late for narrow dtypes, and finds no kernel."""
    (left, right), (first, second) = dims
    numbers: Dims = ((_renumbered(left, first), _renumbered(right, second)), ((), ()))
    a, b = lax.squeeze(a, tuple(first)), lax.squeeze(b, tuple(second))
    out = lax.dot_general(a, b, numbers, precision=precision, preferred_element_type=dtype)
    return lax.expand_dims(out, range(len(first)))


def _renumbered(dims: Sequence[int], dropped: Sequence[int]) -> tuple[int, ...]:
    return tuple(d - sum(other < d for other in dropped) for d in dims)


def scaled(number: Any, x: Array) -> Array:
    """number * x, where a number known to be 1 costs nothing."""
    if isinstance(number, np.ndarray) and number == 1:
        return x
    return lax.bitwise_and(like(number, x), x) if x.dtype == bool else lax.mul(like(number, x), x)


def combined(self: Array, prod: Array, beta: Any, alpha: Any, dtype: np.dtype) -> Array:
    """beta * self + alpha * prod in prod's dtype, rounded to dtype; beta == 0 ignores what self holds."""
    base = broadcast_to(as_dtype(self, prod.dtype), prod.shape)
    base, prod = _unless_zero(beta, base), scaled(alpha, prod)
    return as_dtype(lax.bitwise_or(base, prod) if prod.dtype == bool else lax.add(base, prod), dtype)


def _combined_product(self: Array, prod: Array, beta: Any, alpha: Any, dtype: np.dtype, operand: Array) -> Array:
    """combined() of a product of matrices: alpha == 0 ignores what they hold too, as BLAS does in the dtypes that it has."""
    if prod.dtype == operand.dtype and prod.dtype.kind in "fc":
        return combined(self, _unless_zero(alpha, prod), beta, np.ones((), np.int64), dtype)
    return combined(self, prod, beta, alpha, dtype)


def _unless_zero(number: Any, x: Array) -> Array:
    """number * x, and 0 where the number is 0, whatever x holds."""
    if isinstance(number, np.ndarray) and number == 1:
        return x
    is_zero = lax.eq(number, lax.full_like(number, 0))
    return lax.select(broadcast_to(is_zero, x.shape), lax.full_like(x, 0), scaled(number, x))


def _shared(prod: Array, a: Array) -> Array:
    return as_dtype(prod, a.dtype)


@row("mm")
def mm(self: Array, mat2: Array, precision: Any) -> Array:
    """[n, k] @ [k, m]."""
    return _shared(product(self, mat2, MATRIX, precision), self)


@row("bmm")
def bmm(self: Array, mat2: Array, precision: Any) -> Array:
    """[b, n, k] @ [b, k, m]."""
    return _shared(product(self, mat2, BATCHED, precision), self)


@row("mm.dtype")
def mm_dtype(self: Array, mat2: Array, out_dtype: np.dtype, precision: Any) -> Array:
    """mm with the result's dtype given."""
    return as_dtype(product(self, mat2, MATRIX, precision), out_dtype)


@row("bmm.dtype")
def bmm_dtype(self: Array, mat2: Array, out_dtype: np.dtype, precision: Any) -> Array:
    """bmm with the result's dtype given."""
    return as_dtype(product(self, mat2, BATCHED, precision), out_dtype)


@row("mv")
def mv(self: Array, vec: Array, precision: Any) -> Array:
    """[n, k] @ [k]."""
    return _shared(product(self, vec, MATRIX, precision), self)


@row("dot")
def dot(self: Array, tensor: Array, precision: Any) -> Array:
    """Sum of products, nothing conjugated."""
    return _shared(product(self, tensor, VECTOR, precision), self)


@row("vdot")
def vdot(self: Array, other: Array, precision: Any) -> Array:
    """Sum of products, self conjugated."""
    return _shared(product(lax.conj(self) if is_complex(self) else self, other, VECTOR, precision), self)


@row("addmm")
def addmm(self: Array, mat1: Array, mat2: Array, beta: Any, alpha: Any, precision: Any) -> Array:
    """beta * self + alpha * mat1 @ mat2."""
    return _combined_product(self, product(mat1, mat2, MATRIX, precision), beta, alpha, mat1.dtype, mat1)


@row("addmm.dtype")
def addmm_dtype(
    self: Array, mat1: Array, mat2: Array, out_dtype: np.dtype, beta: Any, alpha: Any, precision: Any
) -> Array:
    """addmm with the result's dtype given."""
    return combined(self, product(mat1, mat2, MATRIX, precision), beta, alpha, out_dtype)


@row("addmv")
def addmv(self: Array, mat: Array, vec: Array, beta: Any, alpha: Any, precision: Any) -> Array:
    """beta * self + alpha * mat @ vec."""
    return _combined_product(self, product(mat, vec, MATRIX, precision), beta, alpha, mat.dtype, mat)


@row("baddbmm")
def baddbmm(self: Array, batch1: Array, batch2: Array, beta: Any, alpha: Any, precision: Any) -> Array:
    """beta * self + alpha * batch1 @ batch2, per batch."""
    return _combined_product(self, product(batch1, batch2, BATCHED, precision), beta, alpha, batch1.dtype, batch1)


@row("baddbmm.dtype")
def baddbmm_dtype(
    self: Array, batch1: Array, batch2: Array, out_dtype: np.dtype, beta: Any, alpha: Any, precision: Any
) -> Array:
    """baddbmm with the result's dtype given."""
    return combined(self, product(batch1, batch2, BATCHED, precision), beta, alpha, out_dtype)


@row("addbmm")
def addbmm(self: Array, batch1: Array, batch2: Array, beta: Any, alpha: Any, precision: Any) -> Array:
    """beta * self + alpha * the sum over batches of batch1 @ batch2."""
    prod = product(batch1, batch2, (((0, 2), (0, 1)), ((), ())), precision)
    return _combined_product(self, prod, beta, alpha, batch1.dtype, batch1)


@row("addr")
def addr(self: Array, vec1: Array, vec2: Array, beta: Any, alpha: Any, out: Any) -> Array:
    """beta * self + alpha * outer(vec1, vec2)."""
    shape, dtype = out[0]
    wide = opmath(dtype)
    a = lax.broadcast_in_dim(as_dtype(vec1, wide), shape, (0,))
    b = lax.broadcast_in_dim(as_dtype(vec2, wide), shape, (1,))
    return combined(self, lax.bitwise_and(a, b) if a.dtype == bool else lax.mul(a, b), beta, alpha, dtype)


@row("_addmm_activation")
def addmm_activation(
    self: Array, mat1: Array, mat2: Array, beta: Any, alpha: Any, use_gelu: bool, precision: Any
) -> Array:
    """relu or gelu (exact) of addmm."""
    x = _combined_product(self, product(mat1, mat2, MATRIX, precision), beta, alpha, opmath(mat1.dtype), mat1)
    if use_gelu:
        half = lax.mul(x, lax.full_like(x, 0.5))
        x = lax.mul(half, lax.add(lax.erf(lax.mul(x, lax.full_like(x, 0.5**0.5))), lax.full_like(x, 1)))
    else:
        x = lax.max(x, lax.full_like(x, 0))
    return as_dtype(x, mat1.dtype)


@row("_int_mm")
def int_mm(self: Array, mat2: Array) -> Array:
    """int8 @ int8 into int32."""
    return lax.dot_general(self, mat2, MATRIX, preferred_element_type=np.dtype(np.int32))


@row("_scaled_mm")
def scaled_mm(
    self: Array,
    mat2: Array,
    scale_a: Array,
    scale_b: Array,
    bias: Array | None,
    scale_result: Array | None,
    out_dtype: np.dtype | None,
    use_fast_accum: bool,
) -> Array:
    """fp8 @ fp8 times both scales (one, or one for each row and column), plus bias; fp8 results are divided by theirs.

    A finite number too large for e4m3fn, which has no infinity, becomes its largest.
    """
    wide = np.dtype(np.float32)
    prod = lax.dot_general(self, mat2, MATRIX, preferred_element_type=wide)
    for scale in (scale_a, scale_b):
        whole = lax.reshape(scale, ()) if scale.size == 1 else scale
        prod = lax.mul(prod, broadcast_to(as_dtype(whole, wide), prod.shape))
    if bias is not None:
        prod = lax.add(prod, broadcast_to(as_dtype(bias, wide), prod.shape))
    dtype = self.dtype if out_dtype is None else out_dtype
    if scale_result is not None and dtype.itemsize == 1:
        prod = lax.div(prod, broadcast_to(lax.reshape(as_dtype(scale_result, wide), ()), prod.shape))
    if dtype.name == "float8_e4m3fn":
        top = constant(448.0, prod)
        prod = lax.select(lax.is_finite(prod), lax.clamp(lax.neg(top), prod, top), prod)
    return as_dtype(prod, dtype)


@row("linear")
def linear(input: Array, weight: Array, bias: Array | None, precision: Any) -> Array:
    """input @ weight.T + bias; weight is [out, in] or [in]."""
    prod = product(input, weight, (((input.ndim - 1,), (weight.ndim - 1,)), ((), ())), precision)
    if bias is not None:
        prod = lax.add(prod, broadcast_to(as_dtype(bias, prod.dtype), prod.shape))
    return _shared(prod, input)


@row("linear_backward")
def linear_backward(
    self: Array, grad_output: Array, weight: Array, output_mask: Sequence[bool], precision: Any
) -> tuple[Array, ...]:
    """The asked of (grad_input, grad_weight, grad_bias)."""
    lead = tuple(range(self.ndim - 1))
    if weight.ndim == 1:  # weight [in]: the result has no feature dim
        grad_output = lax.expand_dims(grad_output, (grad_output.ndim,))
    matrix = weight if weight.ndim == 2 else lax.expand_dims(weight, (0,))
    results: list[Array] = []
    if output_mask[0]:
        dims: Dims = (((grad_output.ndim - 1,), (0,)), ((), ()))
        results.append(_shared(product(grad_output, _conj(matrix), dims, precision), self))
    if output_mask[1]:
        grad = product(grad_output, _conj(self), ((lead, lead), ((), ())), precision)
        results.append(_shared(lax.reshape(grad, weight.shape), weight))
    if output_mask[2]:
        total = lax.reduce(
            as_dtype(grad_output, opmath(grad_output.dtype)), np.zeros((), opmath(grad_output.dtype)), lax.add, lead
        )
        results.append(_shared(lax.reshape(total, weight.shape[:-1]), grad_output))
    return tuple(results)


def _conj(x: Array) -> Array:
    return lax.conj(x) if is_complex(x) else x
