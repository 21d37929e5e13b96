"""What moving to another chip costs, and after how much work it has paid for itself; and when owning beats renting.

The cost of moving is engineer-days from the findings of `torch-pjrt check` (so many, times an assumed effort), or what the user
states. The saving is today's chip against another for the same work; where their ranges overlap no break-even is claimed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import OWNERSHIPS, Price, price_of
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.ranges import Range
from torch_pjrt.plan.workload import PlanError

SAVES, WITHIN, COSTS_MORE = "saves", "within the error bar", "costs more"
MONTH = 30 * 86400.0
_EFFORT = {"breaks": "effort-breaks", "silently-changes": "effort-silent", "slows": "effort-slows"}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of moving: dollars, and where they come from. days: of an engineer, where they are known."""

    dollars: Range
    days: Range | None
    basis: str


@dataclass(frozen=True, slots=True)
class BreakEven:
    """One chip against today's. saving_*: dollars for a million units; units, seconds, runs: until the move is paid for.

    seconds: of today's chips at full use. worst_units: at the pessimistic end; None: never. per_month: dollars saved in 30 days
    of that use.
    """

    verdict: str
    saving_low: float
    saving_mid: float
    saving_high: float
    units: float | None = None
    best_units: float | None = None
    worst_units: float | None = None
    seconds: float | None = None
    runs: float | None = None
    per_month: float | None = None


def stated(text: str, assumed: Assumptions) -> Cost:
    """`--migration-cost`: dollars ("25000", "$25k"), or engineer-days ("15d"). Raises PlanError."""
    found = re.fullmatch(r"\s*\$?\s*([0-9][0-9_,.]*)\s*(k|m|d|days?)?\s*", text.lower())
    try:
        value = float(found[1].replace(",", "").replace("_", "")) if found else -1.0
    except ValueError:
        value = -1.0
    if found is None or value < 0:
        raise PlanError(f"--migration-cost {text!r}: dollars, as 25000 or 25k, or engineer-days, as 15d")
    if (found[2] or "").startswith("d"):
        days = Range(value, value)
        return Cost(_dollars(days, assumed), days, f"{value:g} engineer-days, given by the user")
    value *= {"k": 1e3, "m": 1e6}.get(found[2] or "", 1.0)
    return Cost(Range(value, value), None, "given by the user")


def from_findings(findings: Sequence[Any], assumed: Assumptions) -> Cost:
    """Days for each finding of a severity, and days for what has to be done whatever the findings."""
    counts = Counter(str(one.severity) for one in findings)
    names = [("effort-fixed", 1), *((name, counts[severity]) for severity, name in _EFFORT.items())]
    low = sum(assumed.high(name) * n for name, n in names)
    high = sum(assumed.low(name) * n for name, n in names)
    what = ", ".join(f"{n} {s}" for s, n in counts.items() if s in _EFFORT) or "no finding that takes effort"
    days = Range(low, high)
    return Cost(_dollars(days, assumed), days, f"{low:.3g} to {high:.3g} engineer-days: {what}, and the fixed effort")


def _dollars(days: Range, assumed: Assumptions) -> Range:
    return Range(days.low * assumed.high("day-cost"), days.high * assumed.low("day-cost"))


def break_even(today: Estimate, row: Estimate, cost: Cost, quantity: float | None) -> BreakEven | None:
    """One chip against today's; None where a price or a time is not known."""
    if today.cost is None or row.cost is None or today.rate is None or row is today:
        return None
    low, high = today.cost.low - row.cost.high, today.cost.high - row.cost.low
    mid = today.cost.mid - row.cost.mid
    verdict = WITHIN if low <= 0 <= high else SAVES if low > 0 else COSTS_MORE
    if mid <= 0:
        return BreakEven(verdict, low, mid, high)
    units = cost.dollars.mid / mid * 1e6 if cost.dollars.mid else 0.0
    return BreakEven(
        verdict,
        low,
        mid,
        high,
        units,
        cost.dollars.low / high * 1e6,
        cost.dollars.high / low * 1e6 if low > 0 else None,
        units / today.rate.mid,
        units / quantity if quantity else None,
        mid / 1e6 * today.rate.mid * MONTH,
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """A chip's prices by ownership, and the share of the time in use above which the owned one is cheaper than each other."""

    chip: str
    prices: dict[str, Price]
    owning_pays_above: dict[str, float]


def holdings(rows: Sequence[Estimate], listed: Sequence[Price]) -> list[Holding]:
    """Of every chip with more than one price. An owned chip is paid for when it idles; a rented one is given back."""
    found = []
    for row in rows:
        prices = {o: p for o in OWNERSHIPS if (p := price_of(row.chip.name, o, list(listed))) is not None}
        owned = prices.get("owned")
        others = {o: p for o, p in prices.items() if o != "owned" and p.per_hour > 0}
        above = {o: owned.per_hour / p.per_hour for o, p in others.items()} if owned else {}
        if len(prices) > 1:
            found.append(Holding(row.chip.name, prices, above))
    return found
