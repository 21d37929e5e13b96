"""The doctor's report as a page of text."""

from __future__ import annotations

__all__ = ["show"]

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from torch_pjrt import config

if TYPE_CHECKING:
    from .doctor import PlatformState, Report


def show(report: Report) -> None:
    """Print it, with findings last, where they are seen."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]torch-pjrt {report.versions['torch-pjrt']}[/] on {report.system}")
    console.print(", ".join(f"{name} {version or 'missing'}" for name, version in report.versions.items()))
    console.print()
    console.print(platform_table(report.platforms))
    console.print()
    cache = report.cache
    console.print(f"JAX plugins    {', '.join(report.plugins) or 'none besides those that jaxlib ships'}")
    console.print(f"device slot    {report.device.get('slot', 'unknown')}")
    console.print(f"cache          {cache_line(cache['path'], cache['entries'], cache['bytes'], cache['writable'])}")
    changed = {row.env: report.settings[row.name] for row in config.table() if report.settings[row.name] != row.default}
    for name, value in {**changed, **report.environment}.items():
        console.print(f"               {name}={value}", markup=False)
    console.print()
    for finding in report.findings:
        colour = "red" if finding.level == "error" else "yellow"
        console.print(f"[{colour}]{finding.level}[/]  ", end="")
        console.print(finding.what, markup=False)
        console.print(f"       {finding.todo}", markup=False)
    console.print("[green]the device works[/]" if report.ok else "[red]the device does not work here[/]")


def platform_table(states: list[PlatformState]) -> Table:
    """One row for each platform."""
    table = Table("platform", "chip", "plugin", "devices", box=None, pad_edge=False, header_style="bold")
    for state in states:
        plugin = ", ".join(f"{name} {version}" for name, version in state.packages.items()) or "[dim]not installed[/]"
        kinds = sorted({device["kind"] for device in state.devices})
        devices = f"{len(state.devices)} x {', '.join(kinds)}" if state.devices else "[dim]none[/]"
        table.add_row(state.name, state.chip, plugin, devices)
    return table


def cache_line(path: str | None, entries: int, size: int, writable: bool) -> str:
    """The cache in a line."""
    if path is None:
        return "off"
    return f"{path} ({entries} entries, {size / 1e6:.1f} MB{'' if writable else ', not writable'})"
