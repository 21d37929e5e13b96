"""The table of models: what counts as a pass, and that a model is really compared."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from conformance.models import judge, page

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
    broken = {**WAY, "breaks": 1}
    assert page.passed({**GOOD, "compile": error, "broken": {**broken, "cpu": "Unsupported: a read"}})
    assert not page.passed({**GOOD, "compile": error, "broken": {**broken, "cpu": "full graph"}})


def test_the_page(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "models.md")
    page.write({"timm/a": GOOD, "transformers/b": {"crash": "exit code -11"}})
    text = (tmp_path / "models.md").read_text()
    assert "torchvision and timm: 1 of 1 pass" in text and "transformers: 0 of 1 pass" in text
    assert "| timm/a | 2.00 M | pass 2.0 | pass 1.0 | 3 | pass 2.0 | pass 1.0 | 3 | 0 |" in text


class Small(nn.Module):
    """A layer and a norm with running statistics."""

    def __init__(self, skew: float = 0.0) -> None:
        super().__init__()
        self.layer, self.norm, self.skew = nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), skew

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x) * (1 + self.skew)).tanh()


def test_a_model_is_judged_by_float64() -> None:
    torch.manual_seed(0)
    model, inputs = Small(), {"x": torch.randn(8, 4)}

    def loss(y: torch.Tensor) -> torch.Tensor:
        return y[:, 0].sum()

    double = copy.deepcopy(model).double()
    truth = judge.step(double, double, {"x": inputs["x"].double()}, loss)
    host = copy.deepcopy(model)
    cpu = judge.step(host, host, inputs, loss)
    facts = judge._attempt(model, inputs, loss, cpu, truth, lambda ours: ours)
    assert not facts["misses"] and not facts["fallbacks"] and facts["again"] == 0
    model.skew = 1e-3
    facts = judge._attempt(model, inputs, loss, cpu, truth, lambda ours: ours)
    assert any(miss.startswith("buffers") for miss in facts["misses"])
