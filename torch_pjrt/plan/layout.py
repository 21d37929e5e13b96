"""Ways to spread a step over chips: data, ZeRO, tensor, context, expert and pipeline parallelism, and what is recomputed.

Owns the axes, which combinations are tried, and `--layout`. What a layout needs of memory is in memory.py, what it sends in
collectives.py, how long it takes in estimate.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch_pjrt.plan.work import Work
from torch_pjrt.plan.workload import PlanError

RECOMPUTE = ("none", "selective", "full")
AXES = ("data", "tensor", "pipeline", "context", "expert", "zero", "microbatches")
_SHORTEST = 1024  # tokens of a sequence that a chip must be left with before sequences are split


@dataclass(frozen=True, slots=True)
class Layout:
    """data x tensor x pipeline x context chips. expert: of the data axis, chips that share the experts out.

    zero: 0 every chip of the data axis keeps all; 1 optimizer state is split over it; 2 gradients too; 3 weights too (FSDP).
    microbatches: parts in which a chip takes its share of the batch: through a pipeline, or accumulating gradients.
    recompute: see policies.py.
    """

    data: int = 1
    tensor: int = 1
    zero: int = 0
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    microbatches: int = 1
    recompute: str = "none"

    @property
    def chips(self) -> int:
        """How many."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def replicas(self) -> int:
        """Chips that hold the same weights unless ZeRO splits them."""
        return self.data * self.context

    @property
    def burden(self) -> int:
        """How much a layout asks of whoever sets it up: the plainer of two equally fast ones is taken."""
        heavy = sum(2 for n in (self.pipeline, self.context) if n > 1)
        return heavy + sum(1 for n in (self.tensor, self.expert) if n > 1)

    @property
    def text(self) -> str:
        """In words."""
        data = {0: "data", 1: "ZeRO-1", 2: "ZeRO-2", 3: "FSDP"}[self.zero]
        parts = [f"{data} {self.data}"] if self.data > 1 else [data] if self.zero else []
        named = (
            ("tensor", self.tensor),
            ("context", self.context),
            ("expert", self.expert),
            ("pipeline", self.pipeline),
        )
        parts += [f"{name} {n}" for name, n in named if n > 1]
        text = " x ".join(parts) or "one chip"
        text += f" in {self.microbatches} microbatches" if self.microbatches > 1 else ""
        return text if self.recompute == "none" else f"{text}, {self.recompute} recompute"


def bubble(layout: Layout, accumulate: int = 1, decode: bool = False) -> float:
    """Share of a pipeline's time that chips wait: (p - 1) / (m + p - 1) for p stages and m microbatches.

    Decoding goes round and round, so that stages wait only where there are fewer microbatches than stages.
    """
    p, m = layout.pipeline, layout.microbatches * accumulate
    if decode:
        return max(0.0, 1 - m / p)
    return (p - 1) / (m + p - 1)


def stretch(work: Work, layout: Layout) -> float:
    """Time of the busiest stage by that of an average one: layers are not cut."""
    if layout.pipeline == 1 or not work.layers:
        return 1.0
    return -(-work.layers // layout.pipeline) * layout.pipeline / work.layers


def parse(text: str) -> dict[str, int]:
    """`data=8,tensor=4,zero=3` as numbers. Raises PlanError."""
    found: dict[str, int] = {}
    for part in (p.strip() for p in text.split(",") if p.strip()):
        name, _, value = part.partition("=")
        if name not in AXES:
            close = difflib.get_close_matches(name, AXES, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise PlanError(f"--layout has no axis {name!r}{hint}; they are {', '.join(AXES)}, as in data=8,tensor=4")
        least, most = (0, 3) if name == "zero" else (1, 1 << 20)
        if not value.isdigit() or not least <= int(value) <= most:
            raise PlanError(f"--layout {name} must be a whole number from {least} on, not {value!r}")
        found[name] = int(value)
    if not found:
        raise PlanError("--layout names no axis; as in data=8,tensor=4,zero=3")
    return found


def _powers(most: int) -> list[int]:
    return [1 << k for k in range(max(1, most).bit_length()) if 1 << k <= most]


def candidates(work: Work, domain: int, chips: int, fixed: dict[str, int]) -> Iterator[Layout]:
    """Layouts of so many chips. fixed: axes whose sizes the user gave."""
    load, recompute = work.workload, work.workload.recompute
    policies = tuple(work.policies) if recompute == "auto" else (recompute,)
    limits = {
        "tensor": min(domain, work.heads or domain),
        "pipeline": work.layers or 1,
        "context": load.sequence // _SHORTEST if work.layers and load.kind in ("train", "prefill") else 1,
        "data": load.together,
    }
    sizes = {
        name: [fixed[name]] if name in fixed else _powers(min(chips, max(1, most))) for name, most in limits.items()
    }
    if "data" not in fixed:
        sizes["data"] = [n for n in range(1, chips + 1) if chips % n == 0 and n <= load.together]
    for tensor in sizes["tensor"]:
        for context in sizes["context"]:
            for pipeline in sizes["pipeline"]:
                inner = tensor * context * pipeline
                data = chips // inner
                if chips % inner or data not in sizes["data"] or data > load.together:
                    continue
                for layout in _kinds(work, Layout(data, tensor, 0, pipeline, context), fixed):
                    yield from (replace(layout, recompute=p) for p in policies)


def _kinds(work: Work, layout: Layout, fixed: dict[str, int]) -> Iterator[Layout]:
    """The choices inside one mesh: ZeRO stage, expert axis, microbatches."""
    train = work.workload.kind == "train"
    stages = range(4) if train and layout.replicas > 1 else (0,)
    zeros = [z for z in stages if z in (fixed.get("zero", z),)]
    shared = [e for e in _powers(min(layout.data, work.experts or 1)) if layout.data % e == 0]
    experts = [e for e in shared if e == fixed.get("expert", e)]
    each = work.workload.together // layout.data
    once = layout.pipeline == 1 and (work.workload.kind == "decode" or work.workload.accumulate > 1)
    cuts = [m for m in ([1] if once else _powers(each)) if each % m == 0]
    if "microbatches" in fixed:
        cuts = [fixed["microbatches"]] if each % fixed["microbatches"] == 0 else []
    for zero in zeros:
        for expert in experts:
            for m in cuts:
                yield replace(layout, zero=zero, expert=expert, microbatches=m)
