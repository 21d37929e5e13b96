"""The part of a graph that works on CPU tensors and Python numbers: run on the host at each call, before the device's part.

Step counters of optimizers, learning rates, copies of inputs to the device and arithmetic on sizes are such parts. A Program
cannot hold them, and what a capture would keep of them is the value of one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.node import Node, map_arg

Env = dict[Node, Any]
_REPLAY = "run_with_rng_state"


class HostPart:
    """Which nodes of a graph run on the host, and which of their values the device's part reads."""

    def __init__(self, graph: torch.fx.GraphModule):
        self.graph = graph
        self.placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self.host: set[Node] = set()
        self.nodes: list[Node] = []  # in order; placeholders are not among them
        device: set[Node] = set()
        for node in graph.graph.nodes:
            if node.op == "output" or not _placed_on_host(node, device):
                device.add(node)
            else:
                self.host.add(node)
                if node.op != "placeholder":
                    self.nodes.append(node)
        self.copied = {n for n in self.host if n.op == "placeholder" and _tensors(n) and self._read(n, device)}
        self.crossing = [n for n in self.nodes if self._read(n, device) and not _is_module(n)]
        self.arguments = [n for n in self.placeholders if n not in self.host or not _tensors(n) or n in self.copied]
        self.states = {n for n in self.placeholders if n in self.host and _is_state(n)}
        (output,) = (n for n in graph.graph.nodes if n.op == "output")
        self.results = [
            (i, n) for i, n in enumerate(output.args[0]) if isinstance(n, Node) and n in self.host and _tensors(n)
        ]

    def __bool__(self) -> bool:
        return bool(self.copied) or bool(self.results) or not all(_is_module(n) for n in self.nodes)

    def _read(self, node: Node, device: set[Node]) -> bool:
        return any(user in device and user.op != "output" for user in node.users)

    def run(self, args: Sequence[Any]) -> tuple[Env, list[Any]]:
        """Compute the host's part: all its values, and the arguments of the device's part, CPU tensors copied to the device."""
        env: Env = dict(zip(self.placeholders, args, strict=True))
        moved: Env = {n: _to_device(env[n]) for n in self.copied if n not in self.states}
        for node in self.nodes:
            if node.op == "get_attr":
                env[node] = _attribute(self.graph, str(node.target))
            else:
                given, named = map_arg((node.args, node.kwargs), env.__getitem__)
                env[node] = node.target(*given, **named)  # type: ignore[operator]
        return env, [moved.get(n, env[n]) for n in self.arguments] + [_to_device(env[n]) for n in self.crossing]

    def environment(self, env: Env, device_args: Sequence[Any]) -> Env:
        """What the device's part starts from: its arguments, and for the rest of the host's values these values."""
        return {
            **{n: env[n] for n in self.host},
            **dict(zip((*self.arguments, *self.crossing), device_args, strict=True)),
        }


def _placed_on_host(node: Node, device: set[Node]) -> bool:
    """Whether a node needs nothing of the device: no operand is there, and if it has none, neither is its result."""
    if node.op in ("call_module", "call_method") or any(n in device for n in node.all_input_nodes):
        return False
    if node.op == "get_attr":
        value = _attribute(node.graph.owning_module, str(node.target))
        return not isinstance(value, torch.Tensor) or value.device.type == "cpu"
    found = _tensors(node)
    if node.op == "placeholder" or not node.all_input_nodes or not any(_tensors(n) for n in node.all_input_nodes):
        return all(t.device.type == "cpu" for t in found) and "val" in node.meta
    return True


def _tensors(node: Node) -> list[torch.Tensor]:
    """The (fake) tensors that a node gives."""
    return [t for t in torch.utils._pytree.tree_leaves(node.meta.get("val")) if isinstance(t, torch.Tensor)]


def _is_state(node: Node) -> bool:
    """Whether a placeholder is a state of the generator, which a capture reads at each call."""
    return bool(node.users) and all(_REPLAY in str(user.target) and user.args[0] is node for user in node.users)


def _is_module(node: Node) -> bool:
    """Whether a node is the body of a higher-order operator."""
    return node.op == "get_attr" and not isinstance(
        _attribute(node.graph.owning_module, str(node.target)), torch.Tensor
    )


def _attribute(module: Any, target: str) -> Any:
    for name in target.split("."):
        module = getattr(module, name)
    return module


def _to_device(value: Any) -> Any:
    ours = torch._C._get_privateuse1_backend_name()
    if isinstance(value, torch.Tensor) and value.device.type == "cpu":
        return value.to(ours)
    if isinstance(value, (list, tuple)):
        return type(value)(_to_device(v) for v in value)
    return value
