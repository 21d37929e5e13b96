"""Cuts a pending Program into segments, so that repeated structure shares one executable.

A segment is a Program over its own inputs; two segments with the same steps have the same key. Where the cuts lie decides
only speed, never results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_pjrt.program.donation import heirs
from torch_pjrt.program.program import Program, Spec, Template

Steps = Sequence[tuple[Template, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Segment:
    """A Program and where its inputs and outputs lie among the values of the whole.

    order: its steps, as numbers of the whole; args and results: global value numbers; released: values that nobody reads
    after this segment.
    """

    program: Program
    order: tuple[int, ...]
    args: tuple[int, ...]
    results: tuple[int, ...]
    released: tuple[int, ...]


def build_segments(
    steps: Steps,
    in_specs: Sequence[Spec],
    live: Sequence[bool],
    dead_inputs: Sequence[bool],
    groups: Sequence[Sequence[int]],
) -> list[Segment]:
    """Segments for groups of step numbers (in running order). live: per result value, whether it is wanted afterwards;
    dead_inputs: per input, whether nobody else holds it (its buffer may be reused)."""
    num_inputs = len(in_specs)
    first_out, specs = _numbering(steps, in_specs)
    group_of_value = [-1] * len(specs)
    last_use = [-1] * len(specs)
    for g, group in enumerate(groups):
        for s in group:
            template, operands = steps[s]
            for v in operands:
                last_use[v] = g
            for k in range(len(template.outs)):
                group_of_value[first_out[s] + k] = g
    segments = []
    for g, group in enumerate(groups):
        segments.append(
            _segment(g, group, steps, specs, first_out, num_inputs, live, dead_inputs, last_use, group_of_value)
        )
    return segments


def _numbering(steps: Steps, in_specs: Sequence[Spec]) -> tuple[list[int], list[Spec]]:
    specs = list(in_specs)
    first_out = []
    for template, _ in steps:
        first_out.append(len(specs))
        specs.extend(o.spec for o in template.outs)
    return first_out, specs


def _segment(
    g: int,
    group: Sequence[int],
    steps: Steps,
    specs: list[Spec],
    first_out: list[int],
    num_inputs: int,
    live: Sequence[bool],
    dead_inputs: Sequence[bool],
    last_use: list[int],
    group_of_value: list[int],
) -> Segment:
    local: dict[int, int] = {}
    args: list[int] = []
    for s in group:
        for v in steps[s][1]:
            if v not in local and group_of_value[v] != g:
                local[v] = len(args)
                args.append(v)
    at = len(args)
    wanted: list[int] = []
    local_steps = []
    key: list[int] = [len(args)]
    for s in group:
        template, operands = steps[s]
        for k in range(len(template.outs)):
            v = first_out[s] + k
            local[v] = at
            at += 1
            if live[v - num_inputs] or last_use[v] > g:
                wanted.append(v)
        mapped = tuple(local[v] for v in operands)
        local_steps.append((template, mapped))
        key.append(template.id)
        key.extend(mapped)
    dead_here = [
        last_use[v] == g and (v >= num_inputs and not live[v - num_inputs] or v < num_inputs and dead_inputs[v])
        for v in args
    ]
    heir = heirs(local_steps, [specs[v] for v in args], [local[v] for v in wanted], dead_here)
    donate = tuple(heir)
    first = {value: i for i, value in enumerate(heir.values())}  # JAX pairs donated inputs and results in order
    wanted.sort(key=lambda v: first.get(local[v], len(first)))
    outputs = tuple(local[v] for v in wanted)
    program = Program(
        steps=tuple(local_steps),
        in_specs=tuple(specs[v] for v in args),
        outputs=outputs,
        donate=donate,
        key=(tuple(key), outputs, donate),
    )
    released = tuple(v for v, dead in zip(args, dead_here, strict=True) if dead)
    return Segment(program, tuple(group), tuple(args), tuple(wanted), released)
