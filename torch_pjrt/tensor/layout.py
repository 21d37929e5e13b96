"""Decides how a tensor (size, stride, offset, dtype) is found in its storage's payload: an Aval and its start operands.

The plans themselves, and how they are evaluated, are in program/access.py. Pure Python over ints; no arrays, no device.
"""

from __future__ import annotations

from math import prod

import torch

from torch_pjrt.ops.dtypes import TO_NUMPY
from torch_pjrt.program.access import AccessPlan
from torch_pjrt.program.program import Aval, Spec

Ints = tuple[int, ...]
_MAX_CACHED = 200_000

_avals: dict[tuple[Spec, AccessPlan | None, Ints, Ints, torch.dtype], Aval] = {}
# (spec, size, stride, offset, dtype) -> what aval_of gives; dispatch/bind.py reads it first
found: dict[tuple[Spec, Ints, Ints, int, torch.dtype], tuple[Aval, Ints]] = {}


def aval_of(spec: Spec, size: Ints, stride: Ints, offset: int, dtype: torch.dtype) -> tuple[Aval, Ints]:
    """The Aval of a tensor over a payload, and the int64 operands that its plan takes. Cached."""
    key = (spec, size, stride, offset, dtype)
    hit = found.get(key)
    if hit is not None:
        return hit
    plan, starts = _plan(spec, tuple(size), tuple(stride), offset, dtype)
    identity = (spec, plan, tuple(size), tuple(stride), dtype)
    aval = _avals.get(identity)
    if aval is None:
        aval = _avals.setdefault(identity, Aval(spec, plan, identity[2], identity[3], dtype))
    if len(found) > _MAX_CACHED:
        found.clear()
    found[key] = (aval, starts)
    return aval, starts


def contiguous_strides(size: Ints) -> Ints:
    """Row-major strides, as torch gives them (a dim of size 0 counts as 1)."""
    out, step = [], 1
    for n in reversed(size):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


def has_overlap(size: Ints, stride: Ints) -> bool:
    """Whether several elements certainly share one location (an expanded dim), as torch's write check asks."""
    return prod(size) > 1 and any(s == 0 and n > 1 for n, s in zip(size, stride, strict=True))


def _plan(spec: Spec, size: Ints, stride: Ints, offset: int, dtype: torch.dtype) -> tuple[AccessPlan | None, Ints]:
    np_dtype = TO_NUMPY[dtype]
    length = spec.nbytes // np_dtype.itemsize
    if spec.dtype == np_dtype and offset == 0 and size == spec.shape and _row_major(size, stride):
        return None, ()
    dims = sorted((d for d in range(len(size)) if size[d] > 1 and stride[d] != 0), key=lambda d: (-stride[d], d))
    if prod(size) == 0:
        return AccessPlan(np_dtype, length, size), ()
    grid = _grid(length, [size[d] for d in dims], [stride[d] for d in dims], offset)
    if grid is None:
        return AccessPlan(np_dtype, length, size, strides=stride), (offset,)
    extents, block, starts = grid
    logical = sorted(range(len(dims)), key=lambda i: dims[i])
    plan = AccessPlan(np_dtype, length, size, extents, block, tuple(logical), tuple(sorted(dims)))
    moving = tuple(s for s, b, g in zip(starts, block, extents, strict=True) if b < g)
    return plan, moving


def _row_major(size: Ints, stride: Ints) -> bool:
    expected = 1
    for n, s in zip(reversed(size), reversed(stride), strict=True):
        if n != 1:
            if s != expected:
                return False
            expected *= n
    return True


def _grid(length: int, sizes: list[int], strides: list[int], offset: int) -> tuple[Ints, Ints, Ints] | None:
    """See the payload as an array with one dim per stride, so that the tensor is a block of it; None if it is not one."""
    extents: list[int] = []
    above = None
    for stride in strides:
        if above is None:
            extents.append(-(-length // stride))
        elif above % stride:
            return None
        else:
            extents.append(above // stride)
        above = stride
    rest = above if above is not None else length
    block = list(sizes)
    if rest > 1:  # positions between two neighbours of the fastest dim: the tensor takes one of them
        extents.append(rest)
        block.append(1)
    starts, left = [], offset
    for index in range(len(extents)):
        step = prod(extents[index + 1 :])
        start, left = divmod(left, step)
        if start + block[index] > extents[index]:
            return None
        starts.append(start)
    return tuple(extents), tuple(block), tuple(starts)
