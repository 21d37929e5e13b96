"""Seconds of a step's kernels on one chip of a layout: for each, the longer of computing and moving memory.

Rates are the chip's peaks times the shares that the assumptions state. A table of kernels is made once for a chip and an end
of the assumptions; each layout is then a few operations on arrays, so that thousands of layouts can be tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import Chip
from torch_pjrt.plan.layout import Layout, bubble, stretch
from torch_pjrt.plan.work import Work

RATES = {"bfloat16": "bfloat16", "float16": "bfloat16", "float8": "float8", "int8": "int8"}
COMPUTE, MEMORY, OVERHEAD, WAITING = "compute", "memory bandwidth", "kernel overhead", "pipeline bubble"


def peak(chip: Chip, dtype: str, assumed: Assumptions, best: bool) -> float | None:
    """Operations a second at which the chip's matrix units are rated for a dtype."""
    name = RATES.get(dtype)
    if name is not None:
        found = chip.fact(name).value
        return found if found or name != "float8" else chip.fact("bfloat16").value
    known, base = chip.fact("float32").value, chip.fact("bfloat16").value
    if known is not None:
        return known / (8 if dtype in ("float64", "complex128") else 1)
    if base is None:
        return None
    share = assumed.high("float32-rate") if best else assumed.low("float32-rate")
    return base * share / (8 if dtype in ("float64", "complex128") else 1)


def _column(values: Iterable[float]) -> np.ndarray:
    return np.array(list(values), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Columns of a work's kernels on a chip, unsplit: seconds of computing, and of moving each kind of bytes."""

    busy: np.ndarray
    dense: np.ndarray
    experts: np.ndarray
    rest: np.ndarray
    count: np.ndarray
    optimizer: np.ndarray
    mixed: np.ndarray
    overhead: float
    load: float

    @classmethod
    def of(
        cls,
        work: Work,
        chip: Chip,
        assumed: Assumptions,
        best: bool,
        recompute: str,
        scale: tuple[float, float] = (1.0, 1.0),
    ) -> Kernels:
        """The kernels of a step under one policy of recomputation. scale: of all operations and of all bytes."""
        pick = assumed.high if best else assumed.low
        rate = ((chip.fact("bandwidth").value or 0.0) * pick("bandwidth") or math.nan) / scale[1]
        groups = [*work.groups, *work.policy(recompute).again]
        busy = []
        for g in groups:
            skipped = g.skippable / g.flops * pick("causal") if g.flops else 0.0
            rates = ((peak(chip, dtype, assumed, best) or math.inf) for dtype in g.matmul)
            busy.append(sum(f * (1 - skipped) / (r * pick("matmul")) for f, r in zip(g.matmul.values(), rates)))
        return cls(
            _column(busy) * scale[0],
            _column((g.weight_bytes - g.expert_bytes) / rate for g in groups),
            _column(g.expert_bytes / rate for g in groups),
            _column((g.bytes - g.weight_bytes) / rate for g in groups),
            _column(g.count for g in groups),
            np.array([g.phase == "optimizer" for g in groups], dtype=bool),
            np.array([g.expert_bytes > 0 and g.phase != "optimizer" for g in groups], dtype=bool),
            pick("kernel") * 1e-6,
            pick("expert-load"),
        )

    def optimizer_seconds(self, layout: Layout) -> float:
        """Of the kernels that run once for all microbatches."""
        updated = layout.tensor * layout.pipeline * (layout.replicas if layout.zero else 1)
        moved = (self.dense + self.experts + self.rest) / updated
        return float((np.maximum(self.busy / updated, moved) * self.count)[self.optimizer].sum())

    def seconds(self, work: Work, layout: Layout) -> dict[str, float]:
        """Seconds of each kind on the busiest chip."""
        m, replicas, tensor, expert = layout.microbatches, layout.replicas, layout.tensor, layout.expert
        own = replicas // expert if layout.zero else 1  # a chip's optimizer updates its part of what it holds
        updated = replicas if layout.zero else 1
        split = np.where(self.optimizer, tensor * updated, replicas * tensor * m)
        load = np.where(self.mixed & (expert > 1), self.load, 1.0)
        busy = self.busy / split * load
        moved = self.dense / (tensor * np.where(self.optimizer, updated, 1))
        moved = moved + self.experts / (tensor * expert * np.where(self.optimizer, own, 1)) + self.rest / split * load
        turns = self.count * np.where(self.optimizer, 1, m) / layout.pipeline * stretch(work, layout)
        longer = np.maximum(busy, moved) * turns
        computing = busy >= moved
        parts = {
            COMPUTE: float(longer[computing].sum()),
            MEMORY: float(longer[~computing].sum()),
            OVERHEAD: float(turns.sum()) * self.overhead,
        }
        idle = bubble(layout, work.workload.accumulate, work.workload.kind == "decode")
        if idle:
            parts[WAITING] = sum(parts.values()) * idle / (1 - idle)
        return parts
