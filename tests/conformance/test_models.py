"""The table of models: what counts as a pass, and that a model is really compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from conformance.models import judge, page, steps
from conformance.models.cases import Case, wake
from conformance.models.vision import shorten

WAY: dict[str, Any] = {
    "forward": {"error": 2e-7, "cpu_error": 1e-7},
    "backward": {"error": 1e-7, "cpu_error": 1e-7},
    "misses": [],
    "fallbacks": {},
    "programs": 3,
    "again": 0,
}
GOOD: dict[str, Any] = {"parameters": 2_000_000, "eager": WAY, "compile": WAY}


@pytest.mark.parametrize(
    "wrong",
    [
        {"misses": ["outputs: 1.0e-02, the CPU 1.0e-07"]},
        {"fallbacks": {"aten::foo": 1}},
        {"again": 2},
        {"error": "KeyError: 'x'"},
    ],
)
@pytest.mark.parametrize("way", ["eager", "compile"])
def test_what_fails(way: str, wrong: dict[str, Any]) -> None:
    assert page.passed(GOOD)
    assert not page.passed({**GOOD, way: {**WAY, **wrong}})
    assert not page.passed({"crash": "exit code -11"})


def test_no_full_graph_on_the_cpu_either() -> None:
    error = {"error": "Unsupported: a read"}
    broken = {**WAY, "breaks": 1, "why": ["a read"], "cpu": ["a read"]}
    assert page.passed({**GOOD, "compile": error, "broken": {**broken, "cpu_breaks": 1}})
    assert not page.passed({**GOOD, "compile": error, "broken": {**broken, "cpu_breaks": 0}})
    assert not page.passed({**GOOD, "compile": error, "broken": {**error, "cpu_breaks": 1}})


def test_the_page(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "models.md")
    page.write({"timm/a": GOOD, "transformers/b": {"crash": "exit code -11"}})
    text = (tmp_path / "models.md").read_text()
    assert "torchvision and timm: 1 of 1 pass" in text and "transformers: 0 of 1 pass" in text
    assert "| timm/a | 2.00 M | pass 2.0 | pass 1.0 | 3 | pass 2.0 | pass 1.0 | 3 | 0 |" in text


class Small(nn.Module):
    """A layer and a norm with running statistics, which a device may get wrong in one dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4)
        self.wrong: torch.dtype | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skew = 1e-3 if x.device.type != "cpu" and x.dtype is self.wrong else 0.0
        return self.norm(self.layer(x) * (1 + skew)).tanh()


def small(wrong: torch.dtype | None) -> Case:
    torch.manual_seed(0)
    model = Small()
    model.wrong = wrong
    return Case(model, {"x": torch.randn(8, 4)}, lambda y: y[:, 0].sum())


def attempt(case: Case) -> dict[str, Any]:
    return judge.attempt(case, steps.Reference(case), lambda ours: ours)


def test_a_model_is_judged_by_float64() -> None:
    facts = attempt(small(None))
    assert not facts["misses"] and not facts["fallbacks"] and facts["again"] == 0 and "double" not in facts
    assert any(miss.startswith("buffers") for miss in attempt(small(torch.float32))["misses"])


def test_where_float32_does_not_tell_float64_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "TELLING", 0.0)
    facts = attempt(small(None))
    assert not facts["misses"] and facts["double"]["backward"]["error"] < steps.EXACT
    assert any(miss.startswith("buffers") for miss in attempt(small(torch.float32))["misses"])
    assert any(miss.startswith("float64 buffers") for miss in attempt(small(torch.float64))["misses"])


def test_a_side_that_rounding_chooses() -> None:
    """The greater of two values that differ by less than rounding: another result may take the other."""

    class Greater(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0, 1.0 + 2**-22]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.weight * x).amax()

    case = Case(Greater(), {"x": torch.ones(2)}, lambda y: y)
    reference = steps.Reference(case)
    other = steps.step(Case(case.model, {"x": torch.tensor([1.0 + 2**-21, 1.0])}, case.loss))
    assert reference.judge(other)["misses"] and not reference.judge_widely(other)["misses"]


def test_no_weight_begins_at_zero() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    for weight in model.parameters():
        nn.init.zeros_(weight)
    wake(model)
    assert [bool(weight.any()) for weight in model.parameters()] == [True, False, True, False]


def test_blocks_that_only_repeat_are_left_out() -> None:
    sizes = [(4, 8), (8, 8), (8, 8), (8, 8), (8, 4), (4, 4)]
    model = nn.Sequential(*(nn.Linear(*each) for each in sizes), nn.ReLU(), nn.ReLU())
    shorten(model)
    assert list(model._modules) == ["0", "1", "4", "5", "6", "7"]
    assert model(torch.ones(1, 4)).shape == (1, 4)


def test_graph_breaks_are_counted() -> None:
    class Broken(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            return super().forward(x)

    count, why = judge.graph_breaks(Case(Broken(), {"x": torch.randn(8, 4)}, lambda y: y.sum()), "eager")
    assert count == 1 and why
