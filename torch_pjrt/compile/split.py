"""Splits a graph into what a Program can hold and what the host does at each call, before it and after it.

Before: work on CPU tensors and Python numbers alone (step counters of optimizers, learning rates, inputs that move to the
device, arithmetic on sizes). A capture would keep their values of one call. After: what reads a device value on the host,
what makes or takes sparse tensors, which no Program holds, and all that depends on either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx.node import Node, map_arg

from torch_pjrt.compile.facts import facts_of

Env = dict[Node, Any]
_REPLAY = "run_with_rng_state"


class Split:
    """The parts of one graph. Without work for the host, `trivial` is true and the graph is the device's part."""

    def __init__(self, graph: torch.fx.GraphModule):
        self.graph = graph
        nodes = [n for n in graph.graph.nodes if n.op != "output"]
        self.placeholders = [n for n in nodes if n.op == "placeholder"]
        self.before: list[Node] = []
        device: set[Node] = set()
        self.after: list[Node] = []
        late: set[Node] = set()
        for node in nodes:
            if any(n in late for n in node.all_input_nodes) or facts_of(node).sparse or _reads(node, device):
                late.add(node)
                self.after.append(node)
            elif _placed_on_host(node, device):
                self.before.append(node)
            else:
                device.add(node)
        self._host = set(self.before)
        self._device = device
        self.states = {n for n in self.placeholders if n in self._host and _is_state(n)}
        self.copied = [n for n in self.placeholders if n in self._host and facts_of(n).devices and self._serves(n)]
        self.crossing = [n for n in self.before if n.op != "placeholder" and self._serves(n) and not _is_module(n)]
        self.arguments = [n for n in self.placeholders if n in device or not facts_of(n).devices or n in self.copied]
        self.wanted = [n for n in nodes if n in device and n.op != "placeholder" and any(u in late for u in n.users)]
        (output,) = (n for n in graph.graph.nodes if n.op == "output")
        self.results = [
            (i, n)
            for i, n in enumerate(output.args[0])
            if isinstance(n, Node) and (n in late or n in self._host and facts_of(n).devices)
        ]
        work = [n for n in self.before if n.op != "placeholder" and not _is_module(n)]
        self.trivial = not (work or self.copied or self.after or self.results)

    @property
    def sound(self) -> bool:
        """Whether the part after may run last: what it reads is not storage that the device's part writes."""
        return not any(map(_writes, self._device)) or not any(_may_alias(n) for n in self._read_late())

    @property
    def runs_eagerly(self) -> bool:
        """Whether operators of the device depend on what the host reads."""
        ours = torch._C._get_privateuse1_backend_name()
        return any(ours in facts_of(n).devices for n in self.after)

    @property
    def reason(self) -> str:
        """Why there is a part after."""
        sparse = any(facts_of(n).sparse for n in self.after)
        return "it has sparse tensors" if sparse else "it needs a value that is read on the host"

    def early(self, args: Sequence[Any]) -> tuple[Env, list[Any]]:
        """Do the part before. Gives the host's values, and the arguments of the device's part, copied to the device."""
        env: Env = dict(zip(self.placeholders, args, strict=True))
        moved: Env = {n: _to_device(env[n]) for n in self.copied if n not in self.states}
        for node in self.before:
            if node.op != "placeholder":
                self._run(node, env)
                if node in self.crossing:  # now, since a later node may write to it
                    moved[node] = _to_device(env[node])
        return env, [moved.get(n, env[n]) for n in (*self.arguments, *self.crossing)]

    def device_env(self, env: Env, device_args: Sequence[Any]) -> Env:
        """What the device's part starts from; nodes of the other parts have no value there or are not needed."""
        given = dict(zip((*self.arguments, *self.crossing), device_args, strict=True))
        return {**{n: env[n] for n in self.before}, **dict.fromkeys(self.after), **given}

    def late(self, env: Env, results: list[Any]) -> list[Any]:
        """Do the part after. results: of the device's part, with the values that are wanted here at their end."""
        count = len(results) - len(self.wanted)
        env.update(zip(self.wanted, results[count:], strict=True))
        for node in self.after:
            if node.op != "placeholder":
                self._run(node, env)
        out = results[:count]
        for position, node in self.results:
            out[position] = env[node]
        return out

    def _run(self, node: Node, env: Env) -> None:
        if node.op == "get_attr":
            env[node] = _attribute(self.graph, str(node.target))
        else:
            given, named = map_arg((node.args, node.kwargs), env.__getitem__)
            env[node] = _KERNELS.get(node.target, node.target)(*given, **named)  # type: ignore[arg-type,operator]

    def _serves(self, node: Node) -> bool:
        return any(user in self._device for user in node.users)

    def _read_late(self) -> Iterable[Node]:
        late = set(self.after)
        return (n for n in self._device if any(u in late for u in n.users))


def _copy(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """copy_'s functional twin, whose kernel torch chooses by the operands' devices; the result belongs on self's."""
    return torch.empty_like(self).copy_(src)


_KERNELS: dict[Any, Any] = {torch.ops.aten.copy.default: _copy}


def _placed_on_host(node: Node, device: set[Node]) -> bool:
    """Whether a node needs nothing of the device: no operand is there, and if it has none, neither is its result."""
    if node.op in ("call_module", "call_method") or any(n in device for n in node.all_input_nodes):
        return False
    if node.op == "get_attr":
        value = _attribute(node.graph.owning_module, str(node.target))
        return not isinstance(value, torch.Tensor) or value.device.type == "cpu"
    if node.op == "placeholder" or not any(facts_of(n).devices for n in node.all_input_nodes):
        facts = facts_of(node)
        return facts.known and all(kind == "cpu" for kind in facts.devices)
    return True


def _reads(node: Node, device: set[Node]) -> bool:
    """Whether a node takes a device value to the host: its result is there, or the result's size depends on the value."""
    if not isinstance(node.target, torch._ops.OpOverload) or not any(n in device for n in node.all_input_nodes):
        return False
    if node.target is torch.ops.aten._local_scalar_dense.default:
        return True
    facts = facts_of(node)
    return facts.sized_by_value or bool(facts.devices) and all(kind == "cpu" for kind in facts.devices)


def _writes(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _may_alias(node: Node) -> bool:
    """Whether a node's storage may be that of an input."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    return any(r.alias_info is not None for r in node.target._schema.returns)


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
    if isinstance(value, torch.Tensor) and value.device.type == "cpu":
        return value.to(torch._C._get_privateuse1_backend_name())
    if isinstance(value, (list, tuple)):
        return type(value)(_to_device(v) for v in value)
    return value
