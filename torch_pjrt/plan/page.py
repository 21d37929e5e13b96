"""A plan as one HTML file that needs no network: a table that sorts, drawings, assumptions, sources.

Readable in light and dark, in print and on a phone; without its script only sorting and the choice of a roofline are lost.
"""

from __future__ import annotations

from html import escape
from typing import Any

from torch_pjrt._version import __version__
from torch_pjrt.plan import page_choice, plots
from torch_pjrt.plan.chips import sources
from torch_pjrt.plan.compare import Plan
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.ranges import Range
from torch_pjrt.plan.report_data import money, seconds, short

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 20%, transparent);
  --a: light-dark(#0b57d0, #8ab4f8); --best: light-dark(#b3261e, #ff8a80); --m0: light-dark(#0b57d0, #8ab4f8);
  --m1: light-dark(#b06000, #fdd663); --m2: light-dark(#137333, #81c995); --m3: light-dark(#7b1fa2, #d7aefb);
  --m4: light-dark(#00677d, #78d9ec); --m5: light-dark(#5f6368, #bdc1c6); --dim: light-dark(#4d5156, #c4c7c5);
  --soft: color-mix(in srgb, currentColor 6%, transparent); }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 96rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .7rem .35rem 0; vertical-align: top; border-bottom: 1px solid var(--line); }
td.l { min-width: 11rem; } td.w { white-space: normal; min-width: 7rem; }
#chips { font-size: .875rem; } #chips th:first-child { min-width: 8rem; position: sticky; left: 0; background: Canvas; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: 1rem; margin: 1rem 0; }
.card { background: var(--soft); border-radius: .6rem; padding: .7rem 1rem; } .card p { margin: .2rem 0 0; font-size: .9em; }
.card .head { font-size: .85em; } .card .figure { font-size: 1.35rem; font-weight: 650; line-height: 1.3; }
.away { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.scroll:focus-visible, select:focus-visible, a:focus-visible { outline: 2px solid var(--a); }
a { color: var(--a); } nav { font-size: .9em; } nav a { margin-right: 1rem; }
th button { all: unset; cursor: pointer; font-weight: 600; } th button:focus-visible { outline: 2px solid var(--a); }
th[aria-sort=ascending] button::after { content: " \\2191"; } th[aria-sort=descending] button::after { content: " \\2193"; }
.range { display: block; font-size: .8em; color: var(--dim); } .note { font-size: .9em; }
.word { display: inline-block; border: 1px solid var(--line); border-radius: .6rem; padding: 0 .5rem; font-size: .8em; }
.word.top { border-color: var(--best); color: var(--best); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 36rem), 1fr)); gap: 0 2rem; }
svg { width: 100%; max-width: 60rem; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: currentColor; }
svg .small { font-size: 11px; } .grid { stroke: var(--line); } .marks line { stroke: var(--a); stroke-width: 1.5; opacity: .6; }
.marks circle { fill: var(--a); }
.marks .best line { stroke: var(--best); opacity: 1; } .marks .best circle { fill: var(--best); }
.m0 { fill: var(--m0); } .m1 { fill: var(--m1); } .m2 { fill: var(--m2); } .m3 { fill: var(--m3); } .m4 { fill: var(--m4); }
.m5 { fill: var(--m5); }
.full { stroke: currentColor; } .usable { stroke: currentColor; stroke-dasharray: 4 3; }
.roof { fill: none; stroke: currentColor; stroke-width: 1.5; } .roof.low { stroke-dasharray: 5 4; opacity: .7; }
.kernel { fill: var(--m0); opacity: .6; } .kernel.backward { fill: var(--m1); } .kernel.optimizer { fill: var(--m2); }
.roofs > div { display: none; } .roofs > div.on { display: block; }
select { font: inherit; padding: .2rem; } code { font: .875em ui-monospace, monospace; overflow-wrap: anywhere; }
@page { size: A4 landscape; margin: 10mm; }
@media print { :root { color-scheme: light; } body { margin: 0; padding: 0; max-width: none; font-size: 9pt; }
  select { border: 0; } nav { display: none; } .scroll { overflow: visible; } #chips { font-size: 7pt; }
  #chips td, #chips th { padding-right: .3rem; min-width: 0; } .card { border: 1px solid var(--line); }
  h2 { break-after: avoid; } svg, tr, .card { break-inside: avoid; } }
