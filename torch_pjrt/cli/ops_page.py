"""Writes the table of docs/ops.md: how every ATen operator is served. `./dev docs` runs it; a test finds drift.

The text above the marker in that page is written by hand and kept.
"""

from __future__ import annotations

__all__ = ["MARKER", "ops_page", "table_version"]

from collections import Counter, defaultdict

MARKER = "<!-- the rest is written by ./dev docs -->"


def table_version(page: str) -> str:
    """The torch release for which a page's table was written."""
    return page.partition(MARKER)[2].partition("`torch ")[2].partition("`")[0]


def ops_page(page: str) -> str:
    """The page with its table written anew."""
    head = page.partition(MARKER)[0].rstrip()
    return f"{head}\n\n{MARKER}\n\n{_table()}"


def _table() -> str:
    import torch

    from torch_pjrt.dispatch.resolution import Served, overloads, served
    from torch_pjrt.tensor.runtime import runtime

    runtime()
    by_operator: dict[str, dict[Served, list[str]]] = defaultdict(lambda: defaultdict(list))
    totals: Counter[Served] = Counter()
    for op in overloads():
        how = served(op)
        totals[how] += 1
        by_operator[op._schema.name.removeprefix("aten::")][how].append(op._overloadname)
    version = torch.__version__.partition("+")[0]
    lines = [
        f"## Every ATen operator of `torch {version}`",
        "",
        f"{sum(totals.values())} overloads: " + ", ".join(f"{totals[how]} {how.value}" for how in Served) + ".",
        "Backward formulas are operators like any other. `default` is the overload without a name.",
        "",
        "| operator | " + " | ".join(how.value for how in Served) + " |",
        "|---" * (len(Served) + 1) + "|",
    ]
    for operator, ways in sorted(by_operator.items()):
        cells = [" ".join(sorted(ways.get(how, []))) for how in Served]
        lines.append(f"| `{operator}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
