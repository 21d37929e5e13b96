"""Facts read off an operator's schema: which arguments are tensors, Scalars or static, what is written, the functional twin.

Owns the reading of schemas. Nothing here knows the device or the rows.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload


class Kind(enum.Enum):
    """What an argument is to a program."""

    TENSOR = "tensor"  # Tensor or Tensor?
    TENSORS = "tensors"  # Tensor[] or Tensor?[]
    SCALAR = "scalar"  # Scalar, float: a 0-d operand unless the row says static
    STATIC = "static"  # int, bool, str, dtype and lists of them: part of the key
    DROPPED = "dropped"  # device, layout, pin_memory, memory_format: metadata only, never reach a row
    GENERATOR = "generator"


_DROPPED_NAMES = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a schema."""

    name: str
    kind: Kind
    kwarg_only: bool
    writes: bool
    default: Any
    is_int: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """An overload's arguments in order, and what it does to them."""

    name: str
    arguments: tuple[Argument, ...]
    num_returns: int
    writes: tuple[int, ...]  # positions of arguments that are written
    is_out: bool  # has out= arguments (written, keyword-only)
    is_view: bool  # a result aliases an argument without writing it
    returns_list: bool


def _kind(argument: torch._C.Argument) -> Kind:
    text = str(argument.type)
    bare = text.replace("Optional[", "").rstrip("]") if text.startswith("Optional[") else text
    if bare == "Tensor":
        return Kind.TENSOR
    if bare.startswith("List[") and "Tensor" in bare:
        return Kind.TENSORS
    if argument.name in _DROPPED_NAMES:
        return Kind.DROPPED
    if bare == "Generator":
        return Kind.GENERATOR
    return Kind.SCALAR if _is_number(argument) else Kind.STATIC


def _is_number(argument: torch._C.Argument) -> bool:
    real = str(argument.real_type).replace("Optional[", "").replace("?", "").rstrip("]")
    return real in ("float", "number", "Scalar", "complex")


@cache
def schema_of(op: OpOverload) -> Schema:
    """The facts of one overload (cached)."""
    raw = op._schema
    arguments = tuple(
        Argument(
            name=a.name,
            kind=_kind(a),
            kwarg_only=a.kwarg_only,
            writes=a.alias_info is not None and a.alias_info.is_write,
            default=a.default_value,
            is_int=str(a.real_type).replace("Optional[", "").rstrip("]") in ("int", "SymInt"),
        )
        for a in raw.arguments
    )
    writes = tuple(i for i, a in enumerate(arguments) if a.writes)
    view = any(r.alias_info is not None and not r.alias_info.is_write for r in raw.returns)
    return Schema(
        name=f"{raw.name}.{raw.overload_name or 'default'}",
        arguments=arguments,
        num_returns=len(raw.returns),
        writes=writes,
        is_out=bool(writes) and all(arguments[i].kwarg_only for i in writes),
        is_view=view,
        returns_list=any(str(r.type).startswith("List[") for r in raw.returns),
    )


def find_overload(name: str) -> OpOverload | None:
    """ "aten::add.Tensor" -> the overload, or None if this torch has none."""
    namespace, rest = name.split("::", 1)
    packet, overload = rest.rsplit(".", 1)
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        return None


# In-place and out= operators whose functional twin has a name of its own.
RENAMED_TWINS = {
    "normal_": "normal_functional",
    "conj_physical": "_conj_physical",
    "conj_physical_": "_conj_physical",
    "linalg_eigvals": "_linalg_eigvals",
}


@cache
def functional_twin(op: OpOverload) -> OpOverload | None:
    """The overload that computes the same without writing: add_.Tensor or add.out -> add.Tensor; None if there is none."""
    schema = schema_of(op)
    if not schema.writes:
        return op
    namespace, packet = op._schema.name.split("::")
    base = packet[:-1] if not schema.is_out and packet.endswith("_") and not packet.endswith("__") else packet
    base = RENAMED_TWINS.get(packet, base)
    if packet.startswith("__i") and packet.endswith("__"):  # __iadd__ and friends
        base = "__" + packet[3:]
    wanted = [(a.name, a.kind) for a in schema.arguments if not (schema.is_out and a.writes)]
    packet_op = getattr(getattr(torch.ops, namespace), base, None)
    if packet_op is None:
        return None
    for overload in packet_op.overloads():
        candidate = getattr(packet_op, overload)
        other = schema_of(candidate)
        if other.writes or other.is_view and not schema.is_view:
            continue
        if _same_arguments(wanted, [(a.name, a.kind) for a in other.arguments]) and _same_lists(op, candidate):
            return candidate
    return None


def _same_lists(op: OpOverload, twin: OpOverload) -> bool:
    """Whether the same arguments are lists: all.dim and all.dims differ in nothing else."""
    lists = [{a.name: "List[" in str(a.type) for a in each._schema.arguments} for each in (op, twin)]
    return all(lists[0].get(name, is_list) == is_list for name, is_list in lists[1].items())


def _same_arguments(wanted: list[tuple[str, Kind]], got: list[tuple[str, Kind]]) -> bool:
    """Equal but for arguments that are metadata only (dtype of factories, memory_format), which a twin may add."""
    essential = [x for x in got if x[1] is not Kind.DROPPED and x[0] != "dtype"]
    return essential == [x for x in wanted if x[1] is not Kind.DROPPED and x[0] != "dtype"]
