"""Optimizers and training steps in a graph: values, changing rates, tied weights, and memory for one copy."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

Optimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, 0.1, capturable=p[0].device.type != "cpu"),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, 0.1),
    "Rprop": lambda p: torch.optim.Rprop(p, 0.1),
    "Muon": lambda p: torch.optim.Muon(p, 0.1),
    "Adafactor": lambda p: torch.optim.Adafactor(p, 0.1),
}


def steps(make: Optimizer, where: str, compiled: bool) -> list[torch.Tensor]:
    """Parameters after three steps with a rate that halves."""
    torch.manual_seed(0)
    parameters = [torch.randn(3, 3).to(where).requires_grad_() for _ in range(3)]
    optimizer = make(parameters)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step = torch.compile(optimizer.step) if compiled else optimizer.step
    source = torch.Generator().manual_seed(1)
    for _ in range(3):
        for p in parameters:
            p.grad = torch.randn(3, 3, generator=source).to(where)
        step()
        schedule.step()
    return [p.detach().cpu() for p in parameters]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_compiled_optimizer(name: str) -> None:
    make = OPTIMIZERS[name]
    torch.testing.assert_close(steps(make, "pjrt", True), steps(make, "cpu", False), rtol=1e-4, atol=1e-5)


def test_step_counts_survive_a_checkpoint() -> None:
    """AdamW counts steps in tensors on the CPU: going back to an earlier state counts again from there."""
    weight = torch.ones(3, device="pjrt", requires_grad=True)
    optimizer = torch.optim.AdamW([weight], 0.1)
    step = torch.compile(optimizer.step)

    def go() -> float:
        weight.grad = torch.ones(3, device="pjrt")
        step()
        return float(optimizer.state[weight]["step"])

    assert [go(), go()] == [1, 2]
    saved = copy.deepcopy(optimizer.state_dict())
    assert [go(), go()] == [3, 4]
    optimizer.load_state_dict(saved)
    assert [go(), go()] == [3, 4]


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(tokens))  # type: ignore[no-any-return]

    host = Tied()
    device = copy.deepcopy(host).to("pjrt")
    tokens = torch.tensor([[1, 2, 3]])
    host(tokens).square().sum().backward()
    torch.compile(device, fullgraph=True)(tokens.to("pjrt")).square().sum().backward()
    torch.testing.assert_close(device.embedding.weight.grad.cpu(), host.embedding.weight.grad, rtol=1e-4, atol=1e-5)


def test_memory_of_a_step_peaks_at_one_copy() -> None:
    """Weights and momenta are written where they are: beside them a step needs room for gradients and activations."""
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6))).to("pjrt")
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1, device="pjrt"), momentum=0.9)
    x = torch.randn(4, 256).to("pjrt")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled = torch.compile(step)
    for _ in range(3):
        compiled()
    torch.pjrt.synchronize()
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    held = torch.pjrt.memory_allocated()
    torch.pjrt.reset_peak_memory_stats()
    before = [t.untyped_storage().data_ptr() for t in model.parameters()]
    for _ in range(3):
        compiled()
    torch.pjrt.synchronize()
    assert torch.pjrt.memory_allocated() == held
    assert torch.pjrt.max_memory_allocated() - held <= 0.2 * weights + weights  # new gradients before the old ones go
    assert [t.untyped_storage().data_ptr() for t in model.parameters()] == before


def test_written_inputs_are_donated() -> None:
    """The buffer of a written storage is the new value's, as the runtime sees it."""
    compiled = torch.compile(lambda x, y: x.mul_(2).add_(y), fullgraph=True)
    x, y = torch.ones(1024, device="pjrt"), torch.ones(1024, device="pjrt")
    compiled(x, y)
    torch.pjrt.synchronize()
    array = x.untyped_storage()._pjrt.value.array  # type: ignore[attr-defined]
    compiled(x, y)
    torch.pjrt.synchronize()
    assert array.is_deleted()
    assert x[:2].tolist() == [7, 7]
