"""Traces of AOTAutograd from the disk: what hits, what must not, and that results are those of a graph that was traced.

Most tests compile twice in one process, with a Dynamo that forgets in between: what comes from the disk is the same.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from torch_pjrt.compile import facts, stored
from torch_pjrt.config import settings
from torch_pjrt.errors import CacheEntryWarning


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """An empty folder for PyTorch's caches, and its AOTAutogradCache switched on."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    with torch._functorch.config.patch(enable_autograd_cache=True):
        yield tmp_path / "inductor" / "aotautograd"


def counts() -> tuple[int, int, int]:
    """Hits, misses and bypasses since the last time, or since the test began."""
    stats = torch.pjrt.stats()
    torch.pjrt.reset_stats()
    return stats["trace_hits"], stats["trace_misses"], stats["trace_bypasses"]


def twice(work: Callable[[], Any]) -> tuple[Any, Any]:
    """The results of work that compiles one graph: traced, and from the disk."""
    first = work()
    assert counts() == (0, 1, 0)
    torch._dynamo.reset()
    second = work()
    assert counts() == (1, 0, 0)
    return first, second


HIT, MISS, BYPASS = (1, 0, 0), (0, 1, 0), (0, 0, 1)


def fresh(function: Callable[..., Any], *args: Any, **named: Any) -> tuple[int, int, int]:
    """The counts of a first call in a Dynamo that knows nothing."""
    torch._dynamo.reset()
    counts()
    torch.compile(function, backend="pjrt", **named)(*args)
    return counts()


def test_training_with_buffers_and_dropout() -> None:
    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)).to("pjrt")
        step = torch.compile(model)
        x = torch.ones(3, 4, device="pjrt", requires_grad=True)
        for _ in range(2):
            step(x).square().sum().backward()
        return [
            x.grad.cpu(),
            model[1].running_mean.cpu(),
            model[1].num_batches_tracked.cpu(),
            model[0].weight.grad.cpu(),
        ]

    first, second = twice(train)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert second[2].item() == 2


def test_random_numbers_are_eagers() -> None:
    def draw(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    x = torch.ones(40, device="pjrt")

    def work() -> torch.Tensor:
        torch.manual_seed(3)
        compiled = torch.compile(draw)
        return torch.stack([compiled(x), compiled(x)]).cpu()

    first, second = twice(work)
    torch.manual_seed(3)
    eager = torch.stack([draw(x), draw(x)]).cpu()
    assert torch.equal(first, second) and torch.equal(second, eager)


def test_written_inputs_views_and_constants() -> None:
    def change(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x[1:].mul_(3)
        return x.t(), y + torch.tensor([1.5, 2.5]).to("pjrt")

    def work() -> list[torch.Tensor]:
        x, y = torch.arange(6.0, device="pjrt").view(3, 2), torch.zeros(2, device="pjrt")
        views, added = torch.compile(change)(x, y)
        views.add_(1)  # of x
        return [x.cpu(), added.cpu()]

    first, second = twice(work)
    assert torch.equal(second[0], torch.tensor([[1.0, 2.0], [7.0, 10.0], [13.0, 16.0]]))
    assert torch.equal(second[1], torch.tensor([1.5, 2.5])) and torch.equal(first[0], second[0])


def test_dynamic_sizes() -> None:
    def scale(x: torch.Tensor) -> torch.Tensor:
        return (x * x.shape[0]).sum(0) if x.shape[0] > 4 else x.sum(0)

    def work() -> list[torch.Tensor]:
        compiled = torch.compile(scale, dynamic=True)
        inputs = [torch.ones(rows, 2, device="pjrt", requires_grad=True) for rows in (7, 9)]
        outs = [compiled(x) for x in inputs]
        for out in outs:
            out.sum().backward()
        return [outs[1].detach().cpu(), *(x.grad.cpu() for x in inputs)]

    first, second = twice(work)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    assert fresh(scale, torch.ones(3, 2, device="pjrt", requires_grad=True), dynamic=True) == MISS  # the other branch


def test_control_flow() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))

    x = torch.ones(3, device="pjrt")
    torch.compile(choose)(x)
    torch._dynamo.reset()
    compiled = torch.compile(choose)
    assert compiled(x).tolist() == [2.0] * 3 and compiled(-x).tolist() == [-2.0] * 3
    assert counts() in ((1, 1, 0), (0, 0, 2))  # what PyTorch calls cacheable differs between releases


def test_what_is_part_of_the_key() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    x = torch.ones(3, device="pjrt")
    assert [fresh(double, x), fresh(double, x)] == [MISS, HIT]
    assert fresh(double, x, options={"recompute": False}) == MISS
    assert fresh(double, x, options={"matmul_precision": "high"}) == MISS
    assert fresh(double, x, mode="reduce-overhead") == MISS
    assert fresh(double, x.double()) == MISS
    assert fresh(double, torch.ones(3, device="pjrt", requires_grad=True)) == MISS
    assert fresh(lambda x: x.sin() * 3, x) == MISS
    with settings.override(index_checks=not settings.index_checks):
        assert fresh(double, x) == MISS
    with torch.autocast("pjrt", dtype=torch.bfloat16):
        assert fresh(double, x) == MISS
    assert fresh(double, x) == HIT


def test_another_version_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_pjrt.compile import cacheable

    x = torch.ones(3, device="pjrt")
    assert fresh(torch.tanh, x) == MISS
    monkeypatch.setattr(cacheable, "__version__", "0.0.0")
    assert fresh(torch.tanh, x) == MISS


