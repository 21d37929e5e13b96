"""A recorded Program as a graph of primitives with what each costs, made from shapes alone.

A step's row is turned into a jaxpr once for each template, and spliced in wherever the template recurs, so that a model of
eighty equal layers costs no more to read than one of two. Owns nodes and values; fusion.py groups them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from torch_pjrt.export.trace import Input, Traced
from torch_pjrt.plan import primitives
from torch_pjrt.program.evaluate import evaluate_step
from torch_pjrt.program.program import Template

_NUMBERS = {"i": ((), np.int64), "f": ((), np.float64), "c": ((), np.complex128), "b": ((), np.bool_)}
_CALLS = frozenset(
    "jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr remat checkpoint remat2".split()
)
ATTENTION = "_scaled_dot_product"


@dataclass(slots=True)
class Node:
    """One primitive. ins, outs: numbers of values (-1: a constant). matmul, vector: operations. step: of the Program.

    reads: bytes read of each operand, where that is less than the operand. inner_bytes: traffic inside a loop's body.
    """

    name: str
    kind: str
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    matmul: float = 0.0
    dtype: str = ""
    vector: float = 0.0
    skippable: float = 0.0
    inner_bytes: float = 0.0
    trips_unknown: bool = False
    step: int = -1


@dataclass(slots=True)
class Graph:
    """Nodes in order; bytes and role ("parameter", "expert", "state", "buffer", "argument", "constant", "") of every value.

    written: values that overwrite an input (written_experts: of an expert); inner: values inside an attention.
    """

    nodes: list[Node] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    written_experts: set[int] = field(default_factory=set)
    inner: set[int] = field(default_factory=set)
    phases: list[str] = field(default_factory=list)

    def value(self, nbytes: int, role: str = "") -> int:
        """A new value."""
        self.nbytes.append(nbytes)
        self.roles.append(role)
        return len(self.nbytes) - 1

    def producers(self) -> dict[int, int]:
        """The node that makes each value."""
        return {v: i for i, node in enumerate(self.nodes) for v in node.outs}

    def behind(
        self, v: int, producer: dict[int, int], through: frozenset[str], results: frozenset[int] = frozenset()
    ) -> tuple[int, int]:
        """The value of which v is a view or a cast (by primitives of those names; -1: a constant), and the bytes read of it."""
        size = float(self.nbytes[v])
        while v in producer and self.nodes[producer[v]].name in through:
            node = self.nodes[producer[v]]
            if not node.ins or node.ins[0] < 0:
                return (v, int(size)) if v in results else (-1, 0)
            source = node.ins[0]
            if node.name not in primitives.READS_RESULT_ONLY and self.nbytes[v]:
                size *= self.nbytes[source] / self.nbytes[v]  # a cast reads other bytes; a broadcast reads fewer
            v = source
        return v, int(size)

    @property
    def matmul(self) -> float:
        """Operations of all matrix products."""
        return sum(n.matmul for n in self.nodes)

    @property
    def flops(self) -> float:
        """All operations."""
        return sum(n.matmul + n.vector for n in self.nodes)


def is_expert(name: str) -> bool:
    """Whether a parameter of that name belongs to one of a mixture's experts."""
    return "experts" in name.split(".")


def _role(i: Input) -> str:
    return "expert" if i.kind == "parameter" and is_expert(i.name) else i.kind


def of_traced(
    traced: Traced, *, fused_attention: bool = True, parts: dict[tuple[int, bool], _Part] | None = None
) -> Graph:
    """The graph of a traced model or training step. fused_attention: its scores never reach memory.

    parts: templates that were read before, to be filled: programs of one process share them.
    """
    graph = Graph(phases=list(traced.phases))
    values = [graph.value(s.nbytes, _role(i)) for s, i in zip(traced.program.in_specs, traced.inputs, strict=True)]
    parts = {} if parts is None else parts
    with jax.enable_x64(True):
        for step, (template, operands) in enumerate(traced.program.steps):
            part = parts.get((template.id, fused_attention))
            if part is None:
                part = parts[template.id, fused_attention] = _part(template, fused_attention, parts)
            before = len(graph.nbytes)
            results = _splice(graph, part, [values[v] for v in operands], step)
            if ATTENTION in template.row.name:
                graph.inner.update(set(range(before, len(graph.nbytes))).difference(results))
            values.extend(results)
    producer = graph.producers()
    wanted = [values[v] for v in traced.program.outputs]
    ends = frozenset(wanted)
    graph.outputs = [graph.behind(v, producer, primitives.FREE_NAMES, ends)[0] for v in wanted]
    graph.written = {graph.outputs[o] for _, o in traced.writes}
    graph.written_experts = {graph.outputs[o] for i, o in traced.writes if is_expert(traced.inputs[i].name)}
    _narrowing(graph)
    return graph


