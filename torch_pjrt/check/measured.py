"""From the report of `torch-pjrt run --report` to findings: PJ901 to PJ907, each with the line of the user's program.

Lines arrive as `... at file.py:12 in train`. Starts no process and reads no device: the command does that.
"""

from __future__ import annotations

__all__ = ["findings_of_run", "no_report"]

import collections
import dataclasses
import linecache
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .findings import Finding, Severity, near
from .rules import RULES

_PLACE = re.compile(r"(?:^(?!.* at )| at )(?P<path>(?:[A-Za-z]:)?[^:\n]+\.(?:py|ipynb)):(?P<line>\d+)(?: in [^\s:]+)?")
# What happens less often than this belongs to starting or ending, not to each step.
_FEW = 3


def findings_of_run(report: Mapping[str, Any], script: str) -> list[Finding]:
    """The findings of a run. `script` stands in where no line is known."""
    stats = report["stats"]
    fallbacks = stats.get("fallback_lines", {})
    found = [_at_line("PJ901", text, times, script) for text, times in fallbacks.items()]
    found += _recompiles(report.get("causes", ()), script)
    found += _host_reads(stats.get("host_reads", {}), fallbacks, script)
    found += [_at_line("PJ906", text, times, script) for text, times in report.get("mapped_lines", {}).items()]
    found += [_at_line("PJ907", text, None, script) for text in stats.get("wide_dtypes", {})]
    error = report.get("error")
    if error:
        id_ = "PJ904" if "UnsupportedDtype" in error["type"] else "PJ905"
        found.append(_finding(id_, f"{error['type']}: {error['message']}", error.get("line") or script))
    return found


def no_report(script: str, code: int) -> Finding:
    """The finding of a program whose process ended before it could say anything."""
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return _finding("PJ905", f"the process {ended} and left no report", script)


def _at_line(id_: str, text: str, times: int | None, script: str) -> Finding:
    """Of `what at file.py:12 in train`."""
    match = _PLACE.search(text)
    return _finding(
        id_, text[: match.start()] if match else text, match[0].removeprefix(" at ") if match else script, times
    )


def _recompiles(causes: Any, script: str) -> Iterator[Finding]:
    """A line counts that compiled again for something that it had compiled before."""
    counts: collections.Counter[str] = collections.Counter()
    last: dict[str, str] = {}
    for cause in causes:
        if not cause.startswith("first time"):
            match = _PLACE.search(cause)
            place = match[0].removeprefix(" at ") if match else script
            counts[place] += 1
            last[place] = " ".join(_PLACE.sub("", cause).split())
    for place, times in counts.items():
        if times >= _FEW:
            yield _finding("PJ902", last[place][:200], place, times)


def _host_reads(reads: Mapping[str, int], fallbacks: Mapping[str, int], script: str) -> Iterator[Finding]:
    """A fallback reads its operands: that line is told of it already. What is read once or twice is harmless."""
    known = {match[0].removeprefix(" at ") for text in fallbacks if (match := _PLACE.search(text))}
    for place, times in reads.items():
        if place not in known:
            finding = _finding("PJ903", "value read", place if _PLACE.search(place) else script, times)
            yield finding if times >= _FEW else _milder(finding)


def _milder(finding: Finding) -> Finding:
    return dataclasses.replace(finding, severity=Severity.STYLE)


def _finding(id_: str, what: str, place: str, times: int | None = None) -> Finding:
    match = _PLACE.search(place)
    path, line = (match["path"], int(match["line"])) if match else (place, 1)
    path = near(path)
    linecache.checkcache(path)
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
