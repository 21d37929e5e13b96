"""LU factors and what is made of them: solve, inverse, determinant, unpacking.

torch numbers pivots from 1 and, for the determinants, factors the transpose of a real row-major matrix
(its C++ gradients count on that), so those rows ask how their operands are laid out.
"""

from __future__ import annotations

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, broadcast_to, constant, iota, is_complex
from torch_pjrt.lowerings.linalg import Out, adjoint, batched, identity, solved, swapped, triangle
from torch_pjrt.ops.registry import row


def factored(a: Array) -> tuple[Array, Array, Array]:
    """LU in one matrix, pivots from 0, and the row order p with a[p] = L U."""
    count = min(a.shape[-2:])
    if a.size == 0:
        order = broadcast_to(iota((a.shape[-2],), 0, np.int32), (*a.shape[:-2], a.shape[-2]))
        return a, lax.full((*a.shape[:-2], count), 0, np.int32), order
    return lax.linalg.lu(a)


def picked(x: Array, order: Array) -> Array:
    """Rows of x (second last dim) in a given order, batch by batch."""
    batch = tuple(range(x.ndim - 2))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(x.ndim - 1,),
        collapsed_slice_dims=(x.ndim - 2,),
        start_index_map=(x.ndim - 2,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    sizes = (1,) * (x.ndim - 1) + (x.shape[-1],)
    return lax.gather(x, lax.expand_dims(order, (order.ndim,)), numbers, sizes, mode="promise_in_bounds")


def inverse_order(order: Array) -> Array:
    """The permutation that undoes another."""
    return lax.sort((order, iota(order.shape, order.ndim - 1, np.int32)), dimension=order.ndim - 1, num_keys=1)[1]


def order_of(pivots: Array, rows: int) -> Array:
    """The row order that pivots (from 0) stand for."""
    if pivots.size == 0:
        return broadcast_to(iota((rows,), 0, np.int32), (*pivots.shape[:-1], rows))
    return lax.linalg.lu_pivots_to_permutation(pivots, rows)


def back_solved(lu: Array, order: Array, b: Array, conj_transposed: bool) -> Array:
    """x with a x = b (or a^H x = b), a[order] = L U."""
    lu, b = batched(lu, b)
    order = broadcast_to(order, (*lu.shape[:-2], order.shape[-1]))
    if b.size == 0:
        return b
    if not conj_transposed:
        y = solved(lu, picked(b, order), upper=False, unit=True)
        return solved(lu, y, upper=True)
    y = solved(lu, b, upper=True, transpose=True, conj=True)
    y = solved(lu, y, upper=False, transpose=True, conj=True, unit=True)
    return picked(y, inverse_order(order))


def solve(a: Array, b: Array) -> Array:
    """x with a x = b."""
    lu, _, order = factored(a)
    return back_solved(lu, order, b, False)


def diagonal(lu: Array) -> Array:
    """The diagonal of U."""
    side = min(lu.shape[-2:])
    lu = lax.slice_in_dim(lax.slice_in_dim(lu, 0, side, axis=lu.ndim - 1), 0, side, axis=lu.ndim - 2)
    on = lax.eq(iota(lu.shape, lu.ndim - 1, np.int32), iota(lu.shape, lu.ndim - 2, np.int32))
    return lax.reduce_sum(lax.select(on, lu, constant(0, lu)), (lu.ndim - 1,))


def first_zero(lu: Array) -> Array:
    """The number (from 1) of the first zero on U's diagonal, 0 if none: torch's info."""
    d = diagonal(lu)
    if d.shape[-1] == 0:
        return lax.full(d.shape[:-1], 0, np.int32)
    far = np.int32(np.iinfo(np.int32).max)
    at = lax.add(iota(d.shape, d.ndim - 1, np.int32), np.int32(1))
    first = lax.reduce_min(lax.select(lax.eq(d, constant(0, d)), at, lax.full_like(at, far)), (d.ndim - 1,))
    return lax.select(lax.eq(first, far), lax.full_like(first, 0), first)


def from_one(pivots: Array) -> Array:
    """torch's numbering."""
    return lax.add(pivots, np.int32(1))


@row("linalg_lu_factor_ex")
def linalg_lu_factor_ex(A: Array, pivot: bool, check_errors: bool) -> tuple[Array, Array, Array]:
    """LU, pivots, info."""
    lu, pivots, _ = factored(A)
    return lu, from_one(pivots), first_zero(lu)


def _triangles(lu: Array) -> tuple[Array, Array]:
    rows, columns = lu.shape[-2:]
    side = min(rows, columns)
    left = lax.slice_in_dim(lu, 0, side, axis=lu.ndim - 1)
    lower = lax.add(triangle(left, upper=False, offset=-1), identity(left.shape, lu.dtype))
    return lower, triangle(lax.slice_in_dim(lu, 0, side, axis=lu.ndim - 2), upper=True)


def _permutation(order: Array, dtype: np.dtype) -> Array:
    """P with a = P L U."""
    shape = (*order.shape, order.shape[-1])
    kept = tuple(d for d in range(len(shape)) if d != len(shape) - 2)
    hit = lax.eq(iota(shape, len(shape) - 2, np.int32), lax.broadcast_in_dim(order, shape, kept))
    return lax.convert_element_type(hit, dtype)


@row("linalg_lu")
def linalg_lu(A: Array, pivot: bool) -> tuple[Array, Array, Array]:
    """P, L, U."""
    lu, _, order = factored(A)
    return (_permutation(order, A.dtype), *_triangles(lu))


@row("lu_unpack")
def lu_unpack(
    LU_data: Array, LU_pivots: Array, unpack_data: bool, unpack_pivots: bool, out: Out
) -> tuple[Array, Array, Array]:
    """P, L, U from a packed factorization; what is not asked for is empty."""
    empty = [lax.full(shape, 0, dtype) for shape, dtype in out]
    p, lower, upper = empty
    if unpack_pivots:
        order = order_of(lax.sub(LU_pivots, np.int32(1)), LU_data.shape[-2])
        p = _permutation(order, LU_data.dtype)
    if unpack_data:
        lower, upper = _triangles(LU_data)
    return p, lower, upper


@row("linalg_lu_solve")
def linalg_lu_solve(LU: Array, pivots: Array, B: Array, left: bool, adjoint: bool) -> Array:
    """x with A x = B, A^H x = B, x A = B or x A^H = B."""
    order = order_of(lax.sub(pivots, np.int32(1)), LU.shape[-2])
    return _lu_solved(LU, order, B, left, adjoint)


def _lu_solved(lu: Array, order: Array, b: Array, left: bool, conj_transposed: bool) -> Array:
    if left:
        return back_solved(lu, order, b, conj_transposed)
    return adjoint(back_solved(lu, order, adjoint(b), not conj_transposed))


@row("_linalg_solve_ex")
def linalg_solve_ex(A: Array, B: Array, left: bool, check_errors: bool, out: Out) -> tuple[Array, Array, Array, Array]:
    """x with A x = B or x A = B; LU, pivots and info of A."""
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    right = lax.expand_dims(B, (B.ndim,)) if vector else B
    lu, pivots, order = factored(A)
    x = _lu_solved(lu, order, right, left or vector, False)
    return lax.reshape(x, out[0][0]), lu, from_one(pivots), first_zero(lu)


@row("linalg_inv_ex")
def linalg_inv_ex(A: Array, check_errors: bool) -> tuple[Array, Array]:
    """The inverse, and info."""
    lu, _, order = factored(A)
    return back_solved(lu, order, identity(A.shape, A.dtype), False), first_zero(lu)


def _sign(pivots: Array, dtype: np.dtype) -> Array:
    """The sign of a permutation, from its pivots (from 0)."""
    moved = lax.ne(pivots, iota(pivots.shape, pivots.ndim - 1, np.int32))
    odd = lax.rem(lax.reduce_sum(lax.convert_element_type(moved, np.int32), (pivots.ndim - 1,)), np.int32(2))
    return lax.convert_element_type(lax.sub(np.int32(1), lax.mul(np.int32(2), odd)), dtype)


@row("_linalg_det")
def linalg_det(A: Array, contiguous: tuple[bool, ...]) -> tuple[Array, Array, Array]:
    """The determinant; LU and pivots of A or its transpose."""
    lu, pivots, _ = factored(swapped(A) if contiguous[0] and not is_complex(A) else A)
    d = diagonal(lu)
    return lax.mul(lax.reduce_prod(d, (d.ndim - 1,)), _sign(pivots, A.dtype)), lu, from_one(pivots)


@row("_linalg_slogdet")
def linalg_slogdet(A: Array, contiguous: tuple[bool, ...]) -> tuple[Array, Array, Array, Array]:
    """The determinant's sign and the logarithm of its size; LU and pivots of A or its transpose."""
    lu, pivots, _ = factored(swapped(A) if contiguous[0] and not is_complex(A) else A)
    d = diagonal(lu)
    axes = (d.ndim - 1,)
    sign = lax.mul(lax.reduce_prod(lax.sign(d), axes), _sign(pivots, A.dtype))
    return sign, lax.reduce_sum(lax.log(lax.abs(d)), axes), lu, from_one(pivots)
