"""`torch-pjrt run SCRIPT ARGS`: an unmodified CUDA script on the pjrt device, and a report of what that took."""

from __future__ import annotations

__all__ = ["run"]

import json
import os
import pathlib
import runpy
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import click
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torch_pjrt.config import settings
from torch_pjrt.counters import counters
from torch_pjrt.integrations import cuda_alias
from torch_pjrt.integrations.cuda_alias.patching import Counts


def run(
    script: str, arguments: tuple[str, ...], *, as_module: bool = False, quiet: bool = False, report: str | None = None
) -> None:
    """Run it as `python` would: sys.argv, sys.path[0] and `__main__` are the script's."""
    if not as_module and not os.path.exists(script):
        raise click.UsageError(f"{script}: no such file")
    sys.argv = [script, *arguments]
    failure: Exception | None = None
    with cuda_alias.active() as counts:
        try:
            if as_module:
                sys.path.insert(0, os.getcwd())
                runpy.run_module(script, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
                runpy.run_path(script, run_name="__main__")
        except Exception as error:
            failure = error
            print_script_traceback(error)
            sys.exit(1)
        finally:
            stats = getattr(torch, settings.device_name).stats()
            if report is not None:
                write_report(pathlib.Path(report), counts, stats, failure)
            if not quiet:
                print_report(counts, stats)


def print_script_traceback(error: Exception) -> None:
    """The traceback as `python SCRIPT` would print it: without the frames of this command and of runpy."""
    trace = error.__traceback__
    while trace and (trace.tb_frame.f_code.co_filename == __file__ or "runpy" in trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)


def write_report(path: pathlib.Path, counts: Counts, stats: Mapping[str, Any], error: Exception | None) -> None:
    """What `torch-pjrt check --run` reads: what was mapped, the counters, why programs were compiled, and the error."""
    table: dict[str, Any] = {
        "mapped": dict(counts),
        "mapped_lines": dict(counts.lines),
        "stats": dict(stats),
        "causes": list(counters.causes),
    }
    if error is not None:
        last = traceback.extract_tb(error.__traceback__)
        theirs = [one for one in last if "site-packages" not in one.filename and "torch_pjrt" not in one.filename]
        line = f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else None
        table["error"] = {"type": type(error).__name__, "message": str(error).split("\n")[0], "line": line}
    path.write_text(json.dumps(table, default=str), encoding="utf-8")


def print_report(counts: Mapping[str, int], stats: Mapping[str, Any]) -> None:
    """Say on stderr what was mapped, what ran on the CPU, and what was compiled."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print()
    console.print(_table("asked of CUDA, done by pjrt", "times", counts, nothing="nothing asked for CUDA"))
    console.print(_table("ran on the CPU instead", "times", stats["fallbacks"], nothing="nothing fell back to the CPU"))
    console.print(_table("device values read on the host, by line", "times", stats["host_reads"], nothing="", limit=8))
    console.print(
        f"{stats['programs_launched']} programs launched, {stats['compiles']} compiled in "
        f"{stats['compile_seconds']:.1f} s, {stats['disk_hits']} taken from the disk cache. "
        f"To see why programs were compiled: torch.{settings.device_name}.explain_recompiles()"
    )


def _table(title: str, unit: str, counts: Mapping[str, int], *, nothing: str, limit: int = 30) -> Table | str:
    if not counts:
        return nothing
    table = Table(title, unit, box=None, pad_edge=False, header_style="bold")
    table.columns[1].justify = "right"
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    for name, times in ordered[:limit]:
        table.add_row(escape(name), str(times))
    if len(ordered) > limit:
        table.add_row(f"... and {len(ordered) - limit} more", "")
    return table
