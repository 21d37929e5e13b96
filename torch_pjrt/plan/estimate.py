"""How long a step takes on n chips, in the fastest layout that fits: ranges from a roofline of kernels and from the links.

The two ends of each range are all assumptions at their pessimistic and at their optimistic end. The kernels' time is
roofline.py's, communication collectives.py's, memory memory.py's; this module puts them together and chooses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch_pjrt.plan import collectives
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import Chip, Price
from torch_pjrt.plan.layout import Layout, candidates
from torch_pjrt.plan.memory import Memory, memory_of
from torch_pjrt.plan.ranges import Range
from torch_pjrt.plan.roofline import Kernels
from torch_pjrt.plan.work import Work

INTERCONNECT = "interconnect"
_PLAINER = 0.03  # a layout must be so much faster for each kind of splitting that it adds
_SHOWN = 5  # layouts that are shown beside the best


@dataclass(slots=True)
class Compiled:
    """What the target's compiler said: verdict ("compiles", "lint-clean", ...), the figures it gave for one chip's program.

    flops_ratio, bytes_ratio: its counts by the plan's own of the same program. took: seconds of compiling. chips: over how many
    the program was sharded; collectives: how many of each it has, with two blocks where blocks are known.
    """

    verdict: str
    detail: str = ""
    flops: float | None = None
    bytes: float | None = None
    seconds: float | None = None
    arguments: float | None = None
    temporaries: float | None = None
    took: float = 0.0
    flops_ratio: float | None = None
    bytes_ratio: float | None = None
    chips: int = 1
    collectives: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Estimate:
    """One chip's answer. parts: middle seconds by what takes them. step: seconds. sent: bytes a chip sends, by axis."""

    chip: Chip
    layout: Layout | None = None
    memory: Memory | None = None
    step: Range | None = None
    parts: dict[str, float] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)
    others: list[tuple[Layout, Range, float]] = field(default_factory=list)
    fused_attention: bool = False
    other_attention: Range | None = None
    attention_basis: str = ""
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
    compiled: Compiled | None = None
    standing: list[str] = field(default_factory=list)

    @property
    def limit(self) -> str:
        """What takes the most time."""
        return max(self.parts, key=lambda k: self.parts[k]) if self.parts else "memory size"


class Machine:
    """A work on one kind of chip: the tables that all its layouts share. scale: of operations and of bytes, by a compiler."""

    def __init__(self, work: Work, chip: Chip, assumed: Assumptions, scale: tuple[float, float] = (1.0, 1.0)) -> None:
        self.work, self.chip, self.assumed, self.scale = work, chip, assumed, scale
        self._tables: dict[tuple[bool, str], Kernels] = {}

    def kernels(self, best: bool, recompute: str) -> Kernels:
        """The table of one end of the assumptions."""
        key = (best, recompute)
        if key not in self._tables:
            self._tables[key] = Kernels.of(self.work, self.chip, self.assumed, best, recompute, self.scale)
        return self._tables[key]

    def talking(self, layout: Layout, busy: float, best: bool) -> float | None:
        """Seconds of communication that no computation hides; None where the link's rate is not known."""
        pick = self.assumed.high if best else self.assumed.low
        overlapped = tight = 0.0
        for transfer in collectives.transfers(self.work, layout):
            took = collectives.seconds(transfer, self.chip, self.assumed, best)
            if took is None:
                return None
            if transfer.axis in ("data", "context"):
                overlapped += took
            else:
                tight += took
        shown = max(overlapped * (1 - pick("overlap")), overlapped - busy)
        return shown + max(tight * (1 - pick("overlap-tensor")), tight - busy)

    def step(self, layout: Layout) -> tuple[Range, dict[str, float]] | None:
        """Seconds of a step, and its parts at the middle; None where a link's rate is not known."""
        ends, halves = [], []
        for best in (True, False):
            parts = self.kernels(best, layout.recompute).seconds(self.work, layout)
            talk = self.talking(layout, sum(parts.values()), best)
            if talk is None:
                return None
            parts[INTERCONNECT] = talk
            halves.append(parts)
            ends.append(sum(parts.values()))
        return Range(*ends), {name: _middle(halves[0][name], halves[1][name]) for name in halves[0]}


