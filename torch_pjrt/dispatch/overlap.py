"""Memory that a written tensor shares with itself or with the call's operands: what torch's CPU kernels refuse.

Values are immutable here, so such writes would be well defined; they are refused since a program that relies on them fails
on other devices. As in torch, only tensors without gaps and repetitions are told apart (`TOO_HARD` otherwise: let through).
Called by dispatch/kernels.py before writes, once two operands are seen to have one payload.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import torch
from torch._ops import OpOverload

from torch_pjrt.errors import OverlappingWriteError
from torch_pjrt.tensor.layout import has_overlap

# Operators whose output may not share memory with an operand even when both are the same elements.
UNSHARED = frozenset(f"aten::{n}" for n in ("cat", "gather", "index_select", "kthvalue", "masked_select", "take"))
UNSHARED_IN_PLACE = frozenset(
    f"aten::{n}_"
    for n in ("index_add", "index_copy", "index_put", "index_reduce", "put", "scatter", "scatter_add", "scatter_reduce")
)
# Pointwise operators that read their tensor operand before they write; and one that has no tag, but is pointwise.
READ_FIRST = frozenset(("aten::fill_", "aten::masked_fill_", "aten::ldexp_"))
UNTAGGED = frozenset(("aten::floor_divide_",))


class Overlap(enum.Enum):
    """How the memory of two tensors meets."""

    NONE, SAME, PART, TOO_HARD = range(4)


def _dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie side by side, in whatever order of dims."""
    expected = 1
    for stride, n in sorted((s, n) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= n
    return True


def overlap_of(a: torch.Tensor, b: torch.Tensor) -> Overlap:
    """What torch says of two tensors' memory."""
    if a is b:
        return Overlap.SAME
    if 0 in (a.numel(), b.numel()) or a.device != b.device:
        return Overlap.NONE
    if a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return Overlap.NONE
    if not (_dense(a) and _dense(b)):
        return Overlap.TOO_HARD
    (low, high), (first, last) = (
        (t.storage_offset() * t.element_size(), (t.storage_offset() + t.numel()) * t.element_size()) for t in (a, b)
    )
    if (low, high) == (first, last):
        return Overlap.SAME if a.stride() == b.stride() else Overlap.PART
    return Overlap.PART if low < last and first < high else Overlap.NONE


def refuse_repeated(name: str, target: torch.Tensor) -> None:
    """Refuse an out= argument in which several elements share one place."""
    if has_overlap(tuple(target.shape), target.stride()):
        raise OverlappingWriteError(
            f"unsupported operation: more than one element of the written-to tensor of {name.removeprefix('aten::')} refers "
            "to a single memory location",
            todo="Clone the output before the call.",
        )


def refuse_shared(name: str, target: torch.Tensor, operands: Iterable[object], unshared: frozenset[str]) -> None:
    """Refuse to write a tensor that shares memory with an operand: in part, or at all for the operators in `unshared`."""
    for operand in operands:
        if isinstance(operand, (list, tuple)):
            refuse_shared(name, target, operand, unshared)
        elif isinstance(operand, torch.Tensor):
            found = overlap_of(target, operand)
            if found is Overlap.PART or found is Overlap.SAME and name in unshared:
                raise OverlappingWriteError(
                    f"unsupported operation: some elements of the input tensor and the written-to tensor of "
                    f"{name.removeprefix('aten::')} refer to a single memory location",
                    todo="Clone the input before the call.",
                )


def checked_in_place(op: OpOverload, twin: OpOverload) -> bool:
    """Whether torch's CPU kernel of an in-place overload looks for shared memory: the pointwise ones do, and the indexed."""
    name = op._schema.name
    if name in UNSHARED_IN_PLACE or name in UNTAGGED:
        return True
    return name not in READ_FIRST and torch.Tag.pointwise in (*op.tags, *twin.tags)
