"""torch.compile on the device: results equal eager's, for forwards, backwards, mutation, random numbers, control flow."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import benchmarks.models


def both(function: Callable[..., object], *args: torch.Tensor) -> None:
    """The compiled function on the device against plain CPU torch."""
    expected = function(*args)
    got = torch.compile(function, backend="pjrt", fullgraph=True)(*(a.to("pjrt") for a in args))
    torch.testing.assert_close(
        torch.utils._pytree.tree_map(lambda t: t.cpu(), got), expected, rtol=1e-4, atol=1e-5, check_stride=True
    )


def test_default_backend_is_ours_on_the_device_only() -> None:
    function = torch.compile(lambda x: x * 2 + 1)
    torch.pjrt.reset_stats()
    assert function(torch.ones(3, device="pjrt")).tolist() == [3, 3, 3]
    assert torch.pjrt.stats()["flushes"].get("compiled call") == 1
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no option 'speed'"):
        torch.compile(lambda x: x + 1, backend="pjrt", options={"speed": 1})(torch.ones(3, device="pjrt"))


def test_views_and_strides_of_results() -> None:
    both(lambda x: (x.t(), x[1:], x.t().contiguous().view(torch.uint8), x.permute(1, 0) + 1), torch.randn(3, 4))


def test_backward_reads_the_input_that_forward_saved() -> None:
    x = torch.tensor([0.3, 1.2, 1.9], device="pjrt", requires_grad=True)
    torch.compile(torch.sin, fullgraph=True)(x).square().sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), (2 * x.detach().cpu()).sin(), rtol=1e-5, atol=1e-6)


def test_gpt_forward_and_backward() -> None:
    torch.manual_seed(0)
    host = benchmarks.models.GPT(2, width=32, heads=2, vocabulary=50, length=16)
    device = copy.deepcopy(host).to("pjrt")
    tokens = torch.randint(0, 50, (2, 16))
    compiled = torch.compile(device, backend="pjrt", fullgraph=True)
    expected, got = host(tokens), compiled(tokens.to("pjrt"))
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
    expected.square().mean().backward()
    got.square().mean().backward()
    for p, q in zip(host.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-3, atol=1e-6)


def test_whole_training_step_with_a_changing_rate() -> None:
    torch.manual_seed(0)
    host = nn.Linear(4, 3)
    device = copy.deepcopy(host).to("pjrt")
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))

    def make(model: nn.Module, where: str, compiled: bool) -> list[float]:
        rate = torch.tensor(0.1, device=where)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, capturable=compiled)
        inputs, labels = x.to(where), y.to(where)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step, backend="pjrt") if compiled else step
        losses = []
        for _ in range(4):
            losses.append(run().item())
            rate.mul_(0.5)
        return losses

    assert make(device, "pjrt", True) == pytest.approx(make(host, "cpu", False), rel=1e-5)


def test_running_statistics_are_written() -> None:
    host = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    device = copy.deepcopy(host).to("pjrt")
    x = torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(torch.compile(device, backend="pjrt")(x.to("pjrt")).cpu(), host(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(device[1].running_var.cpu(), host[1].running_var)


def test_mutated_inputs_and_rebound_buffers() -> None:
    function = torch.compile(lambda x: x.add_(1), backend="pjrt")
    x = torch.zeros(3, device="pjrt")
    view = x[1:]
    function(x)
    function(x)
    assert x.tolist() == [2, 2, 2] and view.tolist() == [2, 2]


def test_random_numbers_are_eager_s() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) + torch.rand_like(x) + torch.randn_like(x)

    x = torch.ones(64, device="pjrt")
    torch.manual_seed(5)
    eager = [function(x).cpu() for _ in range(2)]
    torch.manual_seed(5)
    compiled = torch.compile(function, backend="pjrt")
    assert all(torch.equal(compiled(x).cpu(), e) for e in eager)


def test_reads_break_the_graph() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum().item() > 0 else x - 1

    compiled = torch.compile(function, backend="pjrt")
    assert compiled(torch.ones(2, device="pjrt")).tolist() == [2, 2]
    assert compiled(-torch.ones(2, device="pjrt")).tolist() == [-2, -2]


@pytest.mark.parametrize("sign", [1, -1])
def test_cond(sign: int) -> None:
    both(lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (x,)), sign * torch.ones(3))


def test_while_loop() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 1.5), (start, x))  # type: ignore[no-any-return]

    both(function, torch.randn(3))


def test_scan() -> None:
    from torch._higher_order_ops.scan import scan

    both(lambda x: scan(lambda c, y: (c + y, c * y), torch.zeros(3, device=x.device), x, dim=0), torch.randn(4, 3))


def test_layers_share_executables() -> None:
    from torch_pjrt.dispatch.install import forget_programs

    def compiles(layers: int) -> int:
        torch._dynamo.reset()
        forget_programs()
        torch.pjrt.reset_stats()
        model = benchmarks.models.GPT(layers, width=32, heads=2, vocabulary=50, length=16).to("pjrt")
        torch.compile(model, backend="pjrt")(torch.zeros(1, 16, dtype=torch.long, device="pjrt"))
        stats = torch.pjrt.stats()
        return int(stats["compiles"] + stats["disk_hits"])

    assert compiles(16) <= compiles(10) + 1


def test_kernels_are_not_traced() -> None:
    """Where Dynamo skips the frames of torch.nn the module runs eagerly; then it must not trace what kernels call."""

    def frames(device: str) -> dict[str, int]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        norm = nn.BatchNorm1d(3).to(device)
        norm.compile(backend="eager")
        norm(torch.ones(2, 3, device=device)).cpu()
        return dict(torch._dynamo.utils.counters["frames"])

    assert frames("pjrt") == frames("cpu")
