"""A graph of AOTAutograd as bytes, and back: what the operators are by name, their arguments, and the facts of the nodes.

Only what another process surely understands alike is written: operators of PyTorch's own namespaces and those that the user
vouches for, plain functions of named modules, plain values, constant tensors. Anything else raises NotStorable, and the graph
is traced anew each time.
Called by output.py.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.node import Node

from torch_pjrt.compile.facts import Facts, facts_of, settle

NAMESPACES = frozenset({"aten", "prims"})
_MODULES = frozenset({"_operator", "math", "builtins", "torch"})
_PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


def vouched_for() -> dict[str, str]:
    """Functions of which the user says to PyTorch that traces may hold them, each with a text that changes when what it does
    changes; an operator is "torch.ops.namespace.name" there."""
    return dict(getattr(torch._inductor.config, "unsafe_marked_cacheable_functions", {}))


def same_elsewhere(op: torch._ops.OpOverload | torch._ops.OpOverloadPacket) -> bool:
    """Whether an operator surely does the same in another process."""
    name = op._schema.name if isinstance(op, torch._ops.OpOverload) else op._qualified_op_name
    namespace, _, own = name.partition("::")
    return namespace in NAMESPACES or f"torch.ops.{namespace}.{own}" in vouched_for()


class NotStorable(Exception):
    """Something in a graph that has no meaning in another process."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A node, by its position."""

    index: int


@dataclass(frozen=True, slots=True)
class Name:
    """An operator or a function: where it is found."""

    kind: str  # "op", "higher_order" or "function"
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant tensor; device: the kind of device on which it belongs."""

    tensor: torch.Tensor
    device: str


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """nodes: (what, name, target, arguments, keyword arguments). The lines of facts are positions in `lines`, of which the
    first `traced` are those of the graph that this one was traced from."""

    nodes: list[tuple[str, str, Any, Any, Any]]
    attributes: dict[str, Any]
    facts: list[Facts]
    lines: list[str]
    traced: int


def dumps(graph: torch.fx.GraphModule, lines: Sequence[str | None]) -> bytes:
    """The bytes of a graph. lines: of the graph that it was traced from; they are written as positions among these, so that
    they stay right where that graph's source has moved. Raises NotStorable."""
    return pickle.dumps(_stored(graph, lines))


def loads(body: bytes, lines: Sequence[str | None] | None = None) -> torch.fx.GraphModule:
    """The graph. lines: of the graph from which it would be traced now."""
    return _graph(pickle.loads(body), lines)


def _stored(graph: torch.fx.GraphModule, lines: Sequence[str | None]) -> StoredGraph:
    nodes = list(graph.graph.nodes)
    positions = {node: i for i, node in enumerate(nodes)}
    known: dict[str, int] = {}
    for i, line in enumerate(lines):
        if line is not None:
            known.setdefault(line, i)
    texts = [line or "" for line in lines]
    facts = []
    attributes = {}
    rows = []
    for node in nodes:
        here = facts_of(node)
        if here.line is not None and here.line not in known:
            known[here.line] = len(texts)
            texts.append(here.line)
        facts.append(replace(here, line=None if here.line is None else str(known[here.line])))
        if node.op not in ("placeholder", "get_attr", "call_function", "output"):
            raise NotStorable(f"a node of the kind {node.op}")
        target: Any = node.target
        if node.op == "call_function":
            target = _name_of(target)
        elif node.op == "get_attr":
            attributes[target] = _attribute(graph, target)
        rows.append((node.op, node.name, target, _plain(node.args, positions), _plain(node.kwargs, positions)))
    return StoredGraph(rows, attributes, facts, texts, len(lines))


def _name_of(target: Any) -> Name:
    """Where a target is found again. Raises NotStorable unless it is the thing that is found there."""
    if isinstance(target, torch._ops.OpOverload):
        if not same_elsewhere(target):
            raise NotStorable(f"the operator {target.name()}, which may mean something else in another process")
        packet = target._schema.name.split("::")[1]
        return _checked(Name("op", (target.namespace, packet, target._overloadname)), target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return _checked(Name("higher_order", (target._name,)), target)
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", None)
    if module not in _MODULES or name is None:
        raise NotStorable(f"the function {target!r}")
    return _checked(Name("function", (module, name)), target)


def _checked(name: Name, target: Any) -> Name:
    try:
        found = _found(name)
    except (AttributeError, ImportError) as error:
        raise NotStorable(f"{target!r}: {error}") from error
    if found is not target:
        raise NotStorable(f"{target!r} is not what is found under its name")
    return name


def _found(name: Name) -> Callable[..., Any]:
    if name.kind == "function":
        module, attribute = name.path
        return getattr(importlib.import_module(module), attribute)  # type: ignore[no-any-return]
    root: Any = torch.ops if name.kind == "op" else torch.ops.higher_order
    for part in name.path:
        root = getattr(root, part)
    return root  # type: ignore[no-any-return]


def _attribute(graph: torch.fx.GraphModule, target: str) -> Any:
    value = getattr(graph, target, None)
    if isinstance(value, torch.fx.GraphModule):
        return _stored(value, ())
    if type(value) is torch.Tensor and value.layout == torch.strided and not value.requires_grad:
        return Constant(value.detach().cpu().clone(), value.device.type)
    raise NotStorable(f"the attribute {target}, which is a {type(value).__name__}")


def _plain(value: Any, positions: dict[Node, int]) -> Any:
    """An argument with nodes and operators by name."""
    if value is None or value is Ellipsis or type(value) in _PLAIN:
        return value
    if isinstance(value, Node):
        return Ref(positions[value])
    if isinstance(value, torch._ops.OperatorBase):
        return _name_of(value)
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        items = [_plain(v, positions) for v in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {_plain(k, positions): _plain(v, positions) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(_plain(v, positions) for v in (value.start, value.stop, value.step)))
    raise NotStorable(f"an argument of the type {type(value).__name__}")


def _graph(stored: StoredGraph, lines: Sequence[str | None] | None) -> torch.fx.GraphModule:
    texts: list[str | None] = list(stored.lines)
    if lines is not None and len(lines) == stored.traced:
        texts[: stored.traced] = lines
    graph = torch.fx.Graph()
    nodes: list[Node] = []
    for (op, name, target, args, kwargs), facts in zip(stored.nodes, stored.facts, strict=True):
        found = _found(target) if isinstance(target, Name) else target
        node = graph.create_node(op, found, _real(args, nodes), _real(kwargs, nodes), name)
        settle(node, replace(facts, line=None if facts.line is None else texts[int(facts.line)]))
        nodes.append(node)
    return torch.fx.GraphModule({name: _restored(value) for name, value in stored.attributes.items()}, graph)


def _restored(value: Any) -> Any:
    if isinstance(value, StoredGraph):
        return _graph(value, None)
    return value.tensor.to(value.device)


def _real(value: Any, nodes: list[Node]) -> Any:
    """An argument with the nodes and operators themselves."""
    if isinstance(value, Ref):
        return nodes[value.index]
    if isinstance(value, Name):
        return _found(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_real(v, nodes) for v in value)
    if isinstance(value, dict):
        return {k: _real(v, nodes) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(_real(v, nodes) for v in (value.start, value.stop, value.step)))
    return value