def _middle(a: float, b: float) -> float:
    """The geometric middle; half, where one end is nothing."""
    return math.sqrt(a * b) if a and b else (a + b) / 2


def step_time(work: Work, chip: Chip, layout: Layout, assumed: Assumptions) -> tuple[Range, dict[str, float]] | None:
    """Seconds of a step in one layout, and the parts at the middle."""
    return Machine(work, chip, assumed).step(layout)


def best_layout(machine: Machine, chips: int, fixed: dict[str, int]) -> Estimate | None:
    """The fastest layout of so many chips that fits, by its middle; None when none does."""
    work, chip, assumed = machine.work, machine.chip, machine.assumed
    if chips > 1 and chip.fact("interconnect").value is None:
        return None
    found: list[tuple[float, Layout, Memory, Range, dict[str, float]]] = []
    for layout in candidates(work, int(chip.fact("domain").value or 1), chips, fixed):
        memory = memory_of(work, chip, layout, assumed)
        timed = machine.step(layout) if memory.fits else None
        if timed is not None:
            found.append((timed[0].mid * (1 + _PLAINER * layout.burden), layout, memory, *timed))
    if not found:
        return None
    found.sort(key=lambda each: each[0])
    _, layout, memory, step, parts = found[0]
    best = Estimate(chip, layout, memory, step, parts, fused_attention=work.fused_attention)
    best.sent = {t.axis: t.sent for t in collectives.transfers(work, layout)}
    seen = {layout.text}
    for _, other, its_memory, its_step, _ in found[1:]:
        if other.text not in seen and len(best.others) < _SHOWN:
            seen.add(other.text)
            best.others.append((other, its_step, its_memory.total))
    return best


def _meets(found: Estimate, work: Work) -> bool | None:
    load = work.workload
    if found.step is None or (load.latency is None and load.deadline is None):
        return None
    late = load.latency is not None and found.step.mid > load.latency
    if load.deadline is not None and load.quantity is not None:
        late = late or found.step.mid * load.quantity / work.units > load.deadline
    return not late


def for_chip(
    work: Work, chip: Chip, assumed: Assumptions, count: int | None = None, fixed: dict[str, int] | None = None
) -> Estimate:
    """The fewest chips (of powers of two) that hold the work and meet the bound; or the given number."""
    fixed = fixed or {}
    machine = Machine(work, chip, assumed)
    best: Estimate | None = None
    least = math.prod(fixed.get(axis, 1) for axis in ("data", "tensor", "pipeline", "context"))
    number = count or least
    most = count or max(least, int(assumed.high("max-chips")))
    while number <= most:
        found = best_layout(machine, number, fixed)
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
    return _refused(work, chip, assumed, count, fixed)


def _refused(work: Work, chip: Chip, assumed: Assumptions, count: int | None, fixed: dict[str, int]) -> Estimate:
    """Why not, with the memory of one chip."""
    memory = memory_of(work, chip, Layout(recompute=list(work.policies)[-1]), assumed)
    domain = chip.fact("domain").value
    if chip.fact("interconnect").value is None and not memory.fits:
        reason = "does not fit one chip, and no link's rate is known for more"
    elif domain is None and not memory.fits:
        reason = "does not fit one chip, and how many share a fast domain is not known"
    else:
        where = f"{count} chips" if count else f"up to {assumed.high('max-chips'):g} chips"
        given = f" laid out as {', '.join(f'{k}={v}' for k, v in fixed.items())}" if fixed else ""
        reason = f"does not fit with {where}{given} and a batch of {work.workload.together}"
    return Estimate(chip, None, memory, reason=reason)
