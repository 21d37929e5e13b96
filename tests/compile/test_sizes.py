"""Dynamic sizes: one graph of Dynamo, one capture per size, at most so many kept, each of them explained."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from torch_pjrt.config import settings
from torch_pjrt.dispatch.install import forget_programs
from torch_pjrt.pjrt import compiler


def graphs() -> int:
    """How many graphs Dynamo has made."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def normalized(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).softmax(-1).sum(0) + x.shape[0]


def test_one_graph_serves_every_size() -> None:
    compiled = torch.compile(normalized, dynamic=True, fullgraph=True)
    for n in (5, 3, 7, 2, 9, 3):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x.to("pjrt")).cpu(), normalized(x), rtol=1e-5, atol=1e-5)
    assert graphs() == 1
    assert torch.pjrt.stats()["captures"] == 5


def test_sizes_zero_and_one() -> None:
    """PyTorch makes a graph of its own for each of them, unless a dimension is marked unbacked."""
    compiled = torch.compile(normalized, dynamic=True, fullgraph=True)
    for n in (4, 1, 0):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x.to("pjrt")).cpu(), normalized(x), rtol=1e-5, atol=1e-5)
    assert graphs() == 3


def test_an_unbacked_dimension_takes_zero_and_one_in_the_same_graph() -> None:
    compiled = torch.compile(lambda x: x * 2 + x.shape[0], fullgraph=True)
    for n in (4, 1, 0, 8):
        x = torch.ones(n, device="pjrt")
        torch._dynamo.decorators.mark_unbacked(x, 0)
        assert compiled(x).tolist() == [2.0 + n] * n
    assert graphs() == 1


def test_automatic_dynamic() -> None:
    """dynamic=None: the second size makes the dimension dynamic, later ones need no graph."""
    compiled = torch.compile(normalized, fullgraph=True)
    for n in (4, 5, 6, 7):
        compiled(torch.ones(n, 4, device="pjrt"))
    assert graphs() == 2


def test_static_makes_a_graph_per_size_up_to_the_limit() -> None:
    compiled = torch.compile(normalized, dynamic=False, fullgraph=True)
    with torch._dynamo.config.patch(recompile_limit=2):
        for n in (4, 5):
            compiled(torch.ones(n, 4, device="pjrt"))
        assert graphs() == 2
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            compiled(torch.ones(6, 4, device="pjrt"))


def test_backward_of_a_dynamic_size() -> None:
    weight = torch.randn(4, 3)

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).relu().sum() / x.shape[0]

    compiled = torch.compile(loss, dynamic=True, fullgraph=True)
    for n in (5, 3, 8):
        x = torch.randn(n, 4)
        w, v = weight.clone().requires_grad_(), weight.to("pjrt").requires_grad_()
        loss(x, w).backward()
        compiled(x.to("pjrt"), v).backward()
        assert w.grad is not None and v.grad is not None
        torch.testing.assert_close(v.grad.cpu(), w.grad, rtol=1e-5, atol=1e-5)
    assert graphs() == 1
    assert torch.pjrt.stats()["captures"] == 6


def test_bounds_of_mark_dynamic() -> None:
    compiled = torch.compile(lambda x: x * 2, fullgraph=True)
    for n in (4, 8, 16):
        x = torch.ones(n, device="pjrt")
        torch._dynamo.mark_dynamic(x, 0, min=2, max=16)
        assert compiled(x).shape == (n,)
    assert graphs() == 1
    assert compiled(torch.ones(32, device="pjrt")).shape == (32,)  # outside of the bounds: a graph of its own
    assert graphs() == 2
    fixed = torch.compile(lambda x: x + torch.ones(4, device=x.device), fullgraph=True)
    x = torch.ones(4, device="pjrt")
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolationError, match="marked"):
        fixed(x)


def test_captures_are_bounded_and_their_executables_freed() -> None:
    forget_programs()
    with settings.override(cache_dir="off", compiled_sizes=2):
        compiled = torch.compile(normalized, dynamic=True, fullgraph=True)
        compiled(torch.ones(3, 4, device="pjrt"))
        gc.collect()
        first = [weakref.ref(e) for e in compiler._executables.values() if "softmax" in str(e.program.steps)]
        assert first
        for n in (4, 5, 6):
            compiled(torch.ones(n, 4, device="pjrt"))
        gc.collect()
        assert all(ref() is None for ref in first)
        stats = torch.pjrt.stats()
        assert (stats["captures"], stats["captures_dropped"]) == (4, 2)
        before = stats["compiles"]
        compiled(torch.ones(6, 4, device="pjrt"))
        assert torch.pjrt.stats()["compiles"] == before
        assert compiled(torch.ones(3, 4, device="pjrt")).shape == (4,)
        assert torch.pjrt.stats()["compiles"] == before + 1


def test_the_option_bounds_one_graph() -> None:
    compiled = torch.compile(normalized, backend="pjrt", dynamic=True, options={"compiled_sizes": 1})
    for n in (3, 4, 5):
        compiled(torch.ones(n, 4, device="pjrt"))
    assert torch.pjrt.stats()["captures_dropped"] == 2


def test_captures_are_explained() -> None:
    layer = nn.Linear(4, 3).to("pjrt")

    def scaled(batch: torch.Tensor) -> torch.Tensor:
        return layer(batch).relu()

    compiled = torch.compile(scaled, dynamic=True)
    with torch.no_grad():
        for n in (3, 5):
            compiled(torch.ones(n, 4, device="pjrt"))
    text = torch.pjrt.explain_recompiles()
    assert "2 graphs of torch.compile captured" in text
    assert "batch has size [5, 4], before [3, 4] (dimension 0)" in text
    assert f"{__file__}:" in text and "in scaled" in text


def test_a_new_graph_never_runs_an_old_one_s_program() -> None:
    """Captures of forgotten graphs go, and what takes their place in memory is told from them."""
    for k in range(8):
        torch._dynamo.reset()
        assert torch.compile(lambda x, k=k: x + k, dynamic=False)(torch.zeros(2, device="pjrt")).tolist() == [k, k]


def test_stances() -> None:
    compiled = torch.compile(lambda x: x + 1)
    compiled(torch.ones(2, device="pjrt"))
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="recompile"):
        compiled(torch.ones(2, 2, device="pjrt"))
    with torch.compiler.set_stance("force_eager"):
        before = torch.pjrt.stats()["captures"]
        assert compiled(torch.ones(3, 3, device="pjrt")).sum().item() == 18
        assert torch.pjrt.stats()["captures"] == before
    with torch.compiler.set_stance("eager_on_recompile"):
        assert compiled(torch.ones(2, 2, device="pjrt")).sum().item() == 8
        assert torch.pjrt.stats()["captures"] == before


def test_disabled_functions_run_eagerly() -> None:
    @torch.compiler.disable
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * 3 if x.sum().item() > 0 else x

    compiled = torch.compile(lambda x: inner(x + 1) + 1)
    assert compiled(torch.ones(2, device="pjrt")).tolist() == [7, 7]
    assert graphs() == 2
