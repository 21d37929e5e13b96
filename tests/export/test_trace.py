"""Recording a training step from shapes alone: the Program does what the eager step does, and knows the user's lines."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch

from torch_pjrt.errors import HostReadError
from torch_pjrt.export.trace import trace
from torch_pjrt.pjrt.buffers import words_for
from torch_pjrt.pjrt.client import chip
from torch_pjrt.pjrt.compiler import lower


class Net(torch.nn.Module):
    """Two layers and a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.norm(self.first(x)))
        return self.last(hidden)


def test_training_step_is_the_eager_step() -> None:
    torch.manual_seed(0)
    net, x = Net(), torch.randn(5, 6)

    def sgd(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    traced = trace(net, (x,), train=True, optimizer=sgd)
    values = []
    for item in traced.inputs:
        if item.kind == "state":
            values.append(np.zeros(item.size, np.float32))
        else:
            values.append((x if item.kind == "argument" else item.source).detach().numpy().copy())
    optimizer = sgd(list(net.parameters()))
    for p in net.parameters():
        optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    numbers = [n for own in traced.numbers for n in own]
    words = words_for(traced.program.number_kinds)(numbers)
    program = lower(traced.program, "highest", chip().device).compile()
    with jax.enable_x64(True):
        outputs = program(words, *values)
    np.testing.assert_allclose(outputs[traced.results[0][0]], loss.item(), rtol=1e-5)
    after = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    written = {traced.inputs[i].name: outputs[o] for i, o in traced.writes}
    assert set(after) <= set(written)
    for name, want in after.items():
        np.testing.assert_allclose(written[name], want.detach().numpy(), rtol=1e-4, atol=1e-6, err_msg=name)


def test_counters_begin_at_the_first_step() -> None:
    net, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    traced = trace(net, (x,), train=True, optimizer=lambda ps: torch.optim.Adam(ps, lr=0.1))
    values = [
        np.zeros(i.size, np.float32)
        if i.kind == "state"
        else (x if i.kind == "argument" else i.source).detach().numpy()
        for i in traced.inputs
    ]
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    values = [v.copy() for v in values]
    net(x).square().mean().backward()
    optimizer.step()
    words = words_for(traced.program.number_kinds)([n for own in traced.numbers for n in own])
    with jax.enable_x64(True):
        outputs = lower(traced.program, "highest", chip().device).compile()(words, *values)
    written = {traced.inputs[i].name: outputs[o] for i, o in traced.writes}
    np.testing.assert_allclose(written["weight"], net.weight.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_backward_steps_have_the_lines_of_forward() -> None:
    with torch.device("meta"):
        net = Net()
    traced = trace(net, (torch.empty(5, 6),), train=True)
    names = traced.scopes()
    first = next(n for n in names if n.startswith("linear@")).split("@")[1]
    assert first.startswith("test_trace.py:")
    assert f"linear_backward@{first}" in names
    assert "in forward" in str(traced.where(f"linear_backward@{first}"))
    assert any(n.endswith("@optimizer") for n in names)


def test_a_read_on_the_host_names_its_line() -> None:
    def reads(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(HostReadError, match=r"test_trace.py:\d+ in reads"):
        trace(reads, (torch.ones(3),))


def test_unneeded_steps_and_unwritten_memory() -> None:
    def wasteful(x: torch.Tensor) -> torch.Tensor:
        torch.exp(x)
        return torch.zeros_like(x) + x

    traced = trace(wasteful, (torch.empty(1 << 14, 1 << 14, device="meta"),))
    assert [t.row.name for t, _ in traced.program.steps] == ["aten::zeros.default", "aten::add.Tensor"]
    assert [i.kind for i in traced.inputs] == ["argument"]


def test_a_checkpoint_is_recomputed_in_backward() -> None:
    class Checkpointed(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=False)

    plain, twice = (trace(net, (torch.empty(5, 6),), train=True).scopes() for net in (Net(), Checkpointed()))
    count = lambda names, op: sum(n.startswith(f"{op}@") for n in names)
    assert count(twice, "tanh") == 2 * count(plain, "tanh") == 2
    assert count(twice, "linear_backward") == count(plain, "linear_backward") == 2


def test_a_checkpoint_that_fails_raises_its_error() -> None:
    calls: list[int] = []

    def fails_at_last(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("recomputed")
        return torch.sin(x)

    class Outer(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.utils.checkpoint.checkpoint(fails_at_last, super().forward(x), use_reentrant=False)

    with pytest.raises(KeyError, match="recomputed"):
        trace(Outer(3, 3), (torch.empty(2, 3),), train=True)
