"""Findings as one HTML file that needs no network and no script: filter by severity, light and dark, phone and print."""

from __future__ import annotations

__all__ = ["as_html"]

import collections
import itertools
import re
from collections.abc import Sequence
from html import escape

from torch_pjrt._version import __version__

from .findings import Finding, Severity

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent);
  --soft: color-mix(in srgb, currentColor 65%, transparent); --fill: color-mix(in srgb, currentColor 6%, transparent); }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; }
h3 { font: 600 .95rem/1.4 ui-monospace, monospace; margin: 1.6rem 0 .2rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; table-layout: fixed; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .8rem .35rem 0; text-align: left; vertical-align: top; }
th { font-size: .85em; font-weight: 600; }
thead { display: table-header-group; }
tr:target { background: var(--fill); outline: .4rem solid var(--fill); }
code { background: var(--fill); border-radius: .2rem; font: .875em ui-monospace, monospace; padding: 0 .2em;
  overflow-wrap: anywhere; }
td > code.line { background: none; padding: 0; white-space: pre-wrap; }
a { color: inherit; text-underline-offset: .2em; }
.id { font-variant-numeric: tabular-nums; }
.n { font-variant-numeric: tabular-nums; text-align: right; }
.soft { color: var(--soft); font-size: .875em; overflow-wrap: anywhere; }
.s { font-weight: 600; white-space: nowrap; }
.breaks { color: light-dark(#b3261e, #ff8a80); } .silently-changes { color: light-dark(#7b1fa2, #d8a3ff); }
.slows { color: light-dark(#8a5a00, #ffc857); } .style { color: light-dark(#00677d, #7fd4ea); }
fieldset { border: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin: 1.2rem 0;
  padding: .4rem .8rem; }
#rules col:nth-child(1) { width: 12.5rem; } #rules col:nth-child(4) { width: 5.5rem; }
.file col:nth-child(1) { width: 6.5rem; } .file col:nth-child(2) { width: 13rem; } .file col:nth-child(3) { width: 10rem; }
tbody tr, section { display: none; }
SHOWN
@media (max-width: 42rem) {
  body { margin: 1rem auto; }
  table, tbody, td { display: block; } colgroup, thead { display: none; }
  tbody tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  td { border: 0; padding: 0; } .file td { display: inline; } .file td:last-child { display: block; } .n { text-align: left; }
  #rules td.n::after { content: " findings"; } .file td.n::before { content: "line "; }
  SHOWN_AS_BLOCK
}
@media print {
  :root { color-scheme: light; } body { font-size: 11px; margin: 0; max-width: none; padding: 0; }
  fieldset { display: none; } tr, h3 { break-inside: avoid; } h2, h3 { break-after: avoid; } a { text-decoration: none; }
}
"""


def as_html(findings: Sequence[Finding], num_files: int) -> str:
    """The page. Filters work without a script."""
    counts = collections.Counter(one.severity for one in findings)
    boxes = "".join(
        f'<label><input type="checkbox" id="show-{one}" checked> <span class="s {one}">{one}</span> {counts[one]}</label>'
        for one in Severity
    )
    by_file = itertools.groupby(findings, key=lambda one: one.path)
    sections = "".join(_section(path, list(group)) for path, group in by_file)
    places = f"<h2>Places</h2>{sections}" if sections else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>torch-pjrt check</title><style>{_style()}</style></head><body><main>"
        f"<h1>What ties this program to one chip</h1><p>{_number(len(findings), 'finding')} in "
        f"{_number(num_files, 'file')}, by torch-pjrt {__version__}.</p>"
        f"<fieldset><legend>Show</legend>{boxes}</fieldset>{_rules(findings)}{places}</main></body></html>\n"
    )


def _style() -> str:
    """Rows are hidden unless the box of their severity is ticked; a file unless one of its rows is shown."""
    ticked = [f"body:has(#show-{one}:checked)" for one in Severity]
    rows = ", ".join(f"{box} tr.f-{one}" for box, one in zip(ticked, Severity))
    files = ", ".join(f"{box} section.f-{one}" for box, one in zip(ticked, Severity))
    shown = f"{rows} {{ display: table-row; }}\n{files} {{ display: block; }}"
    return _STYLE.replace("SHOWN_AS_BLOCK", f"{rows} {{ display: block; }}").replace("SHOWN", shown)


def _rules(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<p>No findings.</p>"
    counts = collections.Counter(one.rule.id for one in findings)
    rules = {one.rule.id: one.rule for one in findings}
    severities: dict[str, list[Severity]] = {}
    for one in findings:
        severities.setdefault(one.rule.id, []).append(one.severity)
    rows = "".join(
        f'<tr id="{id_}" class="{_classes(severities[id_])}"><td class="id"><b class="s {rules[id_].severity}">{id_}</b>'
        f'<br><span class="soft">{escape(rules[id_].name)}</span></td><td>{_text(rules[id_].consequence)}</td>'
        f'<td>{_text(rules[id_].fix)}</td><td class="n">{counts[id_]}</td></tr>'
        for id_ in sorted(rules, key=lambda id_: (rules[id_].severity.rank, id_))
    )
    head = '<th scope="col">rule<th scope="col">on another chip<th scope="col">fix<th scope="col" class="n">findings'
    columns = "<colgroup><col><col><col><col></colgroup>"
    return f'<h2>Rules</h2><table id="rules">{columns}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _section(path: str, findings: list[Finding]) -> str:
    rows = "".join(
        f'<tr class="f-{one.severity}"><td class="n">{f"cell {one.cell}:" if one.cell else ""}{one.line} </td>'
        f'<td class="id"><a href="#{one.rule.id}">{one.rule.id}</a> <span class="soft">{escape(one.rule.name)}</span> </td>'
        f'<td><span class="s {one.severity}">{one.severity}</span></td>'
        f'<td><code class="line">{escape(one.text or one.what)}</code>{_more(one)}</td></tr>'
        for one in findings
    )
    head = '<th scope="col" class="n">line<th scope="col">rule<th scope="col">severity<th scope="col">code'
    columns = "<colgroup><col><col><col><col></colgroup>"
    table = f'<table class="file">{columns}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<section class="{_classes([one.severity for one in findings])}"><h3>{escape(path)}</h3>{table}</section>'


def _more(one: Finding) -> str:
    """What the line does not say itself: the name behind an alias, what was measured, the branch."""
    parts = [escape(one.what)] if one.text and _bare(one.what) not in _bare(one.text) else []
    parts += [f"{one.times} times"] if one.times else []
    parts += ["only where there is CUDA"] if one.guarded else []
    return f'<br><span class="soft">{"; ".join(parts)}</span>' if parts else ""


def _bare(code: str) -> str:
    """Without what formatting changes: spaces, the kind of quotes."""
    return "".join(code.replace("'", '"').split())


def _classes(severities: Sequence[Severity]) -> str:
    return " ".join(f"f-{one}" for one in Severity if one in severities)


def _text(words: str) -> str:
    """Plain words with `code` in them."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(words))


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
