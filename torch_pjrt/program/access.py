"""How a tensor's elements lie in its storage's payload, and the pure functions that read and write them there.

Owns the plans and their evaluation in jax.lax. tensor/layout.py decides which plan a (size, stride, offset) gets;
program/evaluate.py applies them. Offsets are operands: two slices that differ only in position share a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from jax import lax

Array = Any


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """One way to find a tensor's elements in a payload of `length` elements (counted in `dtype`).

    The flat payload, padded to prod(grid), is seen as an array of shape `grid` (dims in falling stride order); the
    tensor is the block of shape `block` in it, at starts that are operands where block < grid and 0 elsewhere.
    `perm` brings the block's dims into the tensor's order, `kept` are the tensor dims they are (the others have size 1
    or stride 0), `size` is the tensor's shape. Where no grid exists, `strides` is set and elements are gathered.
    """

    dtype: np.dtype
    length: int
    size: tuple[int, ...]
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    perm: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None

    @property
    def num_starts(self) -> int:
        """How many int64 operands the plan takes."""
        return 1 if self.strides is not None else sum(self.moves)

    @property
    def moves(self) -> tuple[bool, ...]:
        """Per dim of the grid, whether the block's start in it is an operand."""
        return tuple(b < g for b, g in zip(self.block, self.grid, strict=True))


def starts_at(plan: AccessPlan, offset: int) -> tuple[int, ...] | None:
    """The starts of a tensor at this element of its payload; None where the plan's grid has no such block."""
    if plan.strides is not None:
        return (offset,)
    starts: list[int] = []
    for index, (extent, size) in enumerate(zip(plan.grid, plan.block, strict=True)):
        start, offset = divmod(offset, prod(plan.grid[index + 1 :]))
        if start + size > extent:
            return None
        starts.append(start)
    return tuple(s for s, moves in zip(starts, plan.moves, strict=True) if moves)


def offset_of(plan: AccessPlan, starts: Sequence[int]) -> int:
    """The element of its payload at which a tensor with these starts begins."""
    if plan.strides is not None:
        return starts[0]
    supply = iter(starts)
    steps = (prod(plan.grid[index + 1 :]) for index in range(len(plan.grid)))
    return sum(next(supply) * step for step, moves in zip(steps, plan.moves, strict=True) if moves)


def bitcast_flat(flat: Array, dtype: np.dtype) -> Array:
    """Reinterpret a 1-d array's bytes as another dtype (as torch's view(dtype) does); a partial last element is dropped."""
    if flat.dtype == dtype:
        return flat
    if flat.dtype == np.bool_:
        flat = lax.convert_element_type(flat, np.uint8)
    if np.issubdtype(flat.dtype, np.complexfloating):
        parts = [lax.expand_dims(lax.real(flat), (1,)), lax.expand_dims(lax.imag(flat), (1,))]
        flat = lax.reshape(lax.concatenate(parts, 1), (flat.shape[0] * 2,))
    if np.issubdtype(dtype, np.complexfloating):
        real = np.dtype(np.float32 if dtype == np.complex64 else np.float64)
        pairs = bitcast_flat(flat, real)
        pairs = lax.reshape(lax.slice(pairs, (0,), (pairs.shape[0] // 2 * 2,)), (pairs.shape[0] // 2, 2))
        return lax.complex(lax.index_in_dim(pairs, 0, 1, False), lax.index_in_dim(pairs, 1, 1, False))
    if dtype == np.bool_:
        return lax.ne(bitcast_flat(flat, np.dtype(np.uint8)), np.uint8(0))
    if flat.dtype.itemsize < dtype.itemsize:
        ratio = dtype.itemsize // flat.dtype.itemsize
        whole = flat.shape[0] // ratio
        flat = lax.reshape(lax.slice(flat, (0,), (whole * ratio,)), (whole, ratio))
    out = lax.bitcast_convert_type(flat, dtype)
    return lax.reshape(out, (out.size,))


def _starts(plan: AccessPlan, starts: list[Array]) -> list[Array]:
    supply = iter(starts)
    return [next(supply) if moves else np.int64(0) for moves in plan.moves]


def _positions(plan: AccessPlan, offset: Array) -> Array:
    assert plan.strides is not None
    index = lax.full(plan.size, 0, np.int64)
    for dim, stride in enumerate(plan.strides):
        step = lax.full(plan.size, stride, np.int64)  # a stride may be a symbolic size of jax.export
        index = lax.add(index, lax.mul(lax.broadcasted_iota(np.int64, plan.size, dim), step))
    return lax.add(index, lax.broadcast(offset, plan.size))


def _grid_view(payload: Array, plan: AccessPlan) -> Array:
    flat = bitcast_flat(lax.reshape(payload, (payload.size,)), plan.dtype)
    short = prod(plan.grid) - flat.shape[0]
    if not isinstance(short, int) or short:  # not an int: a symbolic size of jax.export
        flat = lax.pad(flat, np.zeros((), plan.dtype), [(0, short, 0)])
    return lax.reshape(flat, plan.grid)


def read(payload: Array, plan: AccessPlan | None, starts: list[Array]) -> Array:
    """The tensor's elements as an array of the tensor's shape. plan None: the payload is the tensor."""
    if plan is None:
        return payload
    if 0 in plan.size:
        return lax.full(plan.size, 0, plan.dtype)
    if plan.strides is not None:
        flat = bitcast_flat(lax.reshape(payload, (payload.size,)), plan.dtype)
        return flat.at[_positions(plan, starts[0])].get(mode="promise_in_bounds")
    block = _grid_view(payload, plan)
    if plan.num_starts:
        block = lax.dynamic_slice(block, _starts(plan, starts), plan.block)
    block = lax.reshape(block, plan.block[: len(plan.perm)])
    block = lax.transpose(block, plan.perm)
    return lax.broadcast_in_dim(block, plan.size, plan.kept)


def write(payload: Array, plan: AccessPlan | None, starts: list[Array], value: Array) -> Array:
    """The payload with the tensor's elements replaced by `value` (which has the tensor's shape and dtype)."""
    if plan is None:
        return value
    if 0 in plan.size:
        return payload
    if plan.strides is not None:
        flat = bitcast_flat(lax.reshape(payload, (payload.size,)), plan.dtype)
        flat = flat.at[_positions(plan, starts[0])].set(value)
    else:
        order = [plan.kept[plan.perm.index(i)] for i in range(len(plan.perm))]
        rest = [d for d in range(len(plan.size)) if d not in order]
        block = lax.reshape(lax.transpose(value, order + rest), plan.block)
        grid = block
        if plan.num_starts:
            grid = lax.dynamic_update_slice(_grid_view(payload, plan), block, _starts(plan, starts))
        flat = lax.slice(lax.reshape(grid, (prod(plan.grid),)), (0,), (plan.length,))
    back = bitcast_flat(flat, payload.dtype)
    if back.shape[0] < payload.size:  # bytes past the last whole element keep their old value
        old = lax.reshape(payload, (payload.size,))
        back = lax.concatenate([back, lax.slice(old, (back.shape[0],), (payload.size,))], 0)
    return lax.reshape(back, payload.shape)
