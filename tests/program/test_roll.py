"""Repeated blocks as loops: the numbers of the Program step by step, in place where it overwrites, and a text of one length."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch

from torch_pjrt.export.trace import Traced, trace
from torch_pjrt.pjrt.buffers import words_for
from torch_pjrt.program.evaluate import evaluate
from torch_pjrt.program.roll import Plan, roll
from torch_pjrt.program.rolled import Rolled


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = torch.nn.LayerNorm(width), torch.nn.Linear(width, 2 * width)
        self.down, self.gate = torch.nn.Linear(2 * width, width), torch.nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h = self.norm(x) * mask
        return x + self.down(torch.tanh(self.gate(h)) * torch.sigmoid(self.up(h)))


class Deep(torch.nn.Module):
    def __init__(self, depth: int, width: int = 8) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, width), torch.nn.Linear(width, 3)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x, mask = self.first(x), mask.float() + 1
        for block in self.blocks:
            x = block(x, mask)
        return self.last(x)


def _recorded(depth: int, train: bool) -> tuple[Traced, Plan]:
    torch.manual_seed(0)
    arguments = (torch.randn(5, 4), torch.ones(5, 1, dtype=torch.int64))
    traced = trace(Deep(depth), arguments, train=train)
    outputs = traced.program.outputs
    plan = roll(traced.program, {i: outputs[o] for i, o in traced.writes})
    assert plan is not None
    return traced, plan


def _values(traced: Traced) -> list[Any]:
    random = np.random.default_rng(0)
    out = []
    for item, spec in zip(traced.inputs, traced.program.in_specs, strict=True):
        if isinstance(item.source, torch.Tensor):
            out.append(item.source.detach().numpy().copy())
        elif spec.dtype.kind == "f":
            out.append(np.abs(random.standard_normal(spec.shape)).astype(spec.dtype))
        else:
            out.append(np.ones(spec.shape, spec.dtype))
    return out


@pytest.mark.parametrize("train", [False, True])
def test_the_same_results(train: bool) -> None:
    traced, plan = _recorded(5, train)
    assert [loop.rounds for loop in plan.loops][: 1 + train] == [5] * (1 + train)
    program, values = traced.program, _values(traced)
    words = words_for(program.number_kinds)([n for own in traced.numbers for n in own])
    rolled = Rolled(program, plan)
    arrays = [np.stack([values[i] for i in m]) if len(m) > 1 else values[m[0]] for m in rolled.inputs]
    with jax.enable_x64(True):
        straight = jax.jit(evaluate(program))(words, *values)
        found = list(jax.jit(rolled)(words, *arrays))
    where: dict[Any, Any] = {}
    written = {s for loop in plan.loops for s in loop.written if s.origin == "out"}
    for value, want in zip(program.outputs, straight, strict=False):
        stack = next((s for s in plan.stack_of.get(value, ()) if s in written), None)
        key = value if stack is None else stack
        if key not in where:
            where[key] = found[len(where)]
        have = where[key] if stack is None else where[key][stack.members.index(value)]
        np.testing.assert_allclose(have, want, rtol=2e-5, atol=1e-6)
    assert len(where) == len(found)


def test_an_optimizer_overwrites_its_stacks() -> None:
    traced, plan = _recorded(4, True)
    replaced = [s for loop in plan.loops for s in loop.written if s.base is not None]
    names = {traced.inputs[i].name for s in replaced for i in s.base.members}
    assert {f"blocks.{k}.up.weight{suffix}" for k in range(4) for suffix in ("", ".exp_avg", ".exp_avg_sq")} <= names


def test_the_text_does_not_grow_with_depth() -> None:
    def lines(depth: int) -> int:
        traced, plan = _recorded(depth, True)
        rolled = Rolled(traced.program, plan)
        specs = traced.program.in_specs
        shapes = [((len(m),) if len(m) > 1 else ()) + specs[m[0]].shape for m in rolled.inputs]
        arrays = [jax.ShapeDtypeStruct(s, specs[m[0]].dtype) for s, m in zip(shapes, rolled.inputs, strict=True)]
        words = words_for(traced.program.number_kinds)([n for own in traced.numbers for n in own])
        with jax.enable_x64(True):
            return len(jax.jit(rolled).lower(words, *arrays).as_text().splitlines())

    assert lines(12) < 1.05 * lines(4)


def test_nothing_repeats() -> None:
    traced = trace(torch.nn.Linear(3, 3), (torch.empty(2, 3),))
    assert roll(traced.program, {}) is None
