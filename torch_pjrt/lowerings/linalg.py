"""Triangular and Cholesky solvers, QR, Householder products, cross product, matrix exponential.

LU and what is solved with it is in linalg_lu.py, eigen- and singular values in linalg_spectral.py. All rows take
batches; the info outputs of torch (0 for success) are computed from the factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, constant, iota, is_complex, opmath, wrap_dim
from torch_pjrt.ops.registry import Promote, row

Out = tuple[tuple[tuple[int, ...], np.dtype], ...]
HIGHEST = lax.Precision.HIGHEST


def swapped(x: Array) -> Array:
    """The last two dims exchanged."""
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def adjoint(x: Array) -> Array:
    """The conjugate transpose of the last two dims."""
    return lax.conj(swapped(x)) if is_complex(x) else swapped(x)


def product(a: Array, b: Array) -> Array:
    """Batched matrix product in full precision (equal batch dims)."""
    batch = tuple(range(a.ndim - 2))
    return lax.dot_general(a, b, (((a.ndim - 1,), (b.ndim - 2,)), (batch, batch)), precision=HIGHEST)


def triangle(x: Array, *, upper: bool, offset: int = 0) -> Array:
    """The entries on one side of a diagonal, zeros elsewhere."""
    distance = lax.sub(iota(x.shape, x.ndim - 1, np.int32), iota(x.shape, x.ndim - 2, np.int32))
    keep = lax.ge(distance, np.int32(offset)) if upper else lax.le(distance, np.int32(offset))
    return lax.select(keep, x, constant(0, x))


def identity(shape: Sequence[int], dtype: Any) -> Array:
    """Identity matrices."""
    return broadcast_to(lax.convert_element_type(np.eye(shape[-2], shape[-1]), dtype), tuple(shape))


def batched(a: Array, b: Array) -> tuple[Array, Array]:
    """Both with the batch dims broadcast to each other."""
    batch = lax.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return broadcast_to(a, (*batch, *a.shape[-2:])), broadcast_to(b, (*batch, *b.shape[-2:]))


def solved(a: Array, b: Array, *, upper: bool, left: bool = True, transpose: bool = False, conj: bool = False,
           unit: bool = False) -> Array:  # fmt: skip
    """x with op(a) x = b (or x op(a) = b), a triangular."""
    a, b = batched(a, b)
    if b.size == 0:
        return b
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=left,
        lower=not upper,
        transpose_a=transpose,
        conjugate_a=conj and is_complex(a),
        unit_diagonal=unit,
    )


@row("linalg_solve_triangular")
def linalg_solve_triangular(self: Array, B: Array, upper: bool, left: bool, unitriangular: bool) -> Array:
    """x with self x = B or x self = B."""
    return solved(self, B, upper=upper, left=left, unit=unitriangular)


@row("triangular_solve")
def triangular_solve(self: Array, A: Array, upper: bool, transpose: bool, unitriangular: bool) -> tuple[Array, Array]:
    """x with op(A) x = self; and A broadcast."""
    x = solved(A, self, upper=upper, transpose=transpose, unit=unitriangular)
    return x, batched(A, self)[0]


def _first_bad_minor(a: Array) -> Array:
    """Order of the first leading minor that is not positive, 0 if none: from pivots without exchanges."""
    size = a.shape[-1]
    real = lax.real(a) if is_complex(a) else a

    def step(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        a, info = carry
        column = lax.dynamic_slice_in_dim(a, k, 1, a.ndim - 1)
        pivot = lax.dynamic_slice_in_dim(column, k, 1, a.ndim - 2)
        value = lax.reshape(lax.real(pivot) if is_complex(a) else pivot, info.shape)
        bad = lax.bitwise_not(lax.gt(value, constant(0, value)))
        info = lax.select(
            lax.bitwise_and(bad, lax.eq(info, constant(0, info))), lax.full_like(info, k + np.int32(1)), info
        )
        outer = product(column, adjoint(column))
        return lax.sub(a, lax.div(outer, broadcast_to(pivot, outer.shape))), info

    start = (a, lax.full(real.shape[:-2], 0, np.int32))
    return lax.fori_loop(np.int32(0), np.int32(size), step, start)[1]


@row("linalg_cholesky_ex")
def linalg_cholesky_ex(self: Array, upper: bool, check_errors: bool) -> tuple[Array, Array]:
    """The triangular factor, and the order of the first minor that is not positive."""
    if self.size == 0:
        return self, lax.full(self.shape[:-2], 0, np.int32)
    lower = triangle(adjoint(self) if upper else self, upper=False)
    strict = triangle(lower, upper=False, offset=-1)
    whole = lax.add(lower, adjoint(strict))
    factor = triangle(lax.linalg.cholesky(whole, symmetrize_input=False), upper=False)
    failed = lax.reduce_or(lax.ne(factor, factor), tuple(range(factor.ndim)))
    none = lax.full(self.shape[:-2], 0, np.int32)
    info = lax.cond(failed, _first_bad_minor, lambda a: none, whole)
    return adjoint(factor) if upper else factor, info


@row("cholesky")
def cholesky(self: Array, upper: bool) -> Array:
    """The triangular factor (NaN where there is none)."""
    return linalg_cholesky_ex(self, upper, False)[0]


def _cholesky_solved(b: Array, factor: Array, upper: bool) -> Array:
    first = solved(factor, b, upper=upper, transpose=upper, conj=upper)
    return solved(factor, first, upper=upper, transpose=not upper, conj=not upper)


@row("cholesky_solve")
def cholesky_solve(self: Array, input2: Array, upper: bool) -> Array:
    """x with A x = self, A given by its factor input2."""
    return _cholesky_solved(self, input2, upper)


@row("cholesky_inverse")
def cholesky_inverse(self: Array, upper: bool) -> Array:
    """The inverse of the matrix with this factor."""
    return _cholesky_solved(identity(self.shape, self.dtype), self, upper)


@row("linalg_qr")
def linalg_qr(A: Array, mode: str, out: Out) -> tuple[Array, Array]:
    """Q and R; Q is empty in mode "r"."""
    if A.size == 0:
        q = identity(out[0][0], A.dtype) if len(out[0][0]) > 1 else lax.full(out[0][0], 0, A.dtype)
        return q, lax.full(out[1][0], 0, A.dtype)
    q, r = lax.linalg.qr(A, full_matrices=mode == "complete")
    return (lax.full(out[0][0], 0, A.dtype) if mode == "r" else q), triangle(r, upper=True)


@row("linalg_householder_product")
def linalg_householder_product(input: Array, tau: Array) -> Array:
    """The first columns of a product of Householder reflections."""
    if input.size == 0 or tau.shape[-1] == 0:
        return identity(input.shape, input.dtype)
    return lax.linalg.householder_product(input, tau)


@row("ormqr")
def ormqr(self: Array, input2: Array, input3: Array, left: bool, transpose: bool) -> Array:
    """input3 times the Q of reflections (self, input2), on either side."""
    if input3.size == 0:
        return input3
    return lax.linalg.ormqr(self, input2, input3, left=left, transpose=transpose)


@row("linalg_cross", promote=Promote.DEFAULT)
def linalg_cross(self: Array, other: Array, dim: int) -> Array:
    """The cross product of 3-vectors along a dim."""
    dim = wrap_dim(dim, self.ndim)

    def turned(x: Array, by: int) -> Array:
        head = lax.slice_in_dim(x, by, 3, axis=dim)
        return lax.concatenate([head, lax.slice_in_dim(x, 0, by, axis=dim)], dim)

    return lax.sub(lax.mul(turned(self, 1), turned(other, 2)), lax.mul(turned(self, 2), turned(other, 1)))


# Coefficients of the (13, 13) Pade approximant of exp: Higham, SIAM J. Matrix Anal. Appl. 26 (2005), table 2.3.
_PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
_THETA = 5.371920351148152


@row("linalg_matrix_exp")
def linalg_matrix_exp(self: Array) -> Array:
    """exp of square matrices: scaling, the (13, 13) Pade approximant, squaring."""
    if self.size == 0 or self.shape[-1] == 0:
        return self
    if opmath(self.dtype) != self.dtype:
        return as_dtype(linalg_matrix_exp(as_dtype(self, opmath(self.dtype))), self.dtype)
    norm = lax.reduce_max(lax.reduce_sum(lax.abs(self), (self.ndim - 2,)), tuple(range(self.ndim - 1)))
    ratio = lax.log(lax.max(lax.div(norm, constant(_THETA, norm)), constant(1, norm)))
    squarings = lax.ceil(lax.div(ratio, constant(np.log(2), norm)))
    squarings = lax.clamp(constant(0, norm), squarings, constant(64, norm))
    shrink = lax.convert_element_type(lax.exp2(lax.neg(squarings)), self.dtype)
    a = lax.mul(self, lax.broadcast(shrink, self.shape))
    one = identity(a.shape, a.dtype)
    a2 = product(a, a)
    a4 = product(a2, a2)
    a6 = product(a4, a2)

    def combined(start: int, terms: tuple[Array, ...]) -> Array:
        total = lax.mul(terms[0], constant(_PADE[start], a))
        for index, term in enumerate(terms[1:], start=1):
            total = lax.add(total, lax.mul(term, constant(_PADE[start + 2 * index], a)))
        return total

    low = (one, a2, a4, a6)
    odd = product(a, lax.add(product(a6, combined(9, (a2, a4, a6))), combined(1, low)))
    even = lax.add(product(a6, combined(8, (a2, a4, a6))), combined(0, low))
    from torch_pjrt.lowerings.linalg_lu import solve

    result = solve(lax.sub(even, odd), lax.add(even, odd))
    return lax.fori_loop(np.int32(0), lax.convert_element_type(squarings, np.int32), lambda _, x: product(x, x), result)
