"""A plan: every chip's estimate with price, energy and standing, and what is cheapest and fastest, as far as can be told.

Owns the order of the steps and the rule that nothing is ranked inside the error bar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch_pjrt.plan import attention, estimate
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.calibration import Calibration
from torch_pjrt.plan.chips import Chip, Price, price_of
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.migration import BreakEven, Cost, Holding, break_even, holdings
from torch_pjrt.plan.ranges import Range
from torch_pjrt.plan.work import Work


@dataclass(slots=True)
class Plan:
    """The answer. cheapest, fastest: names of chips; the lists after them: those within the error bar of it.

    today: the chip that is used now; moving: what leaving it costs; break_even: by chip. holdings: owned against rented.
    """

    work: Work
    rows: list[Estimate]
    assumed: Assumptions
    ownership: str
    count: int | None = None
    cheapest: str = ""
    near_cheapest: list[str] = field(default_factory=list)
    fastest: str = ""
    near_fastest: list[str] = field(default_factory=list)
    findings: list[Any] | None = None
    findings_of: str = ""
    chosen: str = ""
    notes: list[str] = field(default_factory=list)
    listed: list[Price] = field(default_factory=list)
    today: str = ""
    moving: Cost | None = None
    break_even: dict[str, BreakEven] = field(default_factory=dict)
    holdings: list[Holding] = field(default_factory=list)


def plan(
    work: Work,
    chips: Sequence[Chip],
    prices: Sequence[Price],
    assumed: Assumptions,
    *,
    ownership: str = "on-demand",
    count: int | None = None,
    layout: dict[str, int] | None = None,
    calibration: Calibration | None = None,
    refine: Callable[[list[Estimate]], list[str]] | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> Plan:
    """Estimate every chip and compare. layout: axes whose sizes are given; refine: changes estimates (see compiled.py)."""
    made = Plan(work, [], assumed, ownership, count, listed=list(prices))
    made.notes.append(f"of several {ownership} prices of a chip the lowest is taken; all of them are in the JSON")
    for chip in chips:
        progress(f"estimating {chip.name}")
        made.rows.append(_estimated(work, chip, assumed, count, layout))
    if refine is not None:
        made.notes += refine(made.rows)
    for row, chip in zip(made.rows, chips, strict=True):
        if calibration is not None:
            calibration.apply(row, work)
        _money(row, work, price_of(chip.name, ownership, list(prices)), assumed)
        _energy(row, work, assumed)
    _stand(made)
    made.holdings = holdings(made.rows, prices)
    return made


def leave(made: Plan, today: str, moving: Cost) -> None:
    """Fill in the break-even of every chip against the one that is used now, which must be among them."""
    made.today, made.moving = today, moving
    here = next(r for r in made.rows if r.chip.name == today)
    found = {r.chip.name: break_even(here, r, moving, made.work.workload.quantity) for r in made.rows}
    made.break_even = {name: each for name, each in found.items() if each is not None}


def _estimated(
    work: Work, chip: Chip, assumed: Assumptions, count: int | None, layout: dict[str, int] | None
) -> Estimate:
    """A chip's answer with attention as it is there, and the time of the same layout with attention the other way."""
    known = attention.of(chip, assumed)
    mine = work.with_attention(known.fused)
    row = estimate.for_chip(mine, chip, assumed, count, layout)
    row.fused_attention, row.attention_basis = known.fused, known.basis
    if mine.other is not None and row.layout is not None:
        timed = estimate.step_time(mine.other, chip, row.layout, assumed)
        row.other_attention = timed[0] if timed else None
    return row


def _money(row: Estimate, work: Work, price: Price | None, assumed: Assumptions) -> None:
    row.price = price
    if row.step is None or row.layout is None:
        return
    row.rate = Range(work.units / row.step.high, work.units / row.step.low)
    quantity = work.workload.quantity
    if quantity is not None:
        row.run_seconds = row.step.times(quantity / work.units)
    if price is None:
        return
    each = price.per_hour / 3600 * row.layout.chips / work.units
    row.cost = row.step.times(each * 1e6)
    row.cost_allocated = row.cost.times(1 / assumed.low("utilisation"))
    if quantity is not None:
        row.run_cost = row.step.times(each * quantity)


def _energy(row: Estimate, work: Work, assumed: Assumptions) -> None:
    """Joules for each unit, from the chip's rated power; without host, network and cooling."""
    watts = row.chip.fact("power").value
    if row.step is None or row.layout is None or watts is None:
        return
    factor = watts * row.layout.chips / work.units
    row.energy = Range(row.step.low * factor * assumed.high("power"), row.step.high * factor * assumed.low("power"))


def _stand(made: Plan) -> None:
    able = [r for r in made.rows if r.step is not None and r.meets is not False]
    priced = [r for r in able if r.cost is not None]
    if priced:
        best = min(priced, key=lambda r: r.cost.mid if r.cost else 0.0)
        made.cheapest = best.chip.name
        made.near_cheapest = [
            r.chip.name for r in priced if r is not best and r.cost and best.cost and r.cost.overlaps(best.cost)
        ]
    if able:
        quick = max(able, key=lambda r: r.rate.mid if r.rate else 0.0)
        made.fastest = quick.chip.name
        made.near_fastest = [
            r.chip.name for r in able if r is not quick and r.rate and quick.rate and r.rate.overlaps(quick.rate)
        ]
    for r in made.rows:
        for best_name, near, word in (
            (made.cheapest, made.near_cheapest, "cheapest"),
            (made.fastest, made.near_fastest, "fastest"),
        ):
            if r.chip.name == best_name:
                r.standing.append(f"lowest {'cost' if word == 'cheapest' else 'time'} at the middle" if near else word)
            elif r.chip.name in near:
                r.standing.append(f"within the error bar of the {word}")
    made.chosen = made.cheapest or made.fastest