def _narrowing(graph: Graph) -> None:
    """A cast to fewer bytes is what is written to memory, unless it is of a weight, which is cast as it is read."""
    producer = graph.producers()
    for node in graph.nodes:
        if node.name == "convert_element_type" and node.ins[0] >= 0:
            source = graph.behind(node.ins[0], producer, primitives.TRANSPARENT)[0]
            stored = source >= 0 and graph.roles[source] in ("parameter", "expert", "state", "buffer")
            if graph.nbytes[node.outs[0]] < graph.nbytes[node.ins[0]] and not stored:
                node.name = "narrow"


def of_function(function: Callable[..., Any], *args: Any) -> Graph:
    """The graph of a function of arrays (shapes are enough)."""
    closed = jax.make_jaxpr(function)(*args)
    part = _flatten(closed)
    graph = Graph()
    values = [graph.value(n, "argument") for n in part.in_bytes]
    graph.outputs = _splice(graph, part, values, -1)
    _narrowing(graph)
    return graph


@dataclass(slots=True)
class _Part:
    """Nodes over local values: the inputs first, then the results of the nodes."""

    in_bytes: list[int]
    out_bytes: list[int]
    nodes: list[Node]
    outs: list[int]


def _part(template: Template, fused_attention: bool, parts: dict[tuple[int, bool], _Part]) -> _Part:
    part = parts.get((template.id, not fused_attention))
    if ATTENTION not in template.row.name:
        return part or _plain(template)
    return _opaque(_plain(template), template) if fused_attention else _plain(template)


def _plain(template: Template) -> _Part:
    avals = [jax.ShapeDtypeStruct(a.spec.shape, a.spec.dtype) for a in template.avals]
    numbers = [
        jax.ShapeDtypeStruct((4,), np.uint32) if k == "s" else jax.ShapeDtypeStruct(*_NUMBERS[k])
        for k in template.number_kinds
    ]

    def run(numbers: list[Any], *payloads: Any) -> list[Any]:
        return evaluate_step(template, payloads, numbers)[0]

    closed = jax.make_jaxpr(run)(numbers, *avals)
    return _flatten(closed, skip=len(numbers))


def _opaque(part: _Part, template: Template) -> _Part:
    """An attention step as one node: its products are done, its scores stay on the chip."""
    first = len(part.in_bytes)
    causal = dict(template.bindings).get("is_causal", ("const", False))[1]
    total = sum(n.matmul for n in part.nodes)
    dtype = next((n.dtype for n in part.nodes if n.dtype), "")
    out_bytes = [_bytes_of(part, v) for v in part.outs]
    node = Node(
        "attention",
        primitives.HEAVY,
        tuple(range(first)),
        tuple(range(first, first + len(part.outs))),
        matmul=total,
        dtype=dtype,
        vector=sum(n.vector for n in part.nodes),
        skippable=total / 2 if causal else 0.0,
    )
    return _Part(part.in_bytes, out_bytes, [node], list(node.outs))


def _bytes_of(part: _Part, value: int) -> int:
    if value < 0:
        return 0
    first = len(part.in_bytes)
    return part.in_bytes[value] if value < first else part.out_bytes[value - first]


def _splice(graph: Graph, part: _Part, operands: Sequence[int], step: int) -> list[int]:
    local = list(operands) + [graph.value(n) for n in part.out_bytes]
    for node in part.nodes:
        graph.nodes.append(
            Node(
                node.name,
                node.kind,
                tuple(local[v] if v >= 0 else -1 for v in node.ins),
                tuple(local[v] for v in node.outs),
                node.matmul,
                node.dtype,
                node.vector,
                node.skippable,
                node.inner_bytes,
                node.trips_unknown,
                step,
            )
        )
    return [local[v] if v >= 0 else graph.value(0, "constant") for v in part.outs]


