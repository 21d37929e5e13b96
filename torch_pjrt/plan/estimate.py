"""How long a step takes on n chips, in which layout it fits, what it costs and draws: ranges from a roofline of its kernels.

For every kernel the time is the longer of computing and moving memory, at the shares of peak that the assumptions state; the
two ends of each range are all assumptions at their pessimistic and at their optimistic end. Communication is what the
layout needs, over the sourced link inside a fast domain and the assumed network outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import Chip, Price
from torch_pjrt.plan.work import Work

RATES = {"bfloat16": "bfloat16", "float16": "bfloat16", "float8": "float8", "int8": "int8"}


@dataclass(frozen=True, slots=True)
class Range:
    """Low, middle (geometric), high."""

    low: float
    high: float

    @property
    def mid(self) -> float:
        """The geometric middle."""
        return math.sqrt(self.low * self.high)

    def times(self, factor: float) -> Range:
        """Scaled."""
        return Range(self.low * factor, self.high * factor)

    def overlaps(self, other: Range) -> bool:
        """Whether neither is surely below the other."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True, slots=True)
class Layout:
    """n = data x tensor chips. sharded: weights, gradients and state are split over the data axis too (FSDP)."""

    data: int
    tensor: int
    sharded: bool

    @property
    def chips(self) -> int:
        """How many."""
        return self.data * self.tensor

    @property
    def text(self) -> str:
        """In words."""
        parts = []
        if self.data > 1:
            parts.append(f"{'fsdp' if self.sharded else 'data'} {self.data}")
        if self.tensor > 1:
            parts.append(f"tensor {self.tensor}")
        return " x ".join(parts) or "one chip"


@dataclass(slots=True)
class Memory:
    """Bytes on each chip."""

    weights: float
    gradients: float
    states: float
    activations: float
    cache: float
    capacity: float
    usable: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.gradients + self.states + self.activations + self.cache

    @property
    def fits(self) -> bool:
        """Whether it is within what can be used."""
        return self.total <= self.usable


@dataclass(slots=True)
class Estimate:
    """One chip's answer. parts: middle seconds by what takes them. step: seconds."""

    chip: Chip
    layout: Layout | None = None
    memory: Memory | None = None
    step: Range | None = None
    parts: dict[str, float] = field(default_factory=dict)
    method: str = "roofline"
    reason: str = ""
    meets: bool | None = None
    price: Price | None = None
    cost: Range | None = None
    cost_allocated: Range | None = None
    run_cost: Range | None = None
    run_seconds: Range | None = None
    rate: Range | None = None
    energy: Range | None = None
    compiles: str = "not checked"
    standing: list[str] = field(default_factory=list)

    @property
    def limit(self) -> str:
        """What takes the most time."""
        return max(self.parts, key=lambda k: self.parts[k]) if self.parts else "memory size"


def memory_of(work: Work, chip: Chip, layout: Layout, assumed: Assumptions) -> Memory:
    """Bytes on each chip in a layout."""
    split = layout.tensor * (layout.data if layout.sharded else 1)
    weights = work.weights / split
    if layout.sharded and layout.data > 1:
        weights += 2 * work.compute / max(1, work.layers or 1) / layout.tensor  # the block gathered now, and the next
    capacity = chip.fact("memory").value or 0.0
    return Memory(
        weights,
        work.gradients / split,
        work.states / split,
        (work.activations + work.arguments) / layout.chips,
        work.cache / layout.chips,
        capacity,
        capacity * assumed.low("memory"),
    )


def _peak(chip: Chip, dtype: str, assumed: Assumptions, optimistic: bool) -> float | None:
    name = RATES.get(dtype)
    if name is not None:
        found = chip.fact(name).value
        return found if found or name != "float8" else chip.fact("bfloat16").value
    base = chip.fact("bfloat16").value
    if base is None:
        return None
    share = assumed.high("float32-rate") if optimistic else assumed.low("float32-rate")
    return base * share / (8 if dtype in ("float64", "complex128") else 1)


def _computing(work: Work, chip: Chip, layout: Layout, assumed: Assumptions, best: bool) -> dict[str, float]:
    pick = assumed.high if best else assumed.low
    rate = (chip.fact("bandwidth").value or 0.0) * pick("bandwidth")
    parts = {"compute": 0.0, "memory bandwidth": 0.0, "kernel overhead": 0.0}
    for g in work.groups:
        split = layout.chips
        skipped = g.skippable / g.flops * pick("causal") if g.flops else 0.0
        busy = 0.0
        for dtype, flops in g.matmul.items():
            peak = _peak(chip, dtype, assumed, best) or math.inf
            busy += flops * (1 - skipped) / split / (peak * pick("matmul"))
        replicated = layout.tensor * (layout.data if layout.sharded and g.phase == "optimizer" else 1)
        moved = (g.weight_bytes / replicated + (g.bytes - g.weight_bytes) / split) / rate
        parts["compute" if busy >= moved else "memory bandwidth"] += max(busy, moved) * g.count
        parts["kernel overhead"] += pick("kernel") * 1e-6 * g.count
    return parts


