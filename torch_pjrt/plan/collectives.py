"""What a layout sends between chips: bytes of each axis's collectives, and their seconds over the links they cross.

Axes are laid out with tensor innermost, then context, data (with expert inside it) and pipeline. An axis whose group lies in a
fast domain uses the chip's link; one that does not uses the assumed network for the part that leaves the domain.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import Chip
from torch_pjrt.plan.layout import Layout
from torch_pjrt.plan.work import Work


@dataclass(frozen=True, slots=True)
class Transfer:
    """One axis's traffic in a step. sent: bytes that each chip sends; times: how many collectives; group: chips in each.

    stride: chips between neighbours. shared: other chips of a domain bring their part of what leaves it (a ring of rings).
    """

    axis: str
    what: str
    sent: float
    times: float
    group: int
    stride: int
    shared: bool = False


def transfers(work: Work, layout: Layout) -> list[Transfer]:
    """All of a step's traffic in that layout."""
    makers = (_tensor, _expert, _context, _data, _pipeline)
    return [t for make in makers if (t := make(work, layout)) is not None]


def _passes(work: Work, layout: Layout, backward: float = 1) -> float:
    """How often what a forward pass sends is sent: again in the backward pass, and in the recomputed one."""
    if work.workload.kind != "train":
        return 1
    return 1 + backward + (layout.recompute == "full")


def _tensor(work: Work, layout: Layout) -> Transfer | None:
    t = layout.tensor
    if t == 1:
        return None
    passes = _passes(work, layout)
    sent = 2 * work.reduced / layout.replicas * (t - 1) / t / layout.pipeline * passes
    times = work.reduces * passes * layout.microbatches / layout.pipeline
    return Transfer("tensor", "all-reduce of activations", sent, times, t, 1)


def _expert(work: Work, layout: Layout) -> Transfer | None:
    """Each token's copies go to the chips of its experts, and come back."""
    e = layout.expert
    if e == 1:
        return None
    passes = _passes(work, layout)
    each = work.dealt / (layout.replicas * layout.tensor * layout.pipeline)
    times = 2 * work.layers * passes * layout.microbatches / layout.pipeline
    return Transfer(
        "expert", "all-to-all of tokens", 2 * each * (e - 1) / e * passes, times, e, layout.tensor * layout.context
    )


def _context(work: Work, layout: Layout) -> Transfer | None:
    """Keys and values go round the ring; in the backward pass so do their gradients."""
    c = layout.context
    if c == 1:
        return None
    passes = _passes(work, layout, backward=2)
    heads = min(layout.tensor, work.kv_heads or layout.tensor)
    block = work.keys_values / (layout.replicas * heads * layout.pipeline)
    times = (c - 1) * work.layers * passes * layout.microbatches / layout.pipeline
    return Transfer("context", "ring of keys and values", block * (c - 1) * passes, times, c, layout.tensor)


def _data(work: Work, layout: Layout) -> Transfer | None:
    """Gradients are summed; ZeRO-3 gathers the weights for each forward and each backward pass."""
    d = layout.replicas
    if d == 1 or work.workload.kind != "train":
        return None
    parts = work.workload.accumulate * layout.microbatches
    times = {0: 2, 1: 2, 2: 1 + work.workload.accumulate, 3: 2 * parts + 1}[layout.zero]
    mine = layout.tensor * layout.pipeline
    dense = (work.compute - work.expert_compute) / mine * (d - 1) / d
    own = d // layout.expert
    experts = work.expert_compute / (mine * layout.expert) * (own - 1) / own
    what = "gathered weights and summed gradients" if layout.zero == 3 else "summed gradients"
    count = 3 * max(1, work.layers) / layout.pipeline
    return Transfer("data", what, times * (dense + experts), count, d, layout.tensor, shared=True)


def _pipeline(work: Work, layout: Layout) -> Transfer | None:
    p = layout.pipeline
    if p == 1:
        return None
    passes = 2 if work.workload.kind == "train" else 1
    sent = work.boundary / (layout.replicas * layout.tensor) * passes
    times = layout.microbatches * work.workload.accumulate * passes
    return Transfer("pipeline", "activations of a stage", sent, times, p, layout.chips // p)


def seconds(transfer: Transfer, chip: Chip, assumed: Assumptions, best: bool) -> float | None:
    """Seconds of one axis's traffic at one end of the assumptions; None where the link's rate is not known."""
    pick = assumed.high if best else assumed.low
    link, domain = chip.fact("interconnect").one_way, int(chip.fact("domain").value or 1)
    if link is None:
        return None
    inner, outer = link * pick("network"), pick("between") * 1e9 * pick("network")
    latency = pick("collective") * 1e-6 * transfer.times
    if transfer.group * transfer.stride <= domain:
        return transfer.sent / inner + latency
    together = max(1, domain // transfer.stride)
    if transfer.shared:
        return transfer.sent / inner * (together > 1) + transfer.sent / together / outer + latency
    if transfer.axis == "expert":  # most partners of an all-to-all are outside, some inside
        outside = (transfer.group - together) / (transfer.group - 1) if transfer.group > 1 else 0.0
        return transfer.sent * (1 - outside) / inner + transfer.sent * outside / outer + latency
    return transfer.sent / outer + latency
