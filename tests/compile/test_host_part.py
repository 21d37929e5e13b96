"""CPU tensors and numbers in a graph on the device: their values and the writes to them count at every call."""

from __future__ import annotations

import warnings

import pytest
import torch

from torch_pjrt.errors import HostReadWarning


def test_inputs_moved_inside_the_graph_are_read_anew() -> None:
    compiled = torch.compile(lambda x, w: x.to("pjrt") * w, fullgraph=True)
    w = torch.ones(2, device="pjrt")
    for k in range(6):  # a new tensor often lies where the last one was
        assert compiled(torch.full((2,), float(k)), w).tolist() == [k, k]
    assert torch.pjrt.stats()["captures"] == 1


def test_scalars_on_the_cpu_are_operands() -> None:
    compiled = torch.compile(lambda x, rate: x * rate + rate, fullgraph=True)
    x = torch.ones(2, device="pjrt")
    for k in (0.5, 0.25, 3.0):
        got = compiled(x, torch.tensor(k, dtype=torch.float64))
        assert got.dtype is torch.float32 and got.tolist() == [2 * k, 2 * k]
    assert torch.pjrt.stats()["captures"] == 1


def test_counters_on_the_cpu_count_at_every_call() -> None:
    def step(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        return x / count

    compiled = torch.compile(step, fullgraph=True)
    x, count = torch.ones(2, device="pjrt"), torch.tensor(0.0)
    for k in (1, 2):
        assert compiled(x, count).tolist() == [1 / k] * 2
    count.fill_(0)  # as loading a checkpoint does
    assert compiled(x, count).tolist() == [1, 1]
    assert count.item() == 1
    assert torch.pjrt.stats()["captures"] == 1


def test_values_before_a_write_are_what_the_device_reads() -> None:
    def step(x: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old = x + count
        count.mul_(10)
        return old, x + count

    compiled = torch.compile(step, fullgraph=True)
    old, new = compiled(torch.zeros(2, device="pjrt"), torch.tensor(3.0))
    assert old.tolist() == [3, 3] and new.tolist() == [30, 30]


def test_results_on_the_cpu() -> None:
    compiled = torch.compile(lambda x, c: (x + 1, c + 1, c), fullgraph=True)
    for k in (1.0, 2.0):
        c = torch.tensor([k])
        device, host, same = compiled(torch.ones(2, device="pjrt"), c)
        assert device.tolist() == [2, 2] and host.tolist() == [k + 1] and same.tolist() == [k]
        assert host.device.type == same.device.type == "cpu"


def test_indices_on_the_device_are_no_read() -> None:
    compiled = torch.compile(lambda x, i: x[i] * 2, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HostReadWarning)
        got = compiled(torch.arange(4.0, device="pjrt"), torch.tensor([3, 0], device="pjrt"))
    assert torch.pjrt.stats()["host_reads"] == {}
    assert got.tolist() == [6, 0]


def test_indices_on_the_cpu() -> None:
    compiled = torch.compile(lambda x, i: x[i] * 2, fullgraph=True)
    x = torch.arange(4.0, device="pjrt")
    assert compiled(x, torch.tensor([3, 0])).tolist() == [6, 0]
    assert compiled(x, torch.tensor([1, 2])).tolist() == [2, 4]


def test_changing_python_numbers_need_one_graph_and_one_capture() -> None:
    compiled = torch.compile(lambda x, rate: x * rate, fullgraph=True, dynamic=True)
    for k in (0.5, 0.25, 3.0, 7.5):
        assert compiled(torch.ones(2, device="pjrt"), k).tolist() == [k, k]
    assert torch.pjrt.stats()["captures"] <= 2


def test_results_copied_to_the_cpu() -> None:
    def step(x: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count.copy_(x.sum())
        return x * 2, (x + 1).cpu() + count

    compiled = torch.compile(step, fullgraph=True)
    count = torch.tensor(0.0)
    for k in (1.0, 2.0):
        device, host = compiled(torch.full((3,), k, device="pjrt"), count)
        assert device.tolist() == [2 * k] * 3 and host.tolist() == [4 * k + 1] * 3 and count.item() == 3 * k
    assert torch.pjrt.stats()["captures"] == 1


def test_what_depends_on_a_read_runs_after_it() -> None:
    compiled = torch.compile(lambda x: x * x.sum().item() + x.nonzero().shape[0], fullgraph=True)
    with (
        torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True),
        pytest.warns(HostReadWarning, match="the end of the inference graph at"),
    ):
        assert compiled(torch.tensor([1.0, 0, 2], device="pjrt")).tolist() == [5, 2, 8]
        assert compiled(torch.tensor([1.0, 1, 2], device="pjrt")).tolist() == [7, 7, 11]


def test_a_read_of_what_the_graph_writes() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        before = x.cpu()
        x.add_(1)
        return before

    compiled = torch.compile(step, fullgraph=True)
    x = torch.zeros(2, device="pjrt")
    with pytest.warns(HostReadWarning, match="also writes"):
        assert compiled(x).tolist() == [0, 0]
    assert compiled(x).tolist() == [1, 1] and x.tolist() == [2, 2]


def test_sparse_gradients() -> None:
    """Of embeddings: a Program holds no sparse tensors, so what makes them runs as in eager, and says so."""
    found = []
    for device, compiled in (("cpu", lambda f: f), ("pjrt", torch.compile)):
        torch.manual_seed(0)
        table = torch.nn.Embedding(9, 4, sparse=True).to(device)
        ids = torch.tensor([1, 3, 3, 7]).to(device)
        loss = compiled(lambda i, table=table: table(i).tanh().square().sum())(ids)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            loss.backward()
        assert table.weight.grad is not None and table.weight.grad.is_sparse
        found.append(table.weight.grad.to_dense().cpu())
    assert any("sparse tensors" in str(w.message) for w in said if w.category is HostReadWarning)
    torch.testing.assert_close(*found)
