"""What backward may not compute again: on the CPU client, `a * b + c` of a forward and of its backward may differ by an ulp."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torch_pjrt.compile.partition import to_save

Function = Callable[..., torch.Tensor]


def largest(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return (a * b + c).abs().amax(-1).sum()


def smallest_over_rows(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(a * b + c).amin(0).sum()


def infinite_norm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(a * b + c, float("inf"), dim=-1).sum()


def above_the_largest_but_ten(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    x = a * b + c
    kth = x.topk(10).values[:, -1:]
    return torch.where(x < kth, 0.0, x).sum()


def fraction(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    x = a * b + c
    return ((x - x.floor()) * a).sum()


@pytest.mark.parametrize(
    "function",
    [largest, smallest_over_rows, infinite_norm, above_the_largest_but_ten, fraction],
    ids=lambda f: f.__name__,
)
def test_backward_finds_what_forward_found(function: Function) -> None:
    torch.manual_seed(0)
    host = [torch.randn(64, 128, requires_grad=True) for _ in range(3)]
    chip = [x.detach().to("pjrt").requires_grad_() for x in host]
    function(*host).backward()
    torch.compile(function)(*chip).backward()
    for ours, theirs in zip(chip, host, strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)


def _graph(
    build: Callable[[torch.fx.Graph, list[torch.fx.Node]], tuple[torch.fx.Node, torch.fx.Node]],
) -> torch.fx.Graph:
    """One output of forward and one of backward, which `build` makes of two inputs."""
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(name) for name in ("primals_1", "tangents_1")]
    graph.output(build(graph, nodes))
    for node in graph.nodes:
        node.meta["val"] = torch.zeros(3, dtype=torch.bool if "le" in node.name or "eq" in node.name else torch.float32)
    return graph


def test_a_comparison_in_forward_is_saved_itself() -> None:
    aten = torch.ops.aten

    def build(g: torch.fx.Graph, given: list[torch.fx.Node]) -> tuple[torch.fx.Node, torch.fx.Node]:
        x = g.call_function(aten.exp.default, (given[0],))
        mask = g.call_function(aten.le.Scalar, (x, 1.0))
        return g.call_function(aten.mul.Tensor, (x, mask)), g.call_function(aten.mul.Tensor, (given[1], mask))

    assert [n.name for n in to_save(_graph(build), 1)] == ["le_scalar"]


def test_what_a_comparison_of_backward_reads_is_saved_through_views() -> None:
    aten = torch.ops.aten

    def build(g: torch.fx.Graph, given: list[torch.fx.Node]) -> tuple[torch.fx.Node, torch.fx.Node]:
        x = g.call_function(aten.exp.default, (given[0],))
        seen = g.call_function(aten.view.default, (x, [3]))
        out = g.call_function(aten.sum.default, (seen,))
        mask = g.call_function(aten.eq.Tensor, (seen, given[0]))
        return out, g.call_function(aten.mul.Tensor, (given[1], mask))

    assert [n.name for n in to_save(_graph(build), 1)] == ["exp_default"]


def test_comparisons_of_inputs_and_of_gradients_are_left_alone() -> None:
    aten = torch.ops.aten

    def build(g: torch.fx.Graph, given: list[torch.fx.Node]) -> tuple[torch.fx.Node, torch.fx.Node]:
        positive = g.call_function(aten.gt.Scalar, (given[0], 0.0))
        out = g.call_function(aten.mul.Tensor, (given[0], positive))
        scaled = g.call_function(aten.mul.Tensor, (given[1], out))
        mask = g.call_function(aten.le.Scalar, (scaled, 1.0))
        return out, g.call_function(aten.mul.Tensor, (scaled, mask))

    assert list(to_save(_graph(build), 1)) == []
