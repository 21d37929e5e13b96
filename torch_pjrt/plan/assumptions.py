"""What a plan takes for granted: each with its range, what it means, and where it comes from; each can be overridden."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from torch_pjrt.plan.workload import PlanError


@dataclass(frozen=True, slots=True)
class Assumption:
    """A range. low is the pessimistic end, high the optimistic one, whichever is the larger number."""

    name: str
    low: float
    high: float
    unit: str
    meaning: str
    basis: str
    given: bool = False

    @property
    def text(self) -> str:
        """As it is written on the command line."""
        span = f"{self.low:g}" if self.low == self.high else f"{self.low:g}..{self.high:g}"
        return f"{span} {self.unit}".strip()


TABLE = (
    Assumption(
        "matmul",
        0.4,
        0.75,
        "of peak",
        "share of the matrix units' peak that large products reach",
        "whole training steps reach 46 to 71 % on TPU v5e and v5p (MaxText), 33 to 39 % on H100 at 500 W (torchtitan)",
    ),
    Assumption(
        "bandwidth",
        0.6,
        0.9,
        "of peak",
        "share of the memory bandwidth that kernels reach",
        "gpt-fast reads 1,397 of an A100's 2,039 GB/s when decoding",
    ),
    Assumption(
        "network", 0.5, 0.9, "of peak", "share of a link's rate that a collective reaches", "an assumption of ours"
    ),
    Assumption(
        "overlap",
        0.3,
        1.0,
        "",
        "share of data- and context-parallel communication that hides behind computation",
        "an assumption of ours",
    ),
    Assumption(
        "overlap-tensor",
        0.0,
        0.5,
        "",
        "share of tensor-, expert- and pipeline-parallel communication that hides behind computation",
        "an assumption of ours",
    ),
    Assumption(
        "compiler-time",
        1.5,
        0.9,
        "of its estimate",
        "time of a step by what the compiler estimates, where it gives a time (--compile)",
        "an assumption of ours: the compiler's model knows the chip, and assumes nothing else of the machine",
    ),
    Assumption("kernel", 5, 0.5, "us", "time that each kernel takes whatever its size", "an assumption of ours"),
    Assumption("collective", 20, 4, "us", "time that each collective takes whatever its size", "an assumption of ours"),
    Assumption(
        "causal",
        0.0,
        1.0,
        "",
        "share of the masked half of causal attention that kernels skip",
        "an assumption of ours",
    ),
    Assumption(
        "fused-attention",
        0,
        0,
        "",
        "1: attention's scores never reach memory, as with a flash kernel; 0: they do",
        "this package has no flash kernel for any platform today; the report has what is known of each chip",
    ),
    Assumption(
        "expert-load",
        1.25,
        1.0,
        "of the mean",
        "tokens of the busiest chip where experts are shared out",
        "an assumption of ours",
    ),
    Assumption(
        "float32-rate", 0.125, 0.5, "of bfloat16", "rate of float32 products", "no float32 peak in the sources read"
    ),
    Assumption(
        "between",
        50,
        50,
        "GB/s",
        "network of a chip to chips outside its fast domain",
        "400 Gbit/s for each GPU in torchtitan's H100 and H200 runs",
    ),
    Assumption(
        "memory", 0.9, 0.9, "of size", "share of a chip's memory that a program can use", "an assumption of ours"
    ),
    Assumption("power", 1.0, 0.6, "of rated", "share of the rated power that is drawn", "an assumption of ours"),
    Assumption(
        "utilisation",
        0.5,
        0.5,
        "",
        "share of allocated time that does useful work, for cost as allocated",
        "an assumption of ours",
    ),
    Assumption(
        "effort-fixed",
        15,
        5,
        "days",
        "an engineer's days of moving whatever the findings: setting up, comparing results, tuning",
        "an assumption of ours; people report weeks to months",
    ),
    Assumption(
        "effort-breaks", 0.5, 0.1, "days", "an engineer's days for each finding that breaks", "an assumption of ours"
    ),
    Assumption(
        "effort-silent",
        0.5,
        0.1,
        "days",
        "an engineer's days for each finding that silently changes what is computed",
        "an assumption of ours",
    ),
    Assumption(
        "effort-slows", 0.25, 0.02, "days", "an engineer's days for each finding that slows", "an assumption of ours"
    ),
    Assumption("day-cost", 1200, 600, "$", "an engineer's day", "an assumption of ours"),
    Assumption("max-chips", 1024, 1024, "chips", "most chips that are tried", "an assumption of ours"),
)


class Assumptions:
    """The table with the user's changes. low(name): the pessimistic end; high(name): the optimistic one."""

    def __init__(self, changes: Iterable[str] = ()) -> None:
        self.rows = {row.name: row for row in TABLE}
        for text in changes:
            self._change(text)

    def _change(self, text: str) -> None:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or name not in self.rows:
            close = difflib.get_close_matches(name, list(self.rows), 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise PlanError(
                f"there is no assumption {name!r}{hint}; they are {', '.join(self.rows)}, set by NAME=LOW..HIGH"
            )
        ends = value.split("..")
        try:
            low, high = (float(ends[0]), float(ends[-1])) if len(ends) in (1, 2) else (-1.0, -1.0)
        except ValueError:
            low = high = -1.0
        if (
            low < 0
            or high < 0
            or (name in ("network", "between", "memory", "max-chips", "matmul", "bandwidth") and not low * high)
        ):
            raise PlanError(
                f"{name} must be a number or LOW..HIGH, as in {name}={self.rows[name].text.split()[0]}, not {value!r}"
            )
        row = self.rows[name]
        worse, better = (low, high) if (row.low <= row.high) == (low <= high) else (high, low)
        self.rows[name] = Assumption(name, worse, better, row.unit, row.meaning, "given by the user", True)

    def low(self, name: str) -> float:
        """The pessimistic end."""
        return self.rows[name].low

    def high(self, name: str) -> float:
        """The optimistic end."""
        return self.rows[name].high
