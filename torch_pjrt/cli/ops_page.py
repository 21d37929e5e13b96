"""Writes the generated parts of docs/ops.md: what is proven, and how every ATen operator is served. `./dev docs` runs it.

What is proven comes from docs/data/conformance.json, which `./dev conformance --only-report --docs` writes from its runs; how
operators are served is read off the registry. The text around the markers is written by hand and kept.
"""

from __future__ import annotations

__all__ = ["MARKER", "ops_page", "table_version"]

import json
import pathlib
from collections import Counter, defaultdict
from typing import Any

MARKER = "<!-- the rest is written by ./dev docs -->"
SUMMARY = "<!-- written by ./dev docs -->", "<!-- to here -->"
DATA = pathlib.Path(__file__).resolve().parents[2] / "docs" / "data" / "conformance.json"
MODES = ("strict", "fused", "compile")
OUTCOMES = ("passed", "known", "failed", "not run")
TITLES = {
    "forward": "results", "backward": "gradients", "views": "strided, offset and transposed operands",
    "inplace": "in place", "out": "`out=`", "errors": "refuses what torch refuses", "module": "`torch.nn` modules",
    "optimizer": "optimizers", "random": "random operators",
}  # fmt: skip


def table_version(page: str) -> str:
    """The torch release for which a page's tables were written."""
    return page.partition(MARKER)[2].partition("`torch ")[2].partition("`")[0]


def ops_page(page: str) -> str:
    """The page with its generated parts written anew."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    ways = _ways()
    before, rest = page.split(SUMMARY[0])
    head = rest.partition(SUMMARY[1])[2].partition(MARKER)[0]
    summary = f"{SUMMARY[0]}\n\n{_summary(data, ways)}\n\n{SUMMARY[1]}"
    return f"{before}{summary}{head.rstrip()}\n\n{MARKER}\n\n{_entries(data)}\n{_operators(ways)}"


# -- what is proven ----------------------------------------------------------------------------------------------------


def _summary(data: dict[str, Any], ways: dict[str, dict[Any, list[str]]]) -> str:
    totals = Counter({how: sum(map(len, (w.get(how, []) for w in ways.values()))) for how in _kinds()})
    lines = [
        f"With torch {data['torch']}, of {sum(totals.values())} overloads: "
        + ", ".join(f"{totals[how]} {how.value}" for how in _kinds())
        + ".",
        "",
        "A node is one test of one entry of torch's databases in one dtype and mode: over all of its samples for results and "
        "gradients in float32 (fused), over at most 48 of them (12 where each is compiled by Dynamo) elsewhere, and over all "
        "everywhere with `./dev conformance --every-sample`. *Whole* counts the nodes that are known to have run every sample "
        "there is. *Known* are the expected failures of `conformance/known_failures.py`, each with its reason. Nodes without "
        "samples are left out.",
        "",
        "| what is compared with CPU torch | mode | " + " | ".join(OUTCOMES) + " | samples | whole |",
        "|---|---|" + "---|" * (len(OUTCOMES) + 2),
    ]
    for row in data["totals"]:
        cells = [str(row.get(o, 0)) for o in OUTCOMES] + [str(row.get(c, 0)) for c in ("samples", "whole")]
        lines.append(f"| {TITLES[row['test']]} | {row['mode']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _entries(data: dict[str, Any]) -> str:
    """One line for each entry of op_db: dtypes whose results and gradients are proven, the other tests, the modes."""
    lines = [
        f"## What is proven, by entry of torch {data['torch']}'s operator database",
        "",
        "Dtypes in the fused mode, in which all of them are run; `floats` are f32, f64, bf16 and f16, `complex` c64 and c128, "
        "`ints` u8, i8, i16, i32 and i64. The other tests: **v**iews, **i**n place, **o**ut=, **e**rrors. The modes are "
        "those in which results are proven. An empty cell is not proven: not run yet, or named in the last column.",
        "",
        "| entry | results | gradients | others | modes | not proven |",
        "|---|---|---|---|---|---|",
    ]
    for entry, index in data["entries"].items():
        pattern = data["patterns"][index]
        fused = {test: modes.get("fused", "") for test, modes in pattern.items()}
        others = "".join(test[0] for test in ("views", "inplace", "out", "errors") if fused.get(test))
        modes = " ".join(m for m in MODES if m in pattern.get("forward", {}))
        left = "; ".join(f"{why} ({dtypes})" for why, dtypes in data["left"].get(entry, {}).items()).replace("|", "\\|")
        cells = (f"`{entry}`", fused.get("forward", ""), fused.get("backward", ""), others, modes, left)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# -- how operators are served ------------------------------------------------------------------------------------------


def _kinds() -> Any:
    from torch_pjrt.dispatch.resolution import Served

    return Served


def _ways() -> dict[str, dict[Any, list[str]]]:
    """For each operator, its overloads by how they are served."""
    from torch_pjrt.dispatch.resolution import Served, overloads, served
    from torch_pjrt.tensor.runtime import runtime

    runtime()
    by_operator: dict[str, dict[Served, list[str]]] = defaultdict(lambda: defaultdict(list))
    for op in overloads():
        by_operator[op._schema.name.removeprefix("aten::")][served(op)].append(op._overloadname)
    return by_operator


def _operators(ways: dict[str, dict[Any, list[str]]]) -> str:
    import torch

    version = torch.__version__.partition("+")[0]
    kinds = _kinds()
    lines = [
        f"## How every ATen operator of `torch {version}` is served",
        "",
        "Backward formulas are operators like any other. `default` is the overload without a name.",
        "",
        "| operator | " + " | ".join(how.value for how in kinds) + " |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    for operator, by in sorted(ways.items()):
        cells = [" ".join(sorted(by.get(how, []))) for how in kinds]
        lines.append(f"| `{operator}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
