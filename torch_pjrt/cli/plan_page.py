"""A plan as a page of text."""

from __future__ import annotations

__all__ = ["show"]

from rich.console import Console
from rich.table import Table

from torch_pjrt.plan.chips import sources
from torch_pjrt.plan.compare import Plan
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.migration import COSTS_MORE
from torch_pjrt.plan.ranges import Range
from torch_pjrt.plan.report_data import money, seconds, short


def show(made: Plan, console: Console) -> None:
    """Print it: the table, the verdict, then what it rests on."""
    work, load = made.work, made.work.workload
    console.print(
        f"{work.name}: {load.kind}, batch {load.batch}, sequence {load.sequence}, {load.dtype}; "
        f"{short(work.parameters)} parameters, {short(work.flops, 'flop')} and {short(work.bytes, 'B')} of traffic in a step "
        f"of {short(work.units)} {work.unit}s; recorded in {work.seconds:.1f} s",
        markup=False,
    )
    console.print()
    width, console.width = console.width, 250
    console.print(_table(made))
    console.width = width
    for row in made.rows:
        if ":" in row.compiles:
            console.print(f"{row.chip.name}: {row.compiles}", markup=False)
        if row.reason:
            console.print(f"{row.chip.name}: {row.reason}", markup=False)
    console.print()
    for word, best, near in (
        ("cheapest", made.cheapest, made.near_cheapest),
        ("fastest", made.fastest, made.near_fastest),
    ):
        if best and near:
            console.print(f"{word} at the middle: {best}; within the error bar: {', '.join(near)}", markup=False)
        else:
            console.print(f"{word}: {best or 'none could be found'}", markup=False)
    _choice(made, console)
    _attention(made, console)
    if made.findings is not None:
        severities = [str(one.severity) for one in made.findings]
        counts = ", ".join(f"{severities.count(s)} {s}" for s in dict.fromkeys(severities)) or "none"
        console.print(
            f"findings in {made.findings_of}: {counts}; see torch-pjrt check {made.findings_of}", markup=False
        )
    console.print("\nassumptions (change one with --assume NAME=LOW..HIGH)", markup=False)
    for a in made.assumed.rows.values():
        console.print(f"  {a.name:15} {a.text:20} {a.meaning} ({a.basis})", markup=False)
    for note in (*work.notes, *made.notes):
        console.print(f"  {note}", markup=False)
    _facts(made, console)


def _table(made: Plan) -> Table:
    """Wide tables are cut by no one: columns keep their width, and a narrow terminal wraps lines."""
    run = made.work.workload.quantity is not None
    checked = any(r.compiles != "not checked" for r in made.rows)
    heads = ["chip", "chips", "layout", "memory", "step", f"{made.work.unit}s/s", "$/1M", "as allocated"]
    heads += ["run", "run takes"] if run else []
    heads += [f"J/{made.work.unit}", "limit", *(["compiles"] if checked else []), ""]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, no_wrap=True)
    for r in made.rows:
        cells = _cells(r, run)
        table.add_row(*cells[:-2], *([cells[-2]] if checked else []), cells[-1])
    return table


def _cells(r: Estimate, run: bool) -> list[str]:
    used = f"{r.memory.total / r.memory.capacity:.0%}" if r.memory and r.memory.capacity else "?"
    if r.step is None or r.layout is None:
        return [
            r.chip.name,
            "",
            "does not fit",
            used,
            *[""] * (7 if run else 5),
            "memory size",
            r.compiles.split(":")[0],
            "",
        ]
    cells = [r.chip.name, str(r.layout.chips), r.layout.text, used, _span(r.step, seconds), _span(r.rate, short)]
    cells += [_span(r.cost, money), _span(r.cost_allocated, money)]
    cells += [_span(r.run_cost, money), _span(r.run_seconds, seconds)] if run else []
    method = "" if r.method == "roofline" else f" ({r.method})"
    return [*cells, _span(r.energy, short), r.limit + method, r.compiles.split(":")[0], "; ".join(r.standing)]


def _span(value: Range | None, form: object) -> str:
    return f"{form(value.low)}..{form(value.high)}" if value else "unknown"  # type: ignore[operator]


def _choice(made: Plan, console: Console) -> None:
    """What leaving today's chip costs and saves, and when owning beats renting."""
    unit = made.work.unit
    if made.moving is not None:
        cost = made.moving.dollars
        span = money(cost.low) if cost.low == cost.high else f"{money(cost.low)} to {money(cost.high)}"
        console.print(f"leaving {made.today} costs {span} ({made.moving.basis})", markup=False)
        if not made.break_even:
            console.print(f"  no break-even: the cost of {made.today} or of the others is not known", markup=False)
        for name, each in made.break_even.items():
            text = f"  {name}: {each.verdict}"
            if each.verdict != COSTS_MORE and each.units is not None and each.seconds is not None:
                worst = (
                    "never at the pessimistic end" if each.worst_units is None else f"at most {short(each.worst_units)}"
                )
                text += (
                    f"; {money(each.saving_mid)} for 1M {unit}s at the middle, paid for after {short(each.units)} {unit}s "
                    f"({worst}), {seconds(each.seconds)} of {made.today} in full use"
                )
                text += f", {each.runs:.3g} runs" if each.runs is not None else ""
            console.print(text, markup=False)
    for holding in made.holdings:
        for ownership, share in holding.owning_pays_above.items():
            text = f"in use more than {share:.0%} of the time" if share < 1 else "never: renting costs less an hour"
            console.print(f"owning {holding.chip} beats {ownership}: {text}", markup=False)


def _attention(made: Plan, console: Console) -> None:
    """What was taken of attention, and what the other way would change."""
    seen: dict[str, list[Estimate]] = {}
    for r in made.rows:
        if r.other_attention is not None:
            seen.setdefault(r.attention_basis, []).append(r)
    for basis, rows in seen.items():
        changes = [r.other_attention.mid / r.step.mid for r in rows if r.other_attention and r.step]
        other = "without a flash kernel" if rows[0].fused_attention else "with a flash kernel"
        span = f"{min(changes):.2f} to {max(changes):.2f}" if len(changes) > 1 else f"{changes[0]:.2f}"
        names = ", ".join(r.chip.name for r in rows)
        console.print(f"attention on {names}: {basis}; {other} a step takes {span} of the time shown", markup=False)


def _facts(made: Plan, console: Console) -> None:
    console.print("\nfacts", markup=False)
    used: set[str] = set()
    for r in made.rows:
        words = []
        for name in ("bfloat16", "memory", "bandwidth", "interconnect", "power"):
            fact = r.chip.fact(name)
            used.add(fact.source)
            words.append(f"{name} {fact.text}" + (f" [{fact.source}, {fact.date}]" if fact.source else ""))
        price = r.price
        if price:
            used.add(price.source)
        words.append(
            f"${price.per_hour:g}/h {price.provider} [{price.source}, {price.date}]" if price else "price unknown"
        )
        console.print(f"  {r.chip.name}: " + ", ".join(words), markup=False)
    for key, source in sources().items():
        if key in used:
            console.print(f"  [{key}] {source['what']}, {source['address']}, {source['date']}", markup=False)
