"""Buffers that results take over: those of the values that they replace, so that XLA has nothing to copy."""

from __future__ import annotations

import re

import pytest
import torch

from torch_pjrt.ops.registry import Row
from torch_pjrt.program.donation import heirs
from torch_pjrt.program.program import Template, out_spec
from torch_pjrt.program.segment import build_segments

OUT = out_spec((4, 4), (4, 1), torch.float32)


def step(name: str, *operands: int, outs: int = 1, updates: tuple[str, ...] = ()) -> tuple[Template, tuple[int, ...]]:
    bindings = tuple((f"x{i}", ("in", i)) for i in range(len(operands)))
    row = Row(f"aten::{name}", lambda: None, updates=updates)
    return Template(row, bindings, (), "", (), (OUT,) * outs, None), operands


def test_a_chain_of_writes_ends_in_its_heir() -> None:
    steps = [step("mul.Tensor", 1, 2), step("lerp.Scalar", 0, 2), step("addcdiv.default", 3, 4, 2)]
    assert heirs(steps, [OUT.spec] * 3, [4, 5], [True, True, True]) == {0: 4, 1: 5}
    assert heirs(steps, [OUT.spec] * 3, [4, 5], [True, False, True]) == {0: 4}


def test_a_product_is_nobodys_heir() -> None:
    """It cannot lie where its operand lies while it is computed."""
    assert heirs([step("mm.default", 0, 1)], [OUT.spec] * 2, [2], [True, True]) == {}
    steps = [step("mm.default", 0, 1), step("add.Tensor", 2, 0)]
    assert heirs(steps, [OUT.spec] * 2, [3], [True, True]) == {}


def test_one_buffer_has_one_heir() -> None:
    steps = [step("mul.Tensor", 0, 0), step("add.Tensor", 0, 1)]
    assert heirs(steps, [OUT.spec], [1, 2], [True]) == {0: 2}


def test_a_segments_results_begin_with_the_heirs() -> None:
    steps = [step("mm.default", 0, 1), step("mul.Tensor", 1, 2), step("mul.Tensor", 0, 2)]
    (segment,) = build_segments(steps, [OUT.spec] * 2, [True] * 3, [True, True], [range(3)])
    assert segment.program.donate == (0, 1)
    assert segment.program.outputs == (4, 3, 2)
    assert segment.results == (4, 3, 2)
    assert segment.released == (0, 1)


def test_last_results_are_what_the_row_says() -> None:
    steps = [step("norm", 0, 1, 2, outs=3, updates=("x1", "x2"))]
    assert heirs(steps, [OUT.spec] * 3, [3, 4, 5], [True] * 3) == {1: 4, 2: 5}


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": True, "amsgrad": True}], ids=str)
def test_an_optimizer_copies_nothing(hlo: list[str], options: dict[str, bool]) -> None:
    """Weights and moments are computed where they lie: the compiler's text has no copy of an array."""
    p = torch.ones(37, 23, device="pjrt", requires_grad=True)
    optimizer = torch.optim.AdamW([p], **options)
    for _ in range(3):
        p.grad = torch.ones_like(p)
        torch.pjrt.synchronize()
        optimizer.step()
        torch.pjrt.synchronize()
    last = [t for t in hlo if "sqrt" in t][-1]
    assert last.count("may-alias") >= 3
    assert not re.search(r"= f32\[37,23\]\S* copy\(", last), last


def test_batch_statistics_keep_their_places(hlo: list[str]) -> None:
    norm = torch.nn.BatchNorm1d(29).to("pjrt")
    x = torch.randn(8, 29, device="pjrt")
    for _ in range(2):
        y = norm(x)
        torch.pjrt.synchronize()
    assert y.shape == x.shape
    text = [t for t in hlo if "batch_norm_train" in t][-1]
    aliases = re.search(r"input_output_alias=\{(.*?)\}, entry", text)
    assert aliases and aliases[1].count("may-alias") >= 2
    assert not re.search(r"= f32\[29\]\S* copy\(", text), text