@media (max-width: 40rem) { body { padding: 0 .6rem; } th, td { padding-right: .5rem; font-size: .9rem; } }
"""
_SCRIPT = """
for (const button of document.querySelectorAll('#chips th button')) button.addEventListener('click', () => {
  const head = button.closest('th'), row = head.parentNode, at = [...row.children].indexOf(head);
  const up = head.getAttribute('aria-sort') !== 'ascending';
  for (const other of row.children) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
  const body = document.querySelector('#chips tbody');
  const key = (line) => line.children[at].dataset.value ?? line.children[at].textContent;
  const lines = [...body.rows].sort((a, b) => {
    const x = key(a), y = key(b);
    if (x === '' || y === '') return (x === '') - (y === '');
    const numbers = !isNaN(x) && !isNaN(y);
    return (numbers ? x - y : String(x).localeCompare(y)) * (up ? 1 : -1);
  });
  body.append(...lines);
});
const pick = document.querySelector('#roof');
if (pick) pick.addEventListener('change', () => {
  for (const each of document.querySelectorAll('.roofs > div')) each.classList.toggle('on', each.id === 'roof-' + pick.value);
});
"""


def as_html(made: Plan) -> str:
    """The page."""
    work, load = made.work, made.work.workload
    sizes = f"batch {load.batch}" + (f", sequence {load.sequence}" if work.unit == "token" else "")
    title = f"{work.name}: {load.kind} on {len(made.rows)} kinds of chip"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>',
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(sizes)}, {escape(load.dtype)}; prices {escape(made.ownership)}; by torch-pjrt {__version__}. "
        f"{short(work.parameters)} parameters, {short(work.flops, 'flop')} of products and {short(work.bytes, 'B')} of memory "
        f"traffic in a step of {short(work.units)} {escape(work.unit)}s.</p>",
        '<nav aria-label="sections"><a href="#chips">Chips</a><a href="#plots">Plots</a><a href="#assumed">Assumptions</a>'
        '<a href="#facts">Facts and sources</a></nav>',
        page_choice.answer(made),
        '<h2>Chips</h2><p class="note">Each figure is the middle of a range; the range is below it. '
        "Where ranges overlap there is no rank. Each row uses as few chips as hold the work, and its speed is that of all of "
        "them: to compare equal numbers, give --count. Press a heading to sort.</p>",
        _table(made),
        page_choice.moving(made),
        page_choice.owning(made),
        '<div class="plots" id="plots"><div><h2>Cost against time</h2>',
        plots.cost_against_time(made),
        "</div><div><h2>Memory</h2>",
        plots.memory_bars(made),
        "</div></div><h2>Roofline</h2>",
        _roofs(made),
        page_choice.attention(made),
        _migration(made),
        _assumptions(made),
        _sources(made),
        f"</main><script>{_SCRIPT}</script></body></html>\n",
    ]
    return "".join(parts)


def _cell(value: Range | None, form: Any) -> str:
    if value is None:
        return '<td class="n no" data-value="">unknown</td>'
    return (
        f'<td class="n" data-value="{value.mid:.6g}">{form(value.mid)}'
        f'<span class="range">{form(value.low)} to {form(value.high)}</span></td>'
    )


def _table(made: Plan) -> str:
    unit = made.work.unit
    run = made.work.workload.quantity is not None
    numeric = [
        "step",
        f"{unit}s/s",
        f"$ for 1M {unit}s",
        "as allocated",
        *(["run", "run takes"] if run else []),
    ]
    heads = [("chip", ""), ("chips", "n"), *((h, "n") for h in numeric), ("memory", "n"), ("layout", "")]
    heads += [(f"J/{unit}", "n"), ("limited by", ""), ("compiles", "")]
    buttons = [(f'<button type="button">{escape(name)}</button>', kind) for name, kind in heads]
    rows = sorted(made.rows, key=lambda r: (r.step is None, r.cost is None, r.cost.mid if r.cost else 0.0))
    made_table = page_choice.table("Chips compared", buttons, [_line(r, run) for r in rows], "chips")
    cost = heads.index((f"$ for 1M {unit}s", "n"))
    marked = made_table.split('<th scope="col"')
    marked[cost + 1] = ' aria-sort="ascending"' + marked[cost + 1]
    return '<th scope="col"'.join(marked)


def _line(r: Estimate, run: bool) -> str:
    words = "".join(
        f'<br><span class="word{"" if w.startswith("within") else " top"}">{escape(w)}</span>' for w in r.standing
    )
    name = f'<th scope="row" data-value="{escape(r.chip.name)}">{escape(r.chip.title)}{words}</th>'
    known = r.memory is not None and r.memory.capacity > 0
    share = r.memory.total / r.memory.capacity if r.memory is not None and known else 0.0
    used = f'<td class="n" data-value="{share:.4f}">{share:,.0%}</td>' if known else '<td class="n" data-value=""></td>'
    if r.layout is None or r.step is None:
        blank = '<td class="n" data-value=""></td>'
        return (
            f'<tr class="no">{name}{blank * (7 if run else 5)}{used}<td class="l">{escape(r.reason)}</td>{blank}'
            f"<td>memory size</td><td>{escape(r.compiles)}</td></tr>"
        )
    late = f'<span class="range">{escape(r.reason)}</span>' if r.reason else ""
    runs = _cell(r.run_cost, money) + _cell(r.run_seconds, seconds) if run else ""
    return (
        f'<tr>{name}<td class="n">{r.layout.chips}</td>{_cell(r.step, seconds)}{_cell(r.rate, short)}{_cell(r.cost, money)}'
        f'{_cell(r.cost_allocated, money)}{runs}{used}<td class="l">{escape(r.layout.text)}{late}</td>'
        f'{_cell(r.energy, short)}<td>{escape(r.limit)}<span class="range">{escape(r.method)}</span></td>'
        f'<td class="w">{escape(r.compiles)}</td></tr>'
    )


def _roofs(made: Plan) -> str:
    rows = [r for r in made.rows if r.step is not None]
    if not rows:
        return "<p>No chip fits.</p>"
    first = next((r for r in rows if r.chip.name == made.chosen), rows[0])
    options = "".join(
        f'<option value="{escape(r.chip.name)}"{" selected" if r is first else ""}>{escape(r.chip.title)}</option>'
        for r in rows
    )
    drawn = "".join(
        f'<div id="roof-{escape(r.chip.name)}"{" class=on" if r is first else ""}>{plots.roofline(made, r, made.assumed)}</div>'
        for r in rows
    )
    return (
        f'<p><label>Chip <select id="roof">{options}</select></label> <span class="note">Each disc is a kind of kernel, as '
        "large as its share of the operations: blue forward, amber backward, green optimizer. Solid: peak; dashed: the "
        "assumed low end."
        f'</span></p><div class="roofs">{drawn}</div>'
    )


def _migration(made: Plan) -> str:
    if made.findings is None:
        return ""
    counts: dict[str, int] = {}
    for one in made.findings:
        counts[str(one.severity)] = counts.get(str(one.severity), 0) + 1
    words = (
        ", ".join(f"{n} that {s.replace('-', ' ')}" if s != "style" else f"{n} of style" for s, n in counts.items())
        or "none"
    )
    rows = [
        f"<tr><td><code>{escape(str(one.path))}:{one.line}</code></td><td>{one.rule.id}</td><td>{escape(one.what)}</td></tr>"
        for one in made.findings[:50]
    ]
    table = page_choice.table("Findings", [("where", ""), ("rule", ""), ("what", "")], rows) if rows else ""
    return f"<h2>What ties the program to one chip</h2><p>Findings in {escape(made.findings_of)}: {words}.</p>{table}"


def _assumptions(made: Plan) -> str:
    rows = [
        f'<tr><th scope="row"><code>{escape(a.name)}</code></th><td>{escape(a.text)}</td><td>{escape(a.meaning)}</td>'
        f"<td>{escape(a.basis)}</td></tr>"
        for a in made.assumed.rows.values()
    ]
    notes = "".join(f"<li>{escape(n)}</li>" for n in (*made.work.notes, *made.notes))
    return (
        '<h2 id="assumed">Assumptions</h2><p>Each can be given anew with <code>--assume NAME=LOW..HIGH</code>. The first of '
        "two figures is the pessimistic end.</p>"
        + page_choice.table("Assumptions", [(h, "") for h in ("name", "range", "meaning", "basis")], rows)
        + (f"<ul>{notes}</ul>" if notes else "")
    )


def _sources(made: Plan) -> str:
    names = ("bfloat16", "float8", "memory", "bandwidth", "interconnect", "domain", "power")
    used: set[str] = set()
    rows = []
    for r in made.rows:
        cells = ""
        for name in names:
            fact = r.chip.fact(name)
            used.add(fact.source)
            known = fact.source in sources()
            link = f'<a href="#s-{fact.source}">{fact.source}</a>' if known else escape(fact.source)
            mark = f" {link} {escape(fact.date)}" if fact.source else ""
            note = f'<span class="range">{escape(fact.note)}</span>' if fact.note else ""
            cells += f"<td>{escape(fact.text)}{mark}{note}</td>"
        price = r.price
        if price:
            used.add(price.source)
            where = f"{price.provider} {price.region}".strip()
            link = (
                f'<a href="#s-{price.source}">{price.source}</a> '
                if price.source in sources()
                else escape(price.source) + " "
            )
            note = f'<span class="range">{escape(price.note)}</span>'
            cells += f"<td>${price.per_hour:g}/h {escape(where)} {link}{escape(price.date)}{note}</td>"
        else:
            cells += "<td>unknown</td>"
        rows.append(f'<tr><th scope="row">{escape(r.chip.title)}</th>{cells}</tr>')
    listed = "".join(
        f'<li id="s-{key}"><b>{key}</b> {escape(row["what"])}: '
        f"<code>{escape(row['address'])}</code>, {escape(row['date'])}</li>"
        for key, row in sources().items()
        if key in used
    )
    heads = [(n, "") for n in ("chip", *names, f"price, {made.ownership}")]
    return (
        '<h2 id="facts">Facts and sources</h2>'
        + page_choice.table("Facts of the chips", heads, rows)
        + f"<ul>{listed}</ul>"
    )
