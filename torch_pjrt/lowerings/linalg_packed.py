"""Factorizations in LAPACK's packed forms, which XLA does not offer: geqrf (Householder vectors), LDL (Bunch and Kaufman).

Each is a loop over columns that updates the whole matrix under masks, so the program's size does not depend on the matrix.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, broadcast_to, constant, iota, is_complex
from torch_pjrt.lowerings.linalg import adjoint, batched, product, swapped, triangle
from torch_pjrt.ops.registry import row


def _real(x: Array) -> Array:
    return lax.real(x) if is_complex(x) else x


def _like(real: Array, x: Array) -> Array:
    """A real array in x's dtype."""
    return lax.convert_element_type(real, x.dtype)


def _column(a: Array, k: Array) -> Array:
    """Column k as [..., n]."""
    return lax.squeeze(lax.dynamic_slice_in_dim(a, k, 1, a.ndim - 1), (a.ndim - 1,))


def _entry(x: Array, k: Array) -> Array:
    """Entry k of the last dim as [...]."""
    return lax.squeeze(lax.dynamic_slice_in_dim(x, k, 1, x.ndim - 1), (x.ndim - 1,))


def _last(x: Array, like: Array) -> Array:
    """[...] against [..., n]."""
    return lax.broadcast_in_dim(x, like.shape, tuple(range(x.ndim)))


def _size(x: Array) -> Array:
    """The 2-norm along the last dim, scaled so that it does not overflow."""
    size = lax.abs(x)
    top = lax.reduce(size, np.zeros((), size.dtype), lax.max, (size.ndim - 1,))
    safe = lax.select(lax.gt(top, constant(0, top)), top, constant(1, top))
    ratio = lax.div(size, _last(safe, size))
    return lax.mul(top, lax.sqrt(lax.reduce_sum(lax.mul(ratio, ratio), (size.ndim - 1,))))


