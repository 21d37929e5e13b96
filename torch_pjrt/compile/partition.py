"""How a joint graph is cut into forward and backward: PyTorch's min-cut, but what forward decided is not decided again.

Backward may compute a value again from what was saved. XLA rounds `a * b + c` once or twice, as it fuses, so the value may
come out an ulp off, which is nothing for arithmetic; but then `x == x.amax()` finds no largest element, and the gradient is
lost. So comparisons and roundings of computed numbers are saved, or what they compare where they are backward's own.
Called by backend.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy

_COMPARISONS = "eq ne lt le gt ge isclose"
_ROUNDINGS = "floor ceil round trunc frac remainder fmod floor_divide"
_SEARCHES = "argmax argmin bucketize searchsorted"
DECISIONS = frozenset(f"aten::{name}" for name in f"{_COMPARISONS} {_ROUNDINGS} {_SEARCHES}".split())
_CASTS = frozenset({"aten::_to_copy", "prims::convert_element_type"})


def min_cut(
    joint: torch.fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **options: Any
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """AOTAutograd's partition_fn."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    for node in to_save(joint.graph, num_fwd_outputs):
        node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
    return min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)


def to_save(graph: torch.fx.Graph, num_fwd_outputs: int) -> Iterator[torch.fx.Node]:
    """The nodes of forward that backward may not compute again. The first num_fwd_outputs outputs are forward's."""
    outputs: Any = graph.output_node().args[0]
    forward = _ancestors(n for n in outputs[:num_fwd_outputs] if isinstance(n, torch.fx.Node))
    late: set[torch.fx.Node] = set()  # made of gradients
    for node in graph.nodes:
        if (node.op == "placeholder" and "tangents" in str(node.target)) or not late.isdisjoint(node.all_input_nodes):
            late.add(node)
        elif _decides(node):
            yield from [node] if node in forward else _computed_in(forward, node.all_input_nodes)


def _ancestors(nodes: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    found: set[torch.fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _computed_in(forward: set[torch.fx.Node], nodes: Iterable[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """The inexact values of forward that others are made of, views aside."""
    seen: set[torch.fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node not in forward or _is_view(node):
            waiting += node.all_input_nodes
        elif _is_inexact(node) and node.op != "placeholder":
            yield node


def _decides(node: torch.fx.Node) -> bool:
    """Whether a node's value may jump where a computed operand is an ulp off."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = node.target._schema.name
    if name not in DECISIONS and not (name in _CASTS and not _is_inexact(node)):
        return False
    return any(_is_inexact(operand) and operand.op != "placeholder" for operand in node.all_input_nodes)


def _is_view(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def _is_inexact(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
