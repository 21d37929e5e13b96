"""The parts of the page that help to decide: the answer in cards, moving from today's chip, owning or renting, attention."""

from __future__ import annotations

from html import escape

from torch_pjrt.plan.compare import Plan
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.migration import COSTS_MORE, SAVES, BreakEven
from torch_pjrt.plan.report_data import money, seconds, short


def table(name: str, heads: list[tuple[str, str]], rows: list[str], ident: str = "") -> str:
    """A table with a caption for readers of its text, that scrolls sideways by itself. heads: (text, class)."""
    top = "".join(f'<th scope="col"{f" class={kind}" if kind else ""}>{text}</th>' for text, kind in heads)
    mark = f' id="{ident}"' if ident else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}"><table{mark}>'
        f'<caption class="away">{escape(name)}</caption><thead><tr>{top}</tr></thead><tbody>{"".join(rows)}</tbody>'
        "</table></div>"
    )


def answer(made: Plan) -> str:
    """What is cheapest and what is fastest, each with its figure and those that cannot be told from it."""
    unit, rows = made.work.unit, {r.chip.name: r for r in made.rows}
    cards = []
    for word, best, near in (
        ("Cheapest", made.cheapest, made.near_cheapest),
        ("Fastest", made.fastest, made.near_fastest),
    ):
        if not best:
            cards.append(_card(word, "none could be found", ""))
            continue
        row = rows[best]
        if word == "Cheapest":
            figure = f"{money(row.cost.mid)} for 1M {unit}s" if row.cost else ""
            figure += f" ({money(row.cost.low)} to {money(row.cost.high)})" if row.cost else ""
        else:
            figure = (
                f"{short(row.rate.mid)} {unit}s/s ({short(row.rate.low)} to {short(row.rate.high)})" if row.rate else ""
            )
        number = f"{row.layout.chips} x " if row.layout and row.layout.chips > 1 else ""
        others = ", ".join(escape(rows[n].chip.title) for n in near)
        told = f"Cannot be told from it, within the error bar: {others}." if near else "No other chip's range overlaps."
        cards.append(_card(word, f"{number}{row.chip.title}", f"{escape(figure)}. {told}"))
    if made.moving is not None:
        saving = [made.break_even[n] for n in made.break_even if made.break_even[n].verdict == SAVES]
        cost = made.moving.dollars
        span = money(cost.low) if cost.low == cost.high else f"{money(cost.low)} to {money(cost.high)}"
        text = f"{len(saving)} of {len(made.break_even)} chips surely cost less for this work; see below."
        cards.append(_card(f"Leaving {rows[made.today].chip.title}", span, text))
    fits = sum(r.step is not None for r in made.rows)
    cards.append(_card("Compared", f"{len(made.rows)} kinds of chip", f"{fits} of them can do it."))
    return f'<div class="cards">{"".join(cards)}</div>'


def _card(head: str, figure: str, text: str) -> str:
    top = f'<div class="head">{escape(head)}</div><div class="figure">{escape(figure)}</div>'
    return f'<div class="card">{top}<p>{text}</p></div>'


def moving(made: Plan) -> str:
    """Today's chip against each other one."""
    if made.moving is None:
        return ""
    rows, unit = {r.chip.name: r for r in made.rows}, made.work.unit
    order = sorted(made.break_even, key=lambda n: -made.break_even[n].saving_mid)
    lines = [_line(rows[name], made.break_even[name]) for name in order]
    heads = [("chip", ""), ("against today", ""), (f"saves for 1M {unit}s", "n"), ("saves in 30 days", "n")]
    heads += [(f"{unit}s to break even", "n"), ("time to break even", "n")]
    days = f" Basis: {escape(made.moving.basis)}."
    cost = made.moving.dollars
    title = escape(rows[made.today].chip.title)
    return (
        f"<h2>Leaving {title}</h2><p>Moving costs {money(cost.low)} to {money(cost.high)}.{days} Times are those of today's "
        f"{title} in full use; where ranges overlap, no saving is sure.</p>"
        + (
            table(f"Break-even against {rows[made.today].chip.title}", heads, lines)
            if lines
            else "<p>No price is known.</p>"
        )
    )


def _line(row: Estimate, each: BreakEven) -> str:
    name = f'<th scope="row">{escape(row.chip.title)}</th><td>{escape(each.verdict)}</td>'
    span = f'<span class="range">{_signed(each.saving_low)} to {_signed(each.saving_high)}</span>'
    saved = f'<td class="n">{_signed(each.saving_mid)}{span}</td>'
    if each.units is None or each.seconds is None or each.verdict == COSTS_MORE:
        return (
            f'<tr class="no">{name}{saved}<td class="n">none</td><td class="n">never</td><td class="n">never</td></tr>'
        )
    worst = "never" if each.worst_units is None else short(each.worst_units)
    span = f'<span class="range">{short(each.best_units or 0)} to {worst}</span>'
    month = f'<td class="n">{money(each.per_month or 0)}</td>'
    after = f'<td class="n">{short(each.units)}{span}</td><td class="n">{seconds(each.seconds)}</td>'
    return f"<tr>{name}{saved}{month}{after}</tr>"


def _signed(value: float) -> str:
    return f"-{money(-value)}" if value < 0 else money(value)


def owning(made: Plan) -> str:
    """The share of the time in use above which an owned chip is cheaper than a rented one."""
    titles = {r.chip.name: r.chip.title for r in made.rows}
    lines = []
    for held in made.holdings:
        for ownership, share in held.owning_pays_above.items():
            told = f"above {share:.0%}" if share < 1 else "never"
            prices = f"${held.prices['owned'].per_hour:g}</td><td class='n'>${held.prices[ownership].per_hour:g}"
            lines.append(
                f'<tr><th scope="row">{escape(titles[held.chip])}</th><td>{escape(ownership)}</td><td class="n">{prices}</td>'
                f'<td class="n">{told}</td></tr>'
            )
    if not lines:
        return ""
    heads = [
        ("chip", ""),
        ("rented", ""),
        ("owned, an hour", "n"),
        ("rented, an hour", "n"),
        ("owning pays when in use", "n"),
    ]
    return (
        "<h2>Owned or rented</h2><p>An owned chip costs the same when it idles; a rented one is given back. Owned prices are "
        "the list's all-in cost of ownership.</p>" + table("Owned against rented", heads, lines)
    )


def attention(made: Plan) -> str:
    """What is known of attention on each chip, and what the other way would change."""
    seen: dict[str, list[Estimate]] = {}
    for r in made.rows:
        if r.other_attention is not None and r.step is not None:
            seen.setdefault(r.attention_basis, []).append(r)
    if not seen:
        return ""
    lines = []
    for basis, rows in seen.items():
        changes = [r.other_attention.mid / r.step.mid for r in rows if r.other_attention and r.step]
        names = ", ".join(escape(r.chip.title) for r in rows)
        state = "on the chip" if rows[0].fused_attention else "in memory"
        span = f"{min(changes):.2f} to {max(changes):.2f}" if len(changes) > 1 else f"{changes[0]:.2f}"
        lines.append(f"<tr><td>{names}</td><td>{state}</td><td class='n'>{span}</td><td>{escape(basis)}</td></tr>")
    heads = [("chips", ""), ("scores", ""), ("step, the other way", "n"), ("how that is known", "")]
    return (
        "<h2>Attention</h2><p>A flash kernel keeps attention's scores on the chip. Where there is none they go through memory; "
        "for long sequences that is most of the traffic. <code>--assume fused-attention=1</code> plans with such a kernel.</p>"
        + table("Attention by chip", heads, lines)
    )
