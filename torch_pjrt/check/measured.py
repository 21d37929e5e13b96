"""From the report of `torch-pjrt run --report` to findings: PJ901 to PJ906, each with the line of the user's program.

Lines arrive as `file.py:12 in train`. Starts no process and reads no device: the command does that.
"""

from __future__ import annotations

__all__ = ["findings_of_run"]

import collections
import linecache
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .findings import Finding
from .rules import RULES

_LINE = re.compile(r"(?P<path>[^\s:][^\n]*?\.(?:py|ipynb)):(?P<line>\d+)(?: in (?P<function>\S+))?")
# A line that compiles more often than this does so because something differs each time.
_FEW_COMPILES = 3


def findings_of_run(report: Mapping[str, Any], script: str) -> list[Finding]:
    """The findings of a run. `script` stands in where no line is known."""
    found = [*_fallbacks(report, script), *_recompiles(report, script), *_host_reads(report, script)]
    found += [_finding("PJ906", name, script, times) for name, times in sorted(report.get("mapped", {}).items())]
    error = report.get("error")
    if error:
        id_ = "PJ904" if "UnsupportedDtype" in error["type"] else "PJ905"
        found.append(_finding(id_, f"{error['type']}: {error['message']}", error.get("line") or script, None))
    return found


def _fallbacks(report: Mapping[str, Any], script: str) -> Iterator[Finding]:
    for text, times in report["stats"].get("fallback_lines", {}).items():
        op, _, line = text.partition(" at ")
        yield _finding("PJ901", op, line if _LINE.search(line) else script, times)


def _recompiles(report: Mapping[str, Any], script: str) -> Iterator[Finding]:
    counts: collections.Counter[str] = collections.Counter()
    last: dict[str, str] = {}
    for cause in report.get("causes", ()):
        match = _LINE.search(cause)
        key = match[0] if match else script
        counts[key] += 1
        last[key] = cause
    for line, times in counts.items():
        if times > _FEW_COMPILES:
            yield _finding("PJ902", " ".join(last[line].split())[:200], line, times)


def _host_reads(report: Mapping[str, Any], script: str) -> Iterator[Finding]:
    for line, times in report["stats"].get("host_reads", {}).items():
        yield _finding("PJ903", "value read", line if _LINE.search(str(line)) else script, times)


def _finding(id_: str, what: str, place: str, times: int | None) -> Finding:
    match = _LINE.search(place)
    path, line = (match["path"], int(match["line"])) if match else (place, 1)
    if os.path.isabs(path):
        near = os.path.relpath(path)
        path = path if near.startswith("..") else near
    rule = RULES[id_]
    return Finding(
        rule=rule,
        path=path,
        line=line,
        column=1,
        end_line=line,
        end_column=1,
        what=what,
        severity=rule.severity,
        text=linecache.getline(path, line).strip() if match else "",
        times=times,
    )
