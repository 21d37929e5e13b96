"""Inputs that are parts of larger storages: a capture holds for every position at which such an input starts.

Where a block starts in its storage's payload is an operand of each step that reads or writes it (program/access.py). Here
those operands are found among a capture's numbers, each as a distance from where the input started then, so that
`step(cache[:, i])` is captured once for all i. Graphs that name absolute positions are captured for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_pjrt.program.access import AccessPlan, offset_of, starts_at
from torch_pjrt.program.program import Template
from torch_pjrt.tensor.mutate import WRITE

Numbers = list[tuple[Any, ...]]
Step = tuple[Template, tuple[int, ...]]
_ABSOLUTE = ("aten::as_strided", "aten::set_", "aten::resize", "aten::sym_storage_offset", "aten::_reinterpret_tensor")
_KEPT = 4096  # positions whose numbers are kept


@dataclass(frozen=True, slots=True)
class Place:
    """Numbers of a step that say where a part of an input's storage starts: `after` bytes from where the input does."""

    step: int
    first: int
    plan: AccessPlan
    part: int
    after: int


@dataclass(slots=True)
class Positions:
    """Where the inputs that are parts of storages started at the capture, in bytes, and the places that follow from it."""

    starts: tuple[int, ...]
    places: list[Place]
    numbers: Numbers  # those of the capture
    known: dict[tuple[int, ...], Numbers | None] = field(default_factory=dict)

    def numbers_at(self, starts: tuple[int, ...]) -> Numbers | None:
        """The numbers for inputs that start elsewhere; None where one of the plans has no block there."""
        if starts == self.starts:
            return self.numbers
        if starts not in self.known:
            if len(self.known) >= _KEPT:
                self.known.clear()
            self.known[starts] = self._moved(starts)
        return self.known[starts]

    def _moved(self, starts: tuple[int, ...]) -> Numbers | None:
        numbers = list(self.numbers)
        for place in self.places:
            offset, rest = divmod(starts[place.part] + place.after, place.plan.dtype.itemsize)
            moved = None if rest else starts_at(place.plan, offset)
            if moved is None:
                return None
            old = numbers[place.step]
            numbers[place.step] = (*old[: place.first], *moved, *old[place.first + len(moved) :])
        return numbers


def positions_of(
    steps: Sequence[Step], numbers: Numbers, parts: dict[int, int], starts: tuple[int, ...], num_inputs: int
) -> Positions:
    """What follows from where inputs start. parts: of each such input's number, which of `starts` (in bytes) is its own."""
    part_of = dict(parts)  # of a value that is the contents of such an input's storage
    places = []
    result = num_inputs
    for s, (template, operands) in enumerate(steps):
        for first, plan, value in _plans(template, operands):
            part = part_of.get(value)
            if part is not None:
                offset = offset_of(plan, numbers[s][first : first + plan.num_starts])
                places.append(Place(s, first, plan, part, offset * plan.dtype.itemsize - starts[part]))
        if template.row is WRITE and operands[0] in part_of:
            part_of[result] = part_of[operands[0]]
        result += len(template.outs)
    return Positions(starts, places, numbers)


def _plans(template: Template, operands: Sequence[int]) -> Iterator[tuple[int, AccessPlan, int]]:
    """The plans of a step that take starts: where in its numbers these are, and the value that is read or written."""
    at = 0
    for aval, value in zip(template.avals, operands, strict=True):
        if aval.plan is not None and aval.plan.num_starts:
            yield at, aval.plan, value
            at += aval.plan.num_starts
    if template.row is WRITE:
        plan = dict(template.bindings)["plan"][1]
        if plan.num_starts:
            yield at, plan, operands[0]


def names_positions(graph: torch.fx.GraphModule) -> bool:
    """Whether a graph may name positions in a storage by themselves, or holds bodies that were captured with theirs."""
    return any(
        node.op == "get_attr"
        and isinstance(getattr(graph, str(node.target), None), torch.nn.Module)
        or isinstance(node.target, torch._ops.HigherOrderOperator)
        or isinstance(node.target, torch._ops.OpOverload)
        and node.target.name().startswith(_ABSOLUTE)
        for node in graph.graph.nodes
    )
