"""What the nodes of a captured graph are to the user: lines of the program, and names of the arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from torch_pjrt.compile.facts import line_of

_LOCAL = re.compile(r"^L\['(\w+)'\]")
_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]")


def first_line(graph: torch.fx.GraphModule) -> str | None:
    """The first line of the user's code that a graph comes from."""
    return next((line for line in map(line_of, graph.graph.nodes) if line), None)


def names_of(graph: torch.fx.GraphModule) -> list[str]:
    """What the user calls the inputs of a graph of Dynamo: "x", "self.fc.weight", "x.size()[0]"."""
    out = []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            source = getattr(node, "_dynamo_source", None)
            out.append(_shown(source) if source is not None else str(node.target))
    return out


def names_in(graph: torch.fx.GraphModule, given: Sequence[str]) -> list[str]:
    """Names of the placeholders of AOTAutograd's graph, after those of the graph that it was made from."""
    nodes = [n for n in graph.graph.nodes if n.op == "placeholder"]
    return [_given(str(n.target), given) for n in nodes]


def _given(target: str, names: Sequence[str]) -> str:
    match = re.fullmatch(r"(primals|arg)_?(\d+)(?:_1)?", target)
    if match is None:
        return target
    index = int(match[2]) - (match[1] == "primals")
    return names[index] if 0 <= index < len(names) else target


def _shown(source: Any) -> str:
    name = source.name
    text = name() if callable(name) else str(name)
    return _MEMBER.sub(r".\1", _LOCAL.sub(r"\1", text))