def test_inputs_in_one_storage_are_traced_each_time() -> None:
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return a * b

    whole = torch.zeros(4, device="pjrt")
    assert fresh(add, torch.zeros(2, device="pjrt"), torch.zeros(2, device="pjrt")) == MISS
    torch._dynamo.reset()
    assert torch.compile(add)(whole[:2], whole[0:2]).tolist() == [1.0, 1.0]
    assert counts() == BYPASS


def test_operators_that_the_user_vouches_for() -> None:
    with torch.library._scoped_library("traces_test", "FRAGMENT"):

        @torch.library.custom_op("traces_test::scaled", mutates_args=())
        def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
            return x * by

        scaled.register_fake(lambda x, by: torch.empty_like(x))
        scaled.register_autograd(
            lambda ctx, grad: (scaled(grad, ctx.by), None),
            setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
        )

        def run(x: torch.Tensor) -> torch.Tensor:
            return scaled(x, 3.0).sin()

        def work() -> list[float]:
            x = torch.ones(2, device="pjrt", requires_grad=True)
            torch.compile(run)(x).sum().backward()
            return list(x.grad.tolist())  # type: ignore[union-attr]

        expected = [3 * math.cos(3.0)] * 2
        assert work() == pytest.approx(expected) and counts() == BYPASS
        marked = {"torch.ops.traces_test.scaled": "1"}
        torch._dynamo.reset()
        with torch._inductor.config.patch(unsafe_marked_cacheable_functions=marked):
            assert twice(work) == (pytest.approx(expected), pytest.approx(expected))
        torch._dynamo.reset()
        with torch._inductor.config.patch(unsafe_marked_cacheable_functions=dict.fromkeys(marked, "2")):
            work()
            assert counts() == MISS


def test_operators_of_others_are_traced_each_time() -> None:
    with torch.library._scoped_library("traces_test", "FRAGMENT") as library:
        library.define("triple(Tensor x) -> Tensor")
        library.impl("triple", lambda x: x * 3, "CompositeImplicitAutograd")
        x = torch.ones(2, device="pjrt")
        assert fresh(lambda x: torch.ops.traces_test.triple(x) + 1, x) == BYPASS
        with torch.library._scoped_library("traces_test", "IMPL") as other:
            other.impl("triple", lambda x: x * 30, "CompositeImplicitAutograd", allow_override=True)
            torch._dynamo.reset()
            assert torch.compile(lambda x: torch.ops.traces_test.triple(x) + 1)(x).tolist() == [31.0, 31.0]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_entries_are_traced_anew(folder: pathlib.Path, damage: str) -> None:
    x = torch.ones(3, device="pjrt")
    assert fresh(torch.tanh, x) == MISS
    (entry,) = (path for path in folder.rglob("*") if path.is_file())
    body = bytearray(entry.read_bytes())
    body[len(body) // 2] ^= 1
    entry.write_bytes({"cut": bytes(body[: len(body) // 2]), "flipped": bytes(body), "empty": b""}[damage])
    with pytest.warns(CacheEntryWarning, match="damaged"):
        assert fresh(torch.tanh, x) == MISS
    assert fresh(torch.tanh, x) == HIT


def test_a_folder_that_cannot_be_written(folder: pathlib.Path) -> None:
    folder.parent.mkdir()
    folder.write_text("not a folder")
    x = torch.ones(3, device="pjrt")
    assert torch.compile(torch.tanh)(x).tolist() == torch.tanh(x).tolist()
    assert fresh(torch.tanh, x)[0] == 0


def test_switched_off() -> None:
    x = torch.ones(3, device="pjrt")
    with torch._functorch.config.patch(enable_autograd_cache=False):
        assert [fresh(torch.tanh, x), fresh(torch.tanh, x)] == [BYPASS, BYPASS]


def test_a_graph_that_cannot_be_kept_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> bytes:
        raise stored.NotStorable("a reason")

    monkeypatch.setattr(stored, "dumps", refuse)
    x = torch.ones(3, device="pjrt")
    assert [fresh(torch.tanh, x), fresh(torch.tanh, x)] == [BYPASS, BYPASS]


def test_lines_are_those_of_the_present_source() -> None:
    graph = torch.fx.symbolic_trace(lambda x: torch.ops.aten.mul.Tensor(torch.ops.aten.sin.default(x), 2))
    nodes = list(graph.graph.nodes)
    for node, line in zip(nodes, (None, "old.py:1 in f", "elsewhere.py:9 in g", None), strict=True):
        facts.settle(node, facts.Facts(True, ("pjrt",), False, False, line))
    body = stored.dumps(graph, ["old.py:1 in f", None])
    lines = lambda *given: [facts.line_of(n) for n in stored.loads(body, *given).graph.nodes]
    assert lines() == [None, "old.py:1 in f", "elsewhere.py:9 in g", None]
    assert lines(["new.py:5 in f", None]) == [None, "new.py:5 in f", "elsewhere.py:9 in g", None]
    assert stored.loads(body)(torch.ones(2)).tolist() == graph(torch.ones(2)).tolist()


def test_only_what_means_the_same_elsewhere_is_stored() -> None:
    def graph_of(target: Any) -> torch.fx.GraphModule:
        graph = torch.fx.Graph()
        graph.output((graph.call_function(target, (graph.placeholder("x"),)),))
        return torch.fx.GraphModule(nn.Module(), graph)

    assert stored.dumps(graph_of(torch.ops.aten.sin.default), [])
    for target in (graph_of, torch.ops.quantized.relu6, torch.ops.quantized.linear.default):
        with pytest.raises(stored.NotStorable):
            stored.dumps(graph_of(target), [])