def _talking(work: Work, chip: Chip, layout: Layout, assumed: Assumptions, best: bool) -> tuple[float, float] | None:
    """Seconds of communication of the data axis and of the tensor axis; None where a link's rate is not known."""
    pick = assumed.high if best else assumed.low
    link, domain = chip.fact("interconnect").one_way, int(chip.fact("domain").value or 1)
    if layout.chips == 1:
        return 0.0, 0.0
    if link is None:
        return None
    inner, outer = link * pick("network"), pick("between") * 1e9 * pick("network")
    latency = pick("collective") * 1e-6
    tensor = 0.0
    if layout.tensor > 1:
        share = (layout.tensor - 1) / layout.tensor
        speed = inner if layout.tensor <= domain else outer
        tensor = 2 * work.reduced / layout.data * share / speed + latency * work.reduces
    data = 0.0
    if layout.data > 1 and work.workload.kind == "train":
        times = 2 * work.workload.accumulate + 1 if layout.sharded else 2
        volume = work.compute / layout.tensor * times * (layout.data - 1) / layout.data
        data = volume / inner + latency * 3 * max(1, work.layers)
        if layout.chips > domain:
            together = max(1, domain // layout.tensor)  # chips of a domain bring their parts and share them
            data = volume / inner * (together > 1) + volume / together / outer + latency * 3 * max(1, work.layers)
    return data, tensor


def step_time(work: Work, chip: Chip, layout: Layout, assumed: Assumptions) -> tuple[Range, dict[str, float]] | None:
    """Seconds of a step, and the parts at the middle."""
    ends, halves = [], []
    for best in (True, False):
        parts = _computing(work, chip, layout, assumed, best)
        talk = _talking(work, chip, layout, assumed, best)
        if talk is None:
            return None
        busy = sum(parts.values())
        pick = assumed.high if best else assumed.low
        data = max(talk[0] * (1 - pick("overlap")), talk[0] - busy)
        tensor = max(talk[1] * (1 - pick("overlap-tensor")), talk[1] - busy)
        parts["interconnect"] = data + tensor
        halves.append(parts)
        ends.append(sum(parts.values()))
    middle = {name: math.sqrt(halves[0][name] * halves[1][name]) for name in halves[0]}
    return Range(*ends), middle


def layouts(work: Work, chip: Chip, chips: int) -> list[Layout]:
    """Ways to use n chips for the batch, plainest first."""
    found = []
    domain = int(chip.fact("domain").value or 1)
    train = work.workload.kind == "train"
    tensor = 1
    while tensor <= min(chips, max(domain, 1)):
        if chips % tensor == 0:
            data = chips // tensor
            if data <= work.workload.together:
                found += [Layout(data, tensor, False)]
                found += [Layout(data, tensor, True)] if train and data > 1 else []
        tensor *= 2
    return found


def best_layout(work: Work, chip: Chip, chips: int, assumed: Assumptions) -> Estimate | None:
    """The fastest layout of n chips that fits, by its middle; None when none does."""
    best: Estimate | None = None
    for layout in layouts(work, chip, chips):
        memory = memory_of(work, chip, layout, assumed)
        if not memory.fits:
            continue
        timed = step_time(work, chip, layout, assumed)
        if timed is None:
            continue
        if best is None or best.step is None or timed[0].mid < best.step.mid:
            best = Estimate(chip, layout, memory, timed[0], timed[1])
    return best


def _meets(found: Estimate, work: Work) -> bool | None:
    load = work.workload
    if found.step is None or (load.latency is None and load.deadline is None):
        return None
    late = load.latency is not None and found.step.mid > load.latency
    if load.deadline is not None and load.quantity is not None:
        late = late or found.step.mid * load.quantity / work.units > load.deadline
    return not late


def for_chip(work: Work, chip: Chip, assumed: Assumptions, count: int | None = None) -> Estimate:
    """The fewest chips that hold the work and meet the bound; or the given number."""
    best: Estimate | None = None
    number = count or 1
    most = count or int(assumed.high("max-chips"))
    while number <= most:
        found = best_layout(work, chip, number, assumed)
        if found is not None:
            found.meets = _meets(found, work)
            if found.meets is not False:
                return found
            if best is None or (best.step and found.step and found.step.mid < best.step.mid):
                best = found
        number *= 2
    if best is not None:
        best.reason = "misses the bound with every number of chips tried"
        return best
    return _refused(work, chip, assumed, count)


def _refused(work: Work, chip: Chip, assumed: Assumptions, count: int | None) -> Estimate:
    if chip.fact("interconnect").value is None:
        layout = Layout(1, 1, False)
        memory = memory_of(work, chip, layout, assumed)
        return Estimate(chip, None, memory, reason="does not fit one chip, and no link's rate is known for more")
    domain = chip.fact("domain").value
    memory = memory_of(work, chip, Layout(1, 1, False), assumed)
    if domain is None:
        return Estimate(
            chip, None, memory, reason="does not fit one chip, and how many share a fast domain is not known"
        )
    where = f"{count} chips" if count else f"a domain of {domain:g} chips and a batch of {work.workload.together}"
    return Estimate(chip, None, memory, reason=f"does not fit with {where}; a larger batch can be split further")