@row("geqrf")
def geqrf(self: Array) -> tuple[Array, Array]:
    """R with the Householder vectors below it, and their factors tau: H = I - tau v v^H, v starting with 1."""
    rows, columns = self.shape[-2:]
    count = min(rows, columns)
    tau = lax.full((*self.shape[:-2], count), 0, self.dtype)
    if self.size == 0 or count == 0:
        return self, tau

    def step(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        a, tau = carry
        k = lax.convert_element_type(k, np.int32)
        x = _column(a, k)
        place = iota(x.shape, x.ndim - 1, np.int32)
        head = _entry(x, k)
        below = lax.select(lax.gt(place, k), x, constant(0, x))
        tail = _size(below)
        none = lax.eq(tail, constant(0, tail))
        if is_complex(x):
            none = lax.bitwise_and(none, lax.eq(lax.imag(head), constant(0, tail)))
        norm = _size(lax.concatenate([lax.expand_dims(lax.abs(head), (head.ndim,)), lax.expand_dims(tail, (tail.ndim,))],
                                     tail.ndim))  # fmt: skip
        negative = lax.lt(_real(head), constant(0, tail))
        beta = lax.select(negative, norm, lax.neg(norm))
        beta = lax.select(none, _real(head), beta)
        wide = _like(beta, x)
        factor = lax.div(lax.sub(wide, head), lax.select(none, constant(1, wide), wide))
        factor = lax.select(none, constant(0, factor), factor)
        divisor = lax.select(none, constant(1, head), lax.sub(head, wide))
        v = lax.div(below, _last(divisor, x))
        whole = lax.select(lax.eq(place, k), constant(1, v), v)
        matrix = lax.expand_dims(whole, (whole.ndim,))
        moved = product(matrix, product(adjoint(matrix), a))
        conj = lax.conj(factor) if is_complex(x) else factor
        turned = lax.sub(a, lax.mul(moved, lax.broadcast_in_dim(conj, a.shape, tuple(range(conj.ndim)))))
        column = lax.select(lax.lt(place, k), x, lax.select(lax.eq(place, k), _last(wide, x), v))
        at = iota(a.shape, a.ndim - 1, np.int32)
        a = lax.select(lax.gt(at, k), turned, lax.select(lax.eq(at, k), broadcast_to(
            lax.expand_dims(column, (column.ndim,)), a.shape), a))  # fmt: skip
        return a, lax.select(lax.eq(iota(tau.shape, tau.ndim - 1, np.int32), k), _last(factor, tau), tau)

    return lax.fori_loop(np.int32(0), np.int32(count), step, (self, tau))  # type: ignore[no-any-return]


# -- LDL ---------------------------------------------------------------------------------------------------------------

_ALPHA = (1 + math.sqrt(17)) / 8  # Bunch and Kaufman, 1977: bounds the growth of 1x1 and 2x2 pivots alike


def _exchanged(a: Array, i: Array, j: Array, start: Array, hermitian: bool) -> Array:
    """The lower triangle of a symmetric matrix with rows and columns i and j (i <= j) exchanged from column start on.

    The triangle is mirrored first, so that the exchange is one of whole rows and columns.
    """
    n = a.shape[-1]
    row_at, column_at = iota(a.shape, 0, np.int32), iota(a.shape, 1, np.int32)
    mirror = lax.conj(swapped(a)) if hermitian and is_complex(a) else swapped(a)
    whole = lax.select(lax.ge(row_at, column_at), a, mirror)
    place = iota((n,), 0, np.int32)
    order = lax.select(
        lax.eq(place, i), lax.broadcast(j, (n,)), lax.select(lax.eq(place, j), lax.broadcast(i, (n,)), place)
    )
    hit = lax.convert_element_type(
        lax.eq(lax.broadcast_in_dim(order, (n, n), (0,)), iota((n, n), 1, np.int32)), np.bool_
    )
    turn = _like(lax.convert_element_type(hit, np.float32), a)
    moved = product(product(turn, whole), swapped(turn))
    # a permutation by products: exact, since every sum has one term (but 0 * inf is NaN: use it on finite entries only)
    inside = lax.bitwise_and(lax.ge(row_at, column_at), lax.ge(column_at, start))
    return lax.select(inside, moved, a)


def _ldl_one(a: Array, hermitian: bool) -> tuple[Array, Array, Array]:
    """One matrix: LD in its lower triangle, pivots as LAPACK numbers them, info."""
    n = a.shape[-1]
    place = iota((n,), 0, np.int32)
    rows, columns = iota((n, n), 0, np.int32), iota((n, n), 1, np.int32)
    conj = hermitian and is_complex(a)
    zero = np.int32(0)

    def at(x: Array, i: Array, j: Array) -> Array:
        return lax.squeeze(lax.dynamic_slice(x, (i, j), (1, 1)), (0, 1))

    def largest(sizes: Array, allowed: Array) -> tuple[Array, Array]:
        masked = lax.select(allowed, sizes, constant(-1, sizes))
        where = lax.argmax(masked, 0, np.int32)
        top = lax.squeeze(lax.dynamic_slice(masked, (where,), (1,)), (0,))
        return lax.max(top, constant(0, top)), where

    def measure(x: Array) -> Array:
        return lax.abs(lax.real(x)) if conj else (
            lax.add(lax.abs(lax.real(x)), lax.abs(lax.imag(x))) if is_complex(x) else lax.abs(x)
        )  # fmt: skip

    def cabs(x: Array) -> Array:
        return lax.add(lax.abs(lax.real(x)), lax.abs(lax.imag(x))) if is_complex(x) else lax.abs(x)

    def unfinished(carry: Any) -> Array:
        return lax.lt(carry[1], np.int32(n))

    def step(carry: Any) -> Any:
        a, k, pivots, info = carry
        if conj:
            on = lax.bitwise_and(lax.eq(rows, columns), lax.eq(rows, k))
            a = lax.select(on, _like(lax.real(a), a), a)
        here = measure(at(a, k, k))
        colmax, imax = largest(cabs(_column(a, k)), lax.gt(place, k))
        singular = lax.bitwise_or(lax.eq(lax.max(here, colmax), constant(0, here)), lax.ne(here, here))
        line = lax.squeeze(lax.dynamic_slice(a, (imax, zero), (1, n)), (0,))
        before, _ = largest(cabs(line), lax.bitwise_and(lax.ge(place, k), lax.lt(place, imax)))
        after, _ = largest(cabs(_column(a, imax)), lax.gt(place, imax))
        rowmax = lax.max(before, after)
        alpha = constant(_ALPHA, here)
        simple = lax.bitwise_or(singular, lax.ge(here, lax.mul(alpha, colmax)))
        ratio = lax.div(colmax, lax.select(lax.gt(rowmax, constant(0, rowmax)), rowmax, constant(1, rowmax)))
        simple = lax.bitwise_or(simple, lax.ge(here, lax.mul(alpha, lax.mul(colmax, ratio))))
        one = lax.ge(measure(at(a, imax, imax)), lax.mul(alpha, rowmax))
        two = lax.bitwise_and(lax.bitwise_not(simple), lax.bitwise_not(one))
        kp = lax.select(simple, k, imax)
        kk = lax.select(two, lax.add(k, np.int32(1)), k)
        exchanged = _exchanged(a, kk, kp, k, conj)
        a = lax.select(lax.broadcast(lax.eq(kk, kp), a.shape), a, exchanged)
        # trailing update: W D^-1 W^H with one or two columns
        k1 = lax.min(lax.add(k, np.int32(1)), np.int32(n - 1))
        bound = lax.select(two, lax.add(k, np.int32(1)), k)
        below = lax.gt(place, bound)
        c0, c1 = (lax.select(below, _column(a, c), constant(0, _column(a, c))) for c in (k, k1))
        d00, d10, d11 = at(a, k, k), at(a, k1, k), at(a, k1, k1)
        d01 = lax.conj(d10) if conj else d10
        nought, unit = constant(0, d00), constant(1, d00)
        det = lax.sub(lax.mul(d00, d11), lax.mul(d10, d01))
        safe0 = lax.select(lax.eq(d00, nought), unit, d00)
        safe = lax.select(lax.bitwise_or(lax.bitwise_not(two), lax.eq(det, nought)), unit, det)
        # L = C D^-1, rows: [l0 l1] = [c0 c1] inv([[d00 d01] [d10 d11]])
        l0_two = lax.div(lax.sub(lax.mul(c0, _last(d11, c0)), lax.mul(c1, _last(d10, c0))), _last(safe, c0))
        l1_two = lax.div(lax.sub(lax.mul(c1, _last(d00, c0)), lax.mul(c0, _last(d01, c0))), _last(safe, c0))
        both, dull = lax.broadcast(two, (n,)), lax.broadcast(singular, (n,))
        l0 = lax.select(both, l0_two, lax.select(dull, c0, lax.div(c0, _last(safe0, c0))))
        l1 = lax.select(both, l1_two, constant(0, c1))
        w0, w1 = c0, lax.select(both, c1, constant(0, c1))
        if conj:
            w0, w1 = lax.conj(w0), lax.conj(w1)

        def outer(x: Array, y: Array) -> Array:
            return lax.mul(lax.broadcast_in_dim(x, (n, n), (0,)), lax.broadcast_in_dim(y, (n, n), (1,)))

        update = lax.add(outer(l0, w0), outer(l1, w1))
        trailing = lax.bitwise_and(lax.ge(rows, columns), lax.gt(columns, bound))
        trailing = lax.bitwise_and(trailing, lax.broadcast(lax.bitwise_not(singular), (n, n)))
        a = lax.select(trailing, lax.sub(a, update), a)
        put = lax.broadcast_in_dim(below, (n, n), (0,))
        first = lax.bitwise_and(put, lax.eq(columns, k))
        second = lax.bitwise_and(lax.bitwise_and(put, lax.eq(columns, k1)), lax.broadcast(two, (n, n)))
        a = lax.select(first, lax.broadcast_in_dim(l0, (n, n), (0,)), a)
        a = lax.select(second, lax.broadcast_in_dim(l1, (n, n), (0,)), a)
        number = lax.add(kp, np.int32(1))
        number = lax.select(two, lax.neg(number), number)
        mine = lax.bitwise_or(lax.eq(place, k), lax.bitwise_and(lax.eq(place, k1), lax.broadcast(two, (n,))))
        pivots = lax.select(mine, lax.broadcast(number, (n,)), pivots)
        bad = lax.bitwise_and(singular, lax.eq(info, zero))
        info = lax.select(bad, lax.add(k, np.int32(1)), info)
        return a, lax.add(k, lax.select(two, np.int32(2), np.int32(1))), pivots, info

    start = (a, zero, lax.full((n,), 0, np.int32), zero)
    found = lax.while_loop(unfinished, step, start)
    return triangle(found[0], upper=False), found[2], found[3]


@row("linalg_ldl_factor_ex")
def ldl_factor(self: Array, hermitian: bool, check_errors: bool) -> tuple[Array, Array, Array]:
    """(LD, pivots, info) of symmetric or Hermitian matrices, from their lower triangles."""
    batch, n = self.shape[:-2], self.shape[-1]
    if self.size == 0:
        return self, lax.full((*batch, n), 0, np.int32), lax.full(batch, 0, np.int32)
    flat = lax.reshape(self, (math.prod(batch), n, n))
    factors, pivots, info = lax.map(lambda a: _ldl_one(a, hermitian), flat)
    return lax.reshape(factors, self.shape), lax.reshape(pivots, (*batch, n)), lax.reshape(info, batch)


def _ldl_solved(a: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    """x with P L D L^H P^T x = b for one matrix: LAPACK's exchanges are undone and redone around each column."""
    n = a.shape[-1]
    place = iota((n,), 0, np.int32)
    conj = hermitian and is_complex(a)

    def exchanged(b: Array, i: Array, j: Array) -> Array:
        order = lax.select(
            lax.eq(place, i), lax.broadcast(j, (n,)), lax.select(lax.eq(place, j), lax.broadcast(i, (n,)), place)
        )
        numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
        return lax.gather(b, lax.expand_dims(order, (1,)), numbers, (1, b.shape[1]), mode="promise_in_bounds")

    def line(b: Array, k: Array) -> Array:
        return lax.dynamic_slice(b, (k, np.int32(0)), (1, b.shape[1]))

    def whole(x: Array) -> Array:
        return broadcast_to(x, b.shape)

    def facts(k: Array) -> tuple[Array, Array, Array, Array]:
        pivot = lax.squeeze(lax.dynamic_slice(pivots, (k,), (1,)), (0,))
        two = lax.lt(pivot, np.int32(0))
        k1 = lax.min(lax.add(k, np.int32(1)), np.int32(n - 1))
        kp = lax.sub(lax.abs(pivot), np.int32(1))
        return two, k1, kp, lax.select(two, k1, k)

    def column(k: Array, bound: Array) -> Array:
        x = _column(a, k)
        return lax.expand_dims(lax.select(lax.gt(place, bound), x, constant(0, x)), (1,))

    def forward(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        b, k = carry
        two, k1, kp, kk = facts(k)
        b = exchanged(b, kk, kp)
        c0, c1 = column(k, kk), column(k1, kk)
        c1 = lax.select(lax.broadcast(two, c1.shape), c1, constant(0, c1))
        moved = lax.add(lax.mul(whole(c0), whole(line(b, k))), lax.mul(whole(c1), whole(line(b, k1))))
        b = lax.sub(b, moved)
        first, second = line(b, k), line(b, k1)

        def at(i: Array, j: Array) -> Array:
            return broadcast_to(lax.dynamic_slice(a, (i, j), (1, 1)), first.shape)

        d00, d10, d11 = at(k, k), at(k1, k), at(k1, k1)
        d01 = lax.conj(d10) if conj else d10
        det = lax.sub(lax.mul(d00, d11), lax.mul(d10, d01))
        both = lax.broadcast(two, first.shape)
        x0 = lax.select(both, lax.div(lax.sub(lax.mul(d11, first), lax.mul(d01, second)), det), lax.div(first, d00))
        x1 = lax.select(both, lax.div(lax.sub(lax.mul(d00, second), lax.mul(d10, first)), det), second)
        b = lax.dynamic_update_slice(b, x1, (k1, np.int32(0)))
        b = lax.dynamic_update_slice(b, x0, (k, np.int32(0)))
        return b, lax.add(kk, np.int32(1))

    def backward(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        b, last = carry  # the block ends at row last
        pivot = lax.squeeze(lax.dynamic_slice(pivots, (last,), (1,)), (0,))
        two = lax.lt(pivot, np.int32(0))
        k = lax.select(two, lax.sub(last, np.int32(1)), last)
        for at_column, only_two in ((k, False), (last, True)):
            c = column(at_column, last)
            c = lax.conj(c) if conj else c
            dot = lax.reduce_sum(lax.mul(whole(c), b), (0,))
            new = lax.sub(line(b, at_column), lax.expand_dims(dot, (0,)))
            keep = lax.broadcast(lax.bitwise_not(two), new.shape)
            new = lax.select(keep, line(b, at_column), new) if only_two else new
            b = lax.dynamic_update_slice(b, new, (at_column, np.int32(0)))
        return exchanged(b, last, lax.sub(lax.abs(pivot), np.int32(1))), lax.sub(k, np.int32(1))

    b = lax.while_loop(lambda c: lax.lt(c[1], np.int32(n)), forward, (b, np.int32(0)))[0]
    return lax.while_loop(lambda c: lax.ge(c[1], np.int32(0)), backward, (b, np.int32(n - 1)))[0]  # type: ignore[no-any-return]


@row("linalg_ldl_solve")
def ldl_solve(LD: Array, pivots: Array, B: Array, hermitian: bool) -> Array:
    """x with A x = B, A given by its LDL factors."""
    factors, right = batched(LD, B)
    if right.size == 0:
        return right
    batch, n = factors.shape[:-2], factors.shape[-1]
    count = math.prod(batch)
    at = lax.reshape(broadcast_to(pivots, (*batch, n)), (count, n))
    flat = lax.reshape(factors, (count, n, n)), at, lax.reshape(right, (count, *right.shape[-2:]))
    solved = lax.map(lambda x: _ldl_solved(x[0], x[1], x[2], hermitian), flat)
    return lax.reshape(solved, right.shape)
