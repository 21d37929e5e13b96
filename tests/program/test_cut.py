"""Cutting a pending Program: every step in exactly one group, operands always from earlier groups, layers found."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_pjrt.ops.registry import Row
from torch_pjrt.program.cut import MAX_BLOCK, SMALL, groups_of
from torch_pjrt.program.program import OutSpec, Template, out_spec
from torch_pjrt.program.segment import build_segments

OUT = out_spec((2,), (1,), torch.float32)
Steps = list[tuple[Template, tuple[int, ...]]]


def template(lane: bool = False, out: OutSpec = OUT) -> Template:
    """A step kind of its own."""
    return Template(Row("test::op", lambda: None), (), (), "", (), (out,), None, lane=lane)


KINDS = [template() for _ in range(5)] + [template(lane=True) for _ in range(2)]


@st.composite
def programs(draw: st.DrawFn) -> tuple[Steps, int]:
    """Steps over three inputs; each reads earlier values."""
    inputs, steps = 3, []
    for i in range(draw(st.integers(1, 400))):
        kind = KINDS[draw(st.integers(0, len(KINDS) - 1))]
        steps.append((kind, tuple(draw(st.integers(0, inputs + i - 1)) for _ in range(draw(st.integers(0, 2))))))
    return steps, inputs


def check(steps: Steps, inputs: int, groups: Sequence[Sequence[int]]) -> None:
    assert sorted(s for g in groups for s in g) == list(range(len(steps)))
    position = {s: i for i, s in enumerate(s for g in groups for s in g)}
    for s, (_, operands) in enumerate(steps):
        assert all(v < inputs or position[v - inputs] < position[s] for v in operands)
    assert all(len(g) <= max(MAX_BLOCK, SMALL) or steps[g[0]][0].lane for g in groups)


@settings(max_examples=60, deadline=None)
@given(programs())
def test_groups_are_an_order_of_all_steps(program: tuple[Steps, int]) -> None:
    steps, inputs = program
    check(steps, inputs, groups_of(steps, inputs))


def layers(count: int, width: int = 12) -> Steps:
    """A stack of equal layers with a residual value, after a head of three steps."""
    steps: Steps = [(KINDS[0], (0,)), (KINDS[1], (3,)), (KINDS[2], (4,))]
    kinds = [template() for _ in range(width)]
    shared = layers.__dict__.setdefault("kinds", kinds)
    for _ in range(count):
        first = 3 + len(steps) - 1
        for i, kind in enumerate(shared):
            steps.append((kind, (3 + len(steps) - 1, first) if i == width - 1 else (3 + len(steps) - 1,)))
    return steps


def test_layers_become_equal_segments() -> None:
    for count in (12, 24):
        steps = layers(count)
        groups = groups_of(steps, 3)
        check(steps, 3, groups)
        segments = build_segments(steps, [OUT.spec] * 3, [False] * (len(steps) - 1) + [True], [False] * 3, groups)
        assert len({s.program.key for s in segments}) <= 4
        assert len(segments) >= count - 1


def updates(parameters: int, out: OutSpec) -> Steps:
    """Eight foreach operators over as many parameters."""
    steps: Steps = []
    last = {p: p for p in range(parameters)}
    for kind in [template(lane=True, out=out) for _ in range(8)]:
        for p in range(parameters):
            steps.append((kind, (last[p],)))
            last[p] = parameters + len(steps) - 1
    return steps


def test_each_large_parameter_has_its_own_update() -> None:
    steps = updates(20, out_spec((1 << 15,), (1,), torch.float32))
    groups = groups_of(steps, 20)
    check(steps, 20, groups)
    assert len(groups) == 20 and all(len(g) == 8 for g in groups)


def test_small_parameters_are_updated_together() -> None:
    steps = updates(22, OUT)
    groups = groups_of(steps, 22)
    check(steps, 22, groups)
    assert [len(g) for g in groups] == [32, 32, 32, 32, 32, 8, 8]
    segments = build_segments(steps, [OUT.spec] * 22, [False] * 154 + [True] * 22, [True] * 22, groups)
    assert len({s.program.key for s in segments}) == 2
