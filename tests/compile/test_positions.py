"""Inputs that are parts of larger storages: one capture and one compile for every position at which they start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_pjrt.program.access import offset_of, starts_at
from torch_pjrt.tensor.layout import aval_of
from torch_pjrt.tensor.storage import aval_of_tensor

Function = Callable[..., torch.Tensor]


def same_at_every_position(function: Function, cuts: Callable[[torch.Tensor, int], tuple[Any, ...]], count: int) -> Any:
    """Run function on parts of a cache at several positions, compiled on the device and eagerly on the CPU; gives stats."""
    torch.manual_seed(0)
    theirs = torch.randn(4, 24, 8)
    ours = theirs.to("pjrt")
    compiled = torch.compile(function, fullgraph=True, dynamic=False)
    torch.pjrt.reset_stats()
    for i in range(count):
        expected = function(*cuts(theirs, i))
        torch.testing.assert_close(compiled(*cuts(ours, i)).cpu(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)
    return torch.pjrt.stats()


def test_reads_of_a_slice() -> None:
    stats = same_at_every_position(
        lambda x: x.sin() + x[:, 1:] + x.mT.sum(1)[:, None, :1], lambda c, i: (c[:, i : i + 2],), 9
    )
    assert (stats["captures"], stats["captures_dropped"]) == (1, 0)


def test_a_decode_loop_over_slices_of_a_static_cache_compiles_once() -> None:
    def step(slot: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        slot.copy_(new)
        slot[:, 0] += 1
        slot.mul_(2)
        return (slot * new).sum()

    compiled = torch.compile(step, fullgraph=True, dynamic=False)
    cache, new = torch.zeros(4, 24, 8, device="pjrt"), torch.ones(4, 8, device="pjrt")
    torch.pjrt.synchronize()
    torch.pjrt.reset_stats()
    for i in range(24):
        compiled(cache[:, i], new)
    stats = torch.pjrt.stats()
    assert (stats["captures"], stats["compiles"] + stats["disk_hits"]) == (1, 1), torch.pjrt.explain_recompiles()
    assert cache[..., 0].unique().tolist() == [4.0] and cache[..., 1:].unique().tolist() == [2.0]


def test_a_position_in_the_graph_compiles_once() -> None:
    def step(cache: torch.Tensor, i: int, new: torch.Tensor) -> torch.Tensor:
        cache[:, i : i + 1] = new
        return cache.sum()

    compiled = torch.compile(step, fullgraph=True, dynamic=True)
    cache, new = torch.zeros(4, 24, 8, device="pjrt"), torch.ones(4, 1, 8, device="pjrt")
    torch.pjrt.synchronize()
    torch.pjrt.reset_stats()
    for i in range(2, 10):
        total = compiled(cache, i, new)
    stats = torch.pjrt.stats()
    assert stats["compiles"] + stats["disk_hits"] == 1, torch.pjrt.explain_recompiles()
    assert total.item() == 8 * 32


def test_two_parts_of_one_storage_move_apart() -> None:
    stats = same_at_every_position(lambda a, b: a @ b.mT, lambda c, i: (c[i % 3, i : i + 4], c[:, 2 * i]), 6)
    assert stats["captures"] == 1


def test_results_that_are_parts_of_an_input_move_with_it() -> None:
    def part(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x[1:, ::2]

    theirs = torch.zeros(9, 6)
    ours = theirs.to("pjrt")
    compiled = torch.compile(part, fullgraph=True, dynamic=False)
    for i in range(5):
        for function, base in ((part, theirs), (compiled, ours)):
            out = function(base[i : i + 3])
            assert out.storage_offset() == (i + 1) * 6
            out.mul_(3)
    assert torch.equal(ours.cpu(), theirs)
    assert torch.pjrt.stats()["captures"] == 1


def test_a_plan_that_does_not_reach_is_captured_once_more() -> None:
    """Eight elements from a multiple of 4 are rows of the payload seen in fours; from elsewhere they are gathered."""
    stats = same_at_every_position(lambda x: x.view(2, 4).sum(0) * 2, lambda c, i: (c.view(-1)[i : i + 8],), 12)
    assert stats["captures"] <= 2


def test_other_dtypes_over_the_same_bytes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(x).conj().resolve_conj() * x.view(torch.int32)[..., 0].bool()

    same_at_every_position(function, lambda c, i: (c.view(4, 24, 4, 2)[1, i : i + 2],), 4)


@pytest.mark.parametrize("absolute", ["as_strided", "cond"])
def test_graphs_that_know_their_positions(absolute: str) -> None:
    def strided(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2, 3), (3, 1), 5) + x[:2, :3]

    def cond(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x[1:] * 2, lambda x: x[:-1] - 1, (x,))

    function = {"as_strided": strided, "cond": cond}[absolute]
    assert same_at_every_position(function, lambda c, i: (c[1, i : i + 3],), 4)["captures"] >= 1


def test_backward_of_parts() -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).tanh().sum()

    weight, data = torch.randn(8, 3), torch.randn(24, 8)
    compiled = torch.compile(loss, fullgraph=True, dynamic=False)
    w, v = weight.clone().requires_grad_(), weight.to("pjrt").requires_grad_()
    ours = data.to("pjrt")
    for i in range(0, 20, 4):
        loss(data[i : i + 4], w).backward()
        compiled(ours[i : i + 4], v).backward()
    assert w.grad is not None and v.grad is not None
    torch.testing.assert_close(v.grad.cpu(), w.grad, rtol=1e-5, atol=1e-5)
    assert torch.pjrt.stats()["captures"] == 2


def test_random_numbers_do_not_move() -> None:
    compiled = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5), fullgraph=True, dynamic=False)
    data = torch.ones(24, 8, device="pjrt")
    outcomes = []
    for function in (compiled, lambda x: torch.nn.functional.dropout(x, 0.5)):
        torch.manual_seed(3)
        outcomes.append([function(data[i : i + 4]).cpu() for i in (0, 4, 9)])
    for a, b in zip(*outcomes, strict=True):
        assert torch.equal(a, b)
    assert torch.pjrt.stats()["captures"] == 1


@pytest.mark.parametrize(
    ("size", "stride"),
    [((3, 8), (8, 1)), ((2, 2), (24, 3)), ((5,), (7,)), ((2, 3), (5, 3)), ((), ()), ((1, 4), (96, 2))],
)
def test_offsets_and_starts(size: tuple[int, ...], stride: tuple[int, ...]) -> None:
    """Of a plan that holds at several offsets, starts_at gives what the layout's own search finds there."""
    payload = aval_of_tensor(torch.zeros(96, device="pjrt"))[0].spec
    reach = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    plans = {}
    for offset in range(96 - reach):
        aval, starts = aval_of(payload, size, stride, offset, torch.float32)
        assert aval.plan is not None
        assert offset_of(aval.plan, starts) == offset
        assert starts_at(aval.plan, offset) == starts
        plans[aval.plan] = offset
    for plan in plans:
        for other in range(96 - reach):
            found = starts_at(plan, other)
            assert found is None or offset_of(plan, found) == other
