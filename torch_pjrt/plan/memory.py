"""Bytes on each chip in a layout: weights, gradients, optimizer state, activations, cache of keys and values, workspace.

The rules are those of ZeRO (its stages split state, gradients and weights over the replicas), of Megatron's tensor and sequence
parallelism (a layer's weights and activations are split), and of one-forward-one-backward pipelines (the first stage keeps
the activations of as many microbatches as there are stages).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import Chip
from torch_pjrt.plan.layout import Layout, stretch
from torch_pjrt.plan.work import Work

PARTS = ("weights", "gradients", "states", "activations", "cache", "workspace")


@dataclass(slots=True)
class Memory:
    """Bytes on the fullest chip. usable: of its capacity, what a program can have."""

    weights: float
    gradients: float
    states: float
    activations: float
    cache: float
    workspace: float
    capacity: float
    usable: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.gradients + self.states + self.activations + self.cache + self.workspace

    @property
    def fits(self) -> bool:
        """Whether it is within what can be used."""
        return self.total <= self.usable


def _split(dense: float, experts: float, layout: Layout, over_replicas: bool) -> float:
    """Bytes on a chip of what tensor, pipeline and expert parallelism split, and the replicas too where ZeRO says so."""
    replicas = layout.replicas if over_replicas else 1
    own = max(1, layout.replicas // layout.expert) if over_replicas else 1
    return (dense / replicas + experts / (layout.expert * own)) / (layout.tensor * layout.pipeline)


def memory_of(work: Work, chip: Chip, layout: Layout, assumed: Assumptions) -> Memory:
    """Bytes on each chip in a layout."""
    policy, busiest = work.policy(layout.recompute), stretch(work, layout)
    dense, experts = work.weights - work.expert_weights, work.expert_weights
    share = experts / work.weights if work.weights else 0.0
    gradients = _split(work.gradients * (1 - share), work.gradients * share, layout, layout.zero >= 2)
    states = _split(work.states * (1 - share), work.states * share, layout, layout.zero >= 1)
    weights = _split(dense, experts, layout, layout.zero == 3)
    if layout.zero in (1, 2) and work.compute < work.weights:  # the wide copy is the optimizer's; a narrow one is used
        narrow = _split(work.compute * (1 - share), work.compute * share, layout, False)
        weights = min(weights, narrow + _split(dense, experts, layout, True))
    here = layout.replicas * layout.tensor * layout.microbatches
    in_flight = min(layout.pipeline, layout.microbatches * work.workload.accumulate)
    kept = policy.kept / here * in_flight / layout.pipeline
    if layout.microbatches * work.workload.accumulate == 1:
        kept = max(0.0, kept - gradients * busiest)  # each gradient takes the place of activations that are done with
    workspace = policy.workspace / here + work.arguments / layout.replicas
    if layout.zero == 3:
        workspace += 2 * block_bytes(work, layout)  # the block gathered now, and the next
    heads = min(layout.tensor, work.kv_heads or layout.tensor)
    cache = work.cache / (layout.replicas * heads * layout.pipeline)
    capacity = chip.fact("memory").value or 0.0
    return Memory(
        weights * busiest,
        gradients * busiest,
        states * busiest,
        kept * busiest,
        cache * busiest,
        workspace,
        capacity,
        capacity * assumed.low("memory"),
    )


def block_bytes(work: Work, layout: Layout) -> float:
    """A block's weights as they are computed with, gathered from the replicas."""
    experts = work.expert_compute / layout.expert
    return (work.compute - work.expert_compute + experts) / max(1, work.layers or 1) / layout.tensor
