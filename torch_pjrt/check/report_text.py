"""Findings on a terminal: by file, then a summary by rule."""

from __future__ import annotations

__all__ = ["show"]

import collections
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .findings import Finding, Severity

COLOURS = {Severity.BREAKS: "red", Severity.CHANGES: "magenta", Severity.SLOWS: "yellow", Severity.STYLE: "cyan"}
_SUMMARY_FROM = 6


def show(findings: Sequence[Finding], num_files: int, console: Console | None = None) -> None:
    """Print them, the summary last, where it is seen."""
    console = console or Console(highlight=False, soft_wrap=True)
    explained: set[str] = set()
    path = None
    for one in findings:
        if one.path != path:
            path = one.path
            console.print(f"\n[bold]{escape(path)}[/]")
        _show_one(console, one, explain=one.rule.id not in explained)
        explained.add(one.rule.id)
    if len(findings) >= _SUMMARY_FROM:
        console.print()
        console.print(_summary(findings))
    console.print()
    console.print(verdict(findings, num_files))


def verdict(findings: Sequence[Finding], num_files: int) -> str:
    """The result in a line."""
    checked = f"{num_files} file{'' if num_files == 1 else 's'} checked"
    if not findings:
        return f"[green]no findings[/], {checked}"
    counts = collections.Counter(one.severity for one in findings)
    parts = [f"[{COLOURS[one]}]{counts[one]} {one}[/]" for one in Severity if counts[one]]
    return f"{len(findings)} finding{'' if len(findings) == 1 else 's'} ({', '.join(parts)}), {checked}"


def _show_one(console: Console, one: Finding, *, explain: bool) -> None:
    place = f"cell {one.cell}:{one.line}" if one.cell else str(one.line)
    times = f" [dim]{one.times} times[/]" if one.times else ""
    guarded = " [dim](only where there is CUDA)[/]" if one.guarded else ""
    colour = COLOURS[one.severity]
    console.print(f"  {place:>5}  [{colour}]{one.rule.id} {one.severity}[/]  {escape(one.what)}{times}{guarded}")
    if explain:
        console.print(f"         {escape(one.rule.consequence)}")
        console.print(f"         [dim]fix:[/] {escape(one.rule.fix)} [dim](--explain {one.rule.id})[/]")


def _summary(findings: Sequence[Finding]) -> Table:
    table = Table("rule", "name", "severity", "findings", box=None, pad_edge=False, header_style="bold")
    table.columns[3].justify = "right"
    counts = collections.Counter((one.severity.rank, one.rule.id) for one in findings)
    rules = {one.rule.id: one.rule for one in findings}
    for (rank, id_), times in sorted(counts.items()):
        severity = list(Severity)[rank]
        table.add_row(id_, rules[id_].name, f"[{COLOURS[severity]}]{severity}[/]", str(times))
    return table
