"""The work of one step of a workload, read from the recorded program: kernels, what must be stored, what is alive at once.

Everything that depends on the model and nothing that depends on the chip; recorded once for all chips. What can be kept
for the backward pass or computed again is in policies.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_pjrt.export.trace import Traced, trace
from torch_pjrt.plan import fusion, graph
from torch_pjrt.plan.families import Subject
from torch_pjrt.plan.fusion import Group
from torch_pjrt.plan.workload import ModelError, Workload


@dataclass(slots=True)
class Policy:
    """What training keeps for the backward pass. kept: bytes of it; workspace: bytes that come and go; again: kernels rerun."""

    kept: float = 0.0
    workspace: float = 0.0
    again: list[Group] = field(default_factory=list)


@dataclass(slots=True)
class Work:
    """Sizes in bytes and operations, for the whole batch. weights, states: as stored; compute: weights as computed with.

    reduced: bytes that tensor parallelism sums over chips in a forward pass; dealt: of tokens' copies for experts, one way;
    keys_values: of all layers; boundary: of the stream between two blocks. other: the same work with attention's scores
    where they are not here (None: no attention).
    """

    name: str
    workload: Workload
    unit: str
    units: int
    groups: list[Group] = field(default_factory=list)
    policies: dict[str, Policy] = field(default_factory=lambda: {"none": Policy()})
    parameters: int = 0
    weights: float = 0.0
    compute: float = 0.0
    expert_weights: float = 0.0
    expert_compute: float = 0.0
    gradients: float = 0.0
    states: float = 0.0
    cache: float = 0.0
    arguments: float = 0.0
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    experts: int = 0
    reduced: float = 0.0
    reduces: int = 0
    dealt: float = 0.0
    keys_values: float = 0.0
    boundary: float = 0.0
    fused_attention: bool = True
    other: Work | None = None
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def policy(self, name: str) -> Policy:
        """What is kept under that name. Raises ModelError where the model has no such policy."""
        if name not in self.policies:
            raise ModelError(
                f"--recompute {name} needs a model whose blocks are known; for {self.name} there is "
                f"{', '.join(self.policies)}"
            )
        return self.policies[name]

    def with_attention(self, fused: bool) -> Work:
        """The same work with attention's scores on the chip, or written to memory."""
        return self if fused == self.fused_attention or self.other is None else self.other

    @property
    def flops(self) -> float:
        """Operations of the matrix units, without recomputation."""
        return sum(g.flops * g.count for g in self.groups)

    @property
    def vector(self) -> float:
        """Operations of the vector units."""
        return sum(g.vector * g.count for g in self.groups)

    @property
    def bytes(self) -> float:
        """Memory traffic on one chip."""
        return sum(g.bytes * g.count for g in self.groups)

    @property
    def kernels(self) -> int:
        """Kernels of a step."""
        return sum(g.count for g in self.groups)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A model's program, and that of the same model with one block."""

    whole: Traced
    single: Traced | None
    parts: dict[Any, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Reading:
    """A program counted: kernels, most bytes alive at once but gradients, and the fusion for what lies between passes."""

    groups: list[Group]
    peak: float
    fused: fusion.Fusion
    unknown_loops: bool


def of(subject: Subject, workload: Workload, *, fused_attention: bool = False, both: bool = True) -> Work:
    """Record the model and count. Raises ModelError with what stood in the way.

    fused_attention: attention's scores never reach memory, as with a flash kernel; `other` of the result has them the other
    way, unless not both are asked for.
    """
    begin = time.perf_counter()
    programs = _record(subject, workload)
    work = _count(subject, workload, programs, fused_attention)
    if both and any(graph.ATTENTION in template.row.name for template, _ in programs.whole.program.steps):
        work.other = _count(subject, workload, programs, not fused_attention)
        work.other.other = work
    work.seconds = time.perf_counter() - begin
    return work


def _record(subject: Subject, workload: Workload) -> Recorded:
    single = None
    if workload.kind == "train" and subject.shorter is not None:
        single = recorded(subject.shorter(1), workload)
    return Recorded(recorded(subject, workload), single)


def recorded(subject: Subject, workload: Workload) -> Traced:
    """The model's program, or its training step's. Raises ModelError."""
    train = workload.kind == "train"
    if isinstance(subject.model, torch.nn.Module):
        subject.model.train(train)
    try:
        return trace(subject.model, subject.args, subject.kwargs, train=train, optimizer=subject.optimizer)
    except Exception as error:
        raise ModelError(f"{subject.name} cannot be recorded: {type(error).__name__}: {error}") from error


def read(traced: Traced, fused_attention: bool, parts: dict[Any, Any] | None = None) -> Reading:
    """Count a recorded program."""
    made = graph.of_traced(traced, fused_attention=fused_attention, parts=parts)
    fused = fusion.Fusion(made)
    return Reading(fused.groups(), fused.peak_bytes(), fused, any(n.trips_unknown for n in made.nodes))


def _count(subject: Subject, workload: Workload, programs: Recorded, fused_attention: bool) -> Work:
    from torch_pjrt.plan import policies

    whole = read(programs.whole, fused_attention, programs.parts)
    work = Work(subject.name, workload, subject.unit, subject.units, fusion.merged(whole.groups))
    work.layers, work.heads, work.kv_heads, work.experts = (
        subject.layers,
        subject.heads,
        subject.kv_heads,
        subject.experts,
    )
    work.fused_attention, work.cache = fused_attention, subject.cache_bytes
    _stored(work, programs.whole.inputs, workload)
    if workload.kind == "decode":
        work.arguments -= subject.cache_bytes
    single = read(programs.single, fused_attention, programs.parts) if programs.single is not None else None
    work.policies = policies.of(whole, single, subject, workload)
    if workload.recompute != "auto":
        work.policy(workload.recompute)
    if workload.dtype == "float8":
        _eight_bits(work)
    _sent(work, subject)
    if workload.accumulate > 1:
        _accumulated(work, workload.accumulate)
    if whole.unknown_loops:
        work.notes.append("a loop whose length is not known before it runs is counted as one turn")
    return work


def _stored(work: Work, inputs: list[Any], workload: Workload) -> None:
    for i in inputs:
        count = torch.Size(i.size).numel()
        size = count * (i.dtype.itemsize if i.dtype is not None else 4)
        if i.kind == "parameter":
            is_float = i.dtype is not None and i.dtype.is_floating_point
            computed = count * workload.compute_dtype.itemsize if is_float else size
            work.parameters += count
            work.weights += size
            work.compute += computed
            if graph.is_expert(i.name) and work.experts:
                work.expert_weights += size
                work.expert_compute += computed
            work.gradients += size if workload.kind == "train" and is_float else 0
        elif i.kind == "state":
            work.states += size
        elif i.kind == "buffer":
            work.weights += size
        else:
            work.arguments += size


def _each_kernel(work: Work, change: Callable[[Group], None]) -> None:
    for g in (*work.groups, *(g for p in work.policies.values() for g in p.again)):
        change(g)


def _eight_bits(work: Work) -> None:
    """Products in float8: their operands are counted at one byte; the program itself is recorded in bfloat16."""
    infer = work.workload.kind != "train"

    def narrow(g: Group) -> None:
        if g.flops and g.name != "attention":
            g.matmul = {"float8": g.flops}
            if infer:
                g.bytes -= g.weight_bytes / 2
                g.weight_bytes /= 2
                g.expert_bytes /= 2

    _each_kernel(work, narrow)
    if infer:
        work.weights, work.compute = work.weights / 2, work.compute / 2
        work.expert_weights, work.expert_compute = work.expert_weights / 2, work.expert_compute / 2
    work.notes.append("float8: products of weights at the float8 rate, attention and activations in bfloat16")


def _accumulated(work: Work, parts: int) -> None:
    """What is recorded is one part; all but the optimizer runs for each."""

    def repeat(g: Group) -> None:
        if g.phase != "optimizer":
            g.count *= parts

    _each_kernel(work, repeat)
    work.units *= parts
    work.reduced, work.reduces = work.reduced * parts, work.reduces * parts
    work.dealt, work.keys_values, work.boundary = work.dealt * parts, work.keys_values * parts, work.boundary * parts


def _sent(work: Work, subject: Subject) -> None:
    """What parallelism of each kind has to send, where the model's blocks are known."""
    width = work.workload.compute_dtype.itemsize
    work.boundary = float(subject.stream * width)
    work.keys_values = subject.keys_values
    if subject.layers and subject.hidden:
        work.reduced, work.reduces = 2.0 * subject.layers * work.boundary, 2 * subject.layers
        work.dealt = subject.layers * work.boundary * subject.experts_per_token
        return
    forward = [g for g in work.groups if g.phase == "forward" and g.sharded_output]
    work.reduced = sum(g.sharded_output * g.count for g in forward) / 3
    work.reduces = sum(g.count for g in forward) // 3
    work.notes.append("tensor parallelism: a third of the products' results are taken to be summed over chips")
