"""Findings as one HTML file that needs no network: filter by severity, light and dark, readable in print."""

from __future__ import annotations

__all__ = ["as_html"]

import collections
import itertools
from collections.abc import Sequence
from html import escape

from torch_pjrt._version import __version__

from .findings import Finding, Severity

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font: 600 1rem ui-monospace, monospace; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; vertical-align: top; border-bottom: 1px solid var(--line); }
code { font: .875em ui-monospace, monospace; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
details > p { margin: .2rem 0; }
.s { font-weight: 600; white-space: nowrap; }
.breaks { color: light-dark(#b3261e, #ff8a80); } .silently-changes { color: light-dark(#7b1fa2, #d8a3ff); }
.slows { color: light-dark(#8a5a00, #ffc857); } .style { color: light-dark(#00677d, #7fd4ea); }
fieldset { border: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0; }
body:has(#show-breaks:not(:checked)) tr.f-breaks, body:has(#show-silently-changes:not(:checked)) tr.f-silently-changes,
body:has(#show-slows:not(:checked)) tr.f-slows, body:has(#show-style:not(:checked)) tr.f-style { display: none; }
@media print { fieldset { display: none; } }
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
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>torch-pjrt check</title><style>{_STYLE}</style></head><body>"
        f"<h1>What ties this program to one chip</h1><p>{len(findings)} findings in {num_files} files, "
        f"by torch-pjrt {__version__}.</p><fieldset><legend>Show</legend>{boxes}</fieldset>"
        f"{_rules(findings)}{sections}</body></html>\n"
    )


def _rules(findings: Sequence[Finding]) -> str:
    counts = collections.Counter(one.rule.id for one in findings)
    rules = {one.rule.id: one.rule for one in findings}
    rows = "".join(
        f"<tr><td><code>{id_}</code></td><td>{escape(rules[id_].name)}</td><td>{escape(rules[id_].consequence)}</td>"
        f'<td>{escape(rules[id_].fix)}</td><td class="n">{counts[id_]}</td></tr>'
        for id_ in sorted(rules, key=lambda id_: (rules[id_].severity.rank, id_))
    )
    if not rows:
        return "<p>No findings.</p>"
    head = '<tr><th>rule</th><th>name</th><th>on another chip</th><th>fix</th><th class="n">findings</th></tr>'
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _section(path: str, findings: list[Finding]) -> str:
    rows = "".join(
        f'<tr class="f-{one.severity}"><td class="n">{f"cell {one.cell}:" if one.cell else ""}{one.line}</td>'
        f"<td><code>{one.rule.id}</code></td>"
        f'<td><span class="s {one.severity}">{one.severity}</span></td>'
        f"<td><code>{escape(one.text or one.what)}</code>{_more(one)}</td></tr>"
        for one in findings
    )
    head = '<tr><th class="n">line</th><th>rule</th><th>severity</th><th>code</th></tr>'
    return f"<section><h2>{escape(path)}</h2><table><thead>{head}</thead><tbody>{rows}</tbody></table></section>"


def _more(one: Finding) -> str:
    times = f" ({one.times} times)" if one.times else ""
    return (
        f"<details><summary>{escape(one.rule.name)}{times}</summary><p>{escape(one.what)}</p>"
        f"<p>{escape(one.rule.consequence)}</p><p>{escape(one.rule.fix)}</p></details>"
    )
