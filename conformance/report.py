"""The journal of results, one JSON line per event: the latest of each node, counts per test, dtype and mode, failures."""

from __future__ import annotations

import json
import pathlib
import re
from collections import Counter, defaultdict
from typing import Any

STATES = ("passed", "xfailed", "skipped", "failed", "crashed")
COUNTED = ("samples", "whole")
BAD = ("failed", "crashed", "started")
_NODE = re.compile(r"test_(?P<test>\w+)\[(?P<op>.+)-(?P<dtype>\w+)-(?P<mode>\w+)\]$")


def note(journal: pathlib.Path, **line: Any) -> None:
    """Append one line."""
    with journal.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def lines_of(journal: pathlib.Path) -> list[dict[str, Any]]:
    """All lines; a last one that was cut short by a crash is left out."""
    text = journal.read_text(encoding="utf-8") if journal.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def latest(journal: pathlib.Path) -> dict[str, dict[str, Any]]:
    """The last line of each node."""
    return {line["node"]: line for line in lines_of(journal)}


def forget_failures(journal: pathlib.Path) -> None:
    """Drop the nodes that failed, crashed or never ended, so that they run again."""
    kept = [line for line in latest(journal).values() if line["state"] not in BAD]
    if journal.exists():
        journal.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


def parts(name: str) -> dict[str, str]:
    """test, op, dtype and mode of a node id."""
    match = _NODE.search(name)
    return match.groupdict() if match else {"test": name.split("::")[-1], "op": "", "dtype": "", "mode": ""}


def counts(lines: dict[str, dict[str, Any]]) -> dict[tuple[str, str, str], Counter[str]]:
    """(test, dtype, mode) -> how many nodes ended how, how many samples they ran, and how many ran all there are."""
    found: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for name, line in lines.items():
        at = parts(name)
        counter = found[at["test"], at["dtype"], at["mode"]]
        counter[line["state"]] += 1
        counter["samples"] += line.get("samples", 0)
        counter["whole"] += bool(line.get("whole"))
    return dict(found)


def table(lines: dict[str, dict[str, Any]]) -> str:
    """The counts as text."""
    head = ("test", "dtype", "mode", *STATES, *COUNTED)
    rows = [head]
    for key, counter in sorted(counts(lines).items()):
        rows.append((*key, *(str(counter[s]) for s in (*STATES, *COUNTED))))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)


def failures(lines: dict[str, dict[str, Any]]) -> list[str]:
    """One line per node that failed or crashed, or was never finished."""
    bad = {n: line for n, line in lines.items() if line["state"] in BAD}
    return [f"{line['state'].upper()} {name}: {_first(line.get('text', ''))}" for name, line in sorted(bad.items())]


def _first(text: str) -> str:
    return " ".join(text.split())[:300]


def as_json(lines: dict[str, dict[str, Any]]) -> str:
    """Counts and nodes, for other programs."""
    table_of = [
        {"test": t, "dtype": d, "mode": m, **{s: counter[s] for s in (*STATES, *COUNTED)}}
        for (t, d, m), counter in sorted(counts(lines).items())
    ]
    return json.dumps({"counts": table_of, "nodes": list(lines.values())}, indent=1)