def _flatten(closed: Any, skip: int = 0) -> _Part:
    """A closed jaxpr as a part; the first `skip` inputs are numbers, which cost nothing to read."""
    jaxpr = closed.jaxpr
    known: dict[Any, int] = {}
    for i, var in enumerate(jaxpr.invars[skip:]):
        known[var] = i
    part = _Part([primitives.nbytes(v.aval) for v in jaxpr.invars[skip:]], [], [], [])
    _walk(jaxpr, known, part)
    part.outs = [_number(v, known) for v in jaxpr.outvars]
    _narrow(part)
    return part


def _narrow(part: _Part) -> None:
    """A product whose one use is a cast writes in the dtype that is cast to."""
    users: dict[int, list[Node]] = {}
    for node in part.nodes:
        for v in node.ins:
            users.setdefault(v, []).append(node)
    dropped = set()
    for node in part.nodes:
        if node.matmul and len(node.outs) == 1 and node.outs[0] not in part.outs:
            user = users.get(node.outs[0], [])
            if len(user) == 1 and user[0].name == "convert_element_type":
                node.outs = user[0].outs
                dropped.add(id(user[0]))
    part.nodes = [n for n in part.nodes if id(n) not in dropped]


def _number(var: Any, known: dict[Any, int]) -> int:
    return -1 if hasattr(var, "val") else known.get(var, -1)


def _inner(params: dict[str, Any]) -> Any:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in params:
            return params[name]
    return None


def _walk(jaxpr: Any, known: dict[Any, int], part: _Part) -> None:
    first = len(part.in_bytes)
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        inner = _inner(eqn.params) if name in _CALLS else None
        if inner is not None:
            body = getattr(inner, "jaxpr", inner)
            for outer, own in zip(eqn.invars, body.invars, strict=True):
                known[own] = _number(outer, known)
            _walk(body, known, part)
            for outer, own in zip(eqn.outvars, body.outvars, strict=True):
                known[outer] = _number(own, known)
            continue
        node = _node(eqn, name)
        node.ins = tuple(_number(v, known) for v in eqn.invars)
        outs = []
        for var in eqn.outvars:
            part.out_bytes.append(primitives.nbytes(var.aval))
            known[var] = first + len(part.out_bytes) - 1
            outs.append(known[var])
        node.outs = tuple(outs)
        part.nodes.append(node)


def _node(eqn: Any, name: str) -> Node:
    shapes = [tuple(getattr(v.aval, "shape", ())) for v in eqn.invars]
    out = tuple(getattr(eqn.outvars[0].aval, "shape", ())) if eqn.outvars else ()
    node = Node(name, primitives.kind(name), (), ())
    if name == "slice" and shapes[0] == out:
        node.name, node.kind = "reshape", primitives.FREE
    if name in ("scan", "while", "cond"):
        _loop(node, eqn, name)
        return node
    node.matmul = primitives.matmul_flops(name, shapes, out, eqn.params)
    if node.matmul:
        node.dtype = str(eqn.invars[0].aval.dtype)
    node.vector = primitives.other_flops(name, shapes, out, eqn.params)
    return node


def _loop(node: Node, eqn: Any, name: str) -> None:
    """A loop's body times its trip count; a branch counts as its dearest side; a `while` counts once, and says so."""
    from torch_pjrt.plan import fusion

    def cost(closed: Any) -> tuple[float, float, float, str]:
        part = _flatten(closed)
        graph = Graph()
        values = [graph.value(n, "argument") for n in part.in_bytes]
        graph.outputs = _splice(graph, part, values, -1)
        groups = fusion.Fusion(graph).groups()
        dtype = next((n.dtype for n in graph.nodes if n.dtype), "")
        return graph.matmul, graph.flops - graph.matmul, sum(g.bytes for g in groups), dtype

    if name == "cond":
        sides = [cost(b) for b in eqn.params["branches"]]
        matmul, vector, moved, dtype = max(sides, key=lambda s: (s[0] + s[1], s[2]))
        trips = 1
    else:
        matmul, vector, moved, dtype = cost(eqn.params["jaxpr" if name == "scan" else "body_jaxpr"])
        trips = int(eqn.params.get("length", 1)) if name == "scan" else 1
        node.trips_unknown = name == "while"
    node.matmul, node.vector, node.inner_bytes, node.dtype = matmul * trips, vector * trips, moved * trips, dtype
