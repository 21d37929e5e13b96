"""What a node of AOTAutograd's graph gives, in a few plain values: enough to split the graph and to name its lines.

PyTorch keeps fake tensors and stack traces beside its nodes. A graph that comes from the disk has neither, so what is
needed of them is taken once, and stored with the graph (stored.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import Node

from torch_pjrt.dispatch.lines import user_file

_KEY = "torch_pjrt_facts"
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one node. known: whether PyTorch says what it gives; devices: the kinds of device of the tensors that it gives."""

    known: bool
    devices: tuple[str, ...]
    sparse: bool
    sized_by_value: bool  # a size of a result depends on an operand's values
    line: str | None  # "model.py:12 in forward"


def facts_of(node: Node) -> Facts:
    """Those that were settled, or those that follow from what PyTorch keeps beside the node."""
    settled = node.meta.get(_KEY)
    return settled if isinstance(settled, Facts) else _taken(node)


def settle(node: Node, facts: Facts | None = None) -> None:
    """Keep a node's facts, whatever becomes of PyTorch's."""
    node.meta[_KEY] = facts_of(node) if facts is None else facts


def line_of(node: Node) -> str | None:
    """ "model.py:12 in forward": the innermost line of the user's code that a node comes from, or of any code if none is."""
    settled = node.meta.get(_KEY)
    return settled.line if isinstance(settled, Facts) else _line(node)


def _taken(node: Node) -> Facts:
    found = _tensors(node)
    return Facts(
        known="val" in node.meta,
        devices=tuple(t.device.type for t in found),
        sparse=any(t.layout != torch.strided for t in found),
        sized_by_value=_sized_by_value(node, found),
        line=_line(node),
    )


def _line(node: Node) -> str | None:
    frames = _FRAME.findall(node.stack_trace or "")
    mine = [f for f in frames if user_file(f[0])] or frames
    return "{}:{} in {}".format(*mine[-1]) if mine else None


def _tensors(node: Node) -> list[torch.Tensor]:
    """The (fake) tensors that a node gives."""
    return [t for t in torch.utils._pytree.tree_leaves(node.meta.get("val")) if isinstance(t, torch.Tensor)]


def _sized_by_value(node: Node, found: list[torch.Tensor]) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.dynamic_output_shape not in node.target.tags:
        return False  # indexing has the tag too, for the sake of masks
    known = {s for n in node.all_input_nodes for t in _tensors(n) for s in free_unbacked_symbols(t)}
    return any(s not in known for t in found for s in free_unbacked_symbols(t))
