"""The work of one step of a workload, read from the recorded program: kernels, what must be stored, what is alive at once.

Everything that depends on the model and nothing that depends on the chip; recorded once for all chips.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_pjrt.export.trace import trace
from torch_pjrt.plan import fusion, graph
from torch_pjrt.plan.families import Subject
from torch_pjrt.plan.fusion import Group
from torch_pjrt.plan.workload import ModelError, Workload


@dataclass(slots=True)
class Work:
    """Sizes in bytes and operations, for the whole batch. weights, states: as stored.

    compute: weights in the dtype computed in; reduced: bytes that tensor parallelism would sum over chips.
    """

    name: str
    workload: Workload
    unit: str
    units: int
    groups: list[Group] = field(default_factory=list)
    parameters: int = 0
    weights: float = 0.0
    compute: float = 0.0
    gradients: float = 0.0
    states: float = 0.0
    activations: float = 0.0
    cache: float = 0.0
    arguments: float = 0.0
    layers: int = 0
    reduced: float = 0.0
    reduces: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def flops(self) -> float:
        """Operations of the matrix units."""
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


def of(subject: Subject, workload: Workload, *, fused_attention: bool = True) -> Work:
    """Record the model and count. Raises ModelError with what stood in the way.

    fused_attention: attention's scores never reach memory, as with a flash kernel.
    """
    begin = time.perf_counter()
    read = _read(subject, workload, fused_attention)
    work = Work(subject.name, workload, subject.unit, subject.units, fusion.merged(read.groups), layers=subject.layers)
    _stored(work, read.inputs, workload)
    work.cache = subject.cache_bytes
    work.activations = max(0.0, read.peak - work.gradients)
    if workload.kind == "decode":
        work.arguments -= subject.cache_bytes
    if workload.kind == "prefill" or (workload.kind == "batch-infer" and subject.cache_bytes):
        work.activations = max(0.0, work.activations - subject.cache_bytes)
    if workload.dtype == "float8":
        _eight_bits(work)
    if workload.recompute:
        _recomputed(work, subject, workload, fused_attention)
    _reduced(work, subject)
    if workload.accumulate > 1:
        _accumulated(work, workload.accumulate)
    if read.unknown_loops:
        work.notes.append("a loop whose length is not known before it runs is counted as one turn")
    work.seconds = time.perf_counter() - begin
    return work


@dataclass(slots=True)
class _Reading:
    groups: list[Group]
    peak: float
    inputs: list[Any]
    unknown_loops: bool


def _read(subject: Subject, workload: Workload, fused_attention: bool) -> _Reading:
    train = workload.kind == "train"
    if isinstance(subject.model, torch.nn.Module):
        subject.model.train(train)
    try:
        traced = trace(subject.model, subject.args, subject.kwargs, train=train, optimizer=subject.optimizer)
    except Exception as error:
        raise ModelError(f"{subject.name} cannot be recorded: {type(error).__name__}: {error}") from error
    made = graph.of_traced(traced, fused_attention=fused_attention)
    fused = fusion.Fusion(made)
    unknown = any(n.trips_unknown for n in made.nodes)
    return _Reading(fused.groups(), fused.peak_bytes(), traced.inputs, unknown)


def _stored(work: Work, inputs: list[Any], workload: Workload) -> None:
    for i in inputs:
        count = torch.Size(i.size).numel()
        size = count * (i.dtype.itemsize if i.dtype is not None else 4)
        if i.kind == "parameter":
            work.parameters += count
            work.weights += size
            is_float = i.dtype is not None and i.dtype.is_floating_point
            work.compute += count * workload.compute_dtype.itemsize if is_float else size
            work.gradients += size if workload.kind == "train" and is_float else 0
        elif i.kind == "state":
            work.states += size
        elif i.kind == "buffer":
            work.weights += size
        else:
            work.arguments += size


def _eight_bits(work: Work) -> None:
    """Products in float8: their operands are counted at one byte; the program itself is recorded in bfloat16."""
    for g in work.groups:
        if g.flops and g.name != "attention":
            g.matmul = {"float8": g.flops}
            if work.workload.kind != "train":
                g.bytes -= g.weight_bytes / 2
                g.weight_bytes /= 2
    if work.workload.kind != "train":
        work.weights /= 2
        work.compute /= 2
    work.notes.append("float8: products of weights at the float8 rate, attention and activations in bfloat16")


def _recomputed(work: Work, subject: Subject, workload: Workload, fused_attention: bool) -> None:
    """Keep only what enters each block: forward kernels run twice, and one block's activations are alive."""
    if workload.kind != "train":
        return
    if subject.shorter is None:
        raise ModelError(f"--recompute needs a model whose blocks are known; {subject.name} is not built in")
    one = _read(subject.shorter(), workload, fused_attention)
    gradients = sum(
        torch.Size(i.size).numel() * i.dtype.itemsize
        for i in one.inputs
        if i.kind == "parameter" and i.dtype is not None
    )
    kept = subject.units * subject.hidden * workload.compute_dtype.itemsize * (subject.layers - 1)
    work.activations = min(work.activations, max(0.0, one.peak - gradients) + kept)
    single: dict[tuple[Any, ...], int] = {}
    for g in one.groups:
        single[_key(g)] = single.get(_key(g), 0) + 1
    again = []
    for g in work.groups:
        extra = g.count - single.get(_key(g), 0)
        if g.phase == "forward" and extra > 0:
            count = extra * subject.layers // max(1, subject.layers - 1)
            again.append(
                Group(g.name, "backward", dict(g.matmul), g.vector, g.skippable, g.weight_bytes, g.bytes, count)
            )
    work.groups += again
    work.notes.append("recompute: every block's forward pass runs again in the backward pass; only its input is kept")


def _accumulated(work: Work, parts: int) -> None:
    """What is recorded is one part; all but the optimizer runs for each."""
    for g in work.groups:
        if g.phase != "optimizer":
            g.count *= parts
    work.units *= parts
    work.reduced *= parts
    work.reduces *= parts


def _key(g: Group) -> tuple[Any, ...]:
    return (g.name, g.phase, tuple(sorted(g.matmul.items())), g.vector, g.bytes)


def _reduced(work: Work, subject: Subject) -> None:
    passes = 1 if work.workload.kind != "train" else (3 if work.workload.recompute else 2)
    if subject.layers and subject.hidden:
        width = work.workload.compute_dtype.itemsize
        work.reduced = 2.0 * subject.layers * subject.units * subject.hidden * width * passes
        work.reduces = 2 * subject.layers * passes
        return
    forward = [g for g in work.groups if g.phase == "forward" and g.sharded_output]
    work.reduced = sum(g.sharded_output * g.count for g in forward) / 3 * passes
    work.reduces = sum(g.count for g in forward) // 3 * passes
    work.notes.append("tensor parallelism: a third of the products' results are taken to be summed over chips")
