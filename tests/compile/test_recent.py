"""Calls whose arguments lie as those of the last ones did are recognised; all others are looked at anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_pjrt.compile import graph


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many arguments each full look at them was for."""
    counts: list[int] = []
    full = graph.bind

    def bind(args: Any) -> Any:
        counts.append(len(args))
        return full(args)

    monkeypatch.setattr(graph, "bind", bind)
    return counts


def on_device(*values: float) -> torch.Tensor:
    return torch.tensor(values, device="pjrt")


def test_the_third_call_is_recognised(looks: list[int]) -> None:
    compiled = torch.compile(lambda *xs: torch.cat(xs).sum(), backend="pjrt", fullgraph=True)
    with torch.no_grad():
        for call in range(5):
            assert float(compiled(*(on_device(call, k) for k in range(20)))) == 20 * call + 190
    assert looks == [20, 20]


def test_training_is_recognised(looks: list[int]) -> None:
    weight = torch.nn.Parameter(on_device(1.0, 2.0))
    compiled = torch.compile(lambda x: (weight * x).square().sum(), backend="pjrt")
    for call in range(6):
        weight.grad = None
        compiled(on_device(3.0, call)).backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [18.0, 4.0 * call * call]
    assert len(looks) == 4, "two for the forward, two for the backward"


OTHERS: dict[str, Callable[[], torch.Tensor]] = {
    "part": lambda: torch.arange(16.0, device="pjrt").view(8, 2)[2:4],
    "elsewhere": lambda: torch.arange(16.0, device="pjrt").view(8, 2)[5:7],
    "transposed": lambda: torch.arange(4.0, device="pjrt").view(2, 2).t(),
    "bytes": lambda: torch.arange(16, dtype=torch.uint8, device="pjrt").view(torch.float32).view(2, 2),
    "expanded": lambda: on_device(3.0, 5.0).expand(2, 2),
    "unwritten": lambda: torch.empty(2, 2, device="pjrt").fill_(2.0),
}


@pytest.mark.parametrize("name", OTHERS)
def test_arguments_that_lie_otherwise(name: str) -> None:
    """The shape is the same, so Dynamo may not see the difference."""
    compiled = torch.compile(lambda x: x * 2 + x.t(), backend="pjrt", fullgraph=True)
    usual = torch.ones(2, 2, device="pjrt")
    for x in (usual, usual, usual, OTHERS[name](), usual, OTHERS[name](), OTHERS[name](), OTHERS[name](), usual):
        torch.testing.assert_close(compiled(x).cpu(), x.cpu() * 2 + x.cpu().t())


def test_numbers_among_the_arguments() -> None:
    compiled = torch.compile(lambda x, n: x[:n] * n, backend="pjrt", fullgraph=True, dynamic=True)
    x = on_device(1.0, 2.0, 3.0, 4.0, 5.0)
    for n in (3, 3, 3, 2, 4, 4, 4, 3):
        assert compiled(x, n).tolist() == [n * v for v in (1.0, 2.0, 3.0, 4.0, 5.0)[:n]]


def test_a_capture_that_made_room_is_not_used() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="pjrt", dynamic=True, options={"compiled_sizes": 1})
    for n in (3, 3, 3, 4, 3, 4, 4, 4, 3, 3, 3):
        assert compiled(torch.zeros(n, device="pjrt")).tolist() == [1.0] * n
