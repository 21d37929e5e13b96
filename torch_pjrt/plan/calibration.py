"""Measured runs, kept in a file, and what they change: a measured step replaces the roofline's, or scales it.

Owns the file's form. measure.py makes entries. A machine that is none of the packaged chips (the CPU) becomes a chip of its
own, with the rates that were measured on it.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from torch_pjrt.plan.chips import Chip, Fact
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.ranges import Range
from torch_pjrt.plan.work import Work
from torch_pjrt.plan.workload import PlanError


@dataclass(frozen=True, slots=True)
class Entry:
    """One measured run. seconds: of a step, the median and the range of it; middle: what the roofline said, where it could."""

    chip: str
    model: str
    kind: str
    batch: int
    sequence: int
    dtype: str
    chips: int
    seconds: float
    low: float
    high: float
    middle: float | None
    date: str
    where: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A device that is no packaged chip. rates: operations a second of large products, by dtype; bandwidth: bytes a second."""

    chip: str
    title: str
    rates: dict[str, float]
    bandwidth: float
    memory: float
    date: str

    def as_chip(self) -> Chip:
        """With these figures as its facts, and no link to others."""
        fact = lambda value: Fact(value, f"{value:.3g}", "measured", self.date)
        facts = {name: fact(rate) for name, rate in self.rates.items()}
        facts |= {"bandwidth": fact(self.bandwidth), "memory": fact(self.memory), "domain": fact(1.0)}
        return Chip(self.chip, f"{self.title} (measured here)", "this machine", "cpu", "cpu", facts)


class Calibration:
    """The entries of a file, and the machines they ran on where those are no packaged chips."""

    def __init__(self, entries: list[Entry], machines: list[Machine] | None = None) -> None:
        self.entries, self.machines = entries, machines or []

    def chips(self) -> dict[str, Chip]:
        """The measured machines as chips."""
        return {m.chip: m.as_chip() for m in self.machines}

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Raises PlanError when the file is not one of these; a file that is not there is empty."""
        if not path.exists():
            return cls([])
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls([Entry(**row) for row in data["runs"]], [Machine(**row) for row in data.get("machines", [])])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PlanError(f"{path} is no calibration file: {type(error).__name__}: {error}") from error

    def add(self, entry: Entry, machine: Machine | None = None) -> None:
        """Put it in the place of an older one of the same run."""
        if machine is not None:
            self.machines = [m for m in self.machines if m.chip != machine.chip] + [machine]
        same = (entry.chip, entry.model, entry.kind, entry.batch, entry.sequence, entry.dtype, entry.chips)
        self.entries = [
            e for e in self.entries if (e.chip, e.model, e.kind, e.batch, e.sequence, e.dtype, e.chips) != same
        ] + [entry]

    def write(self, path: Path) -> None:
        """All at once, or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            data = {"runs": [asdict(e) for e in self.entries], "machines": [asdict(m) for m in self.machines]}
            json.dump(data, file, indent=1)
        os.replace(name, path)

    def apply(self, row: Estimate, work: Work) -> None:
        """A run of the same work on as many of the same chips is taken as it is; another scales the middle."""
        if row.step is None or row.layout is None:
            return
        load, number = work.workload, row.layout.chips
        here = [e for e in self.entries if e.chip == row.chip.name]
        for e in here:
            if (e.model, e.kind, e.batch, e.sequence, e.dtype, e.chips) == (
                work.name,
                load.kind,
                load.batch,
                load.sequence,
                load.dtype,
                number,
            ):
                row.step, row.method = Range(e.low, e.high), f"measured here on {e.date}"
                return
        ratios = sorted(e.seconds / e.middle for e in here if e.middle and e.kind == load.kind)
        if ratios:
            middle = row.step.mid
            row.step = Range(middle * ratios[0] * 0.8, middle * ratios[-1] * 1.25)
            row.method = f"roofline scaled by {len(ratios)} measured run{'s' if len(ratios) > 1 else ''}"
