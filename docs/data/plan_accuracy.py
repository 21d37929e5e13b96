"""Predicts the published results of plan-published.toml and writes docs/plan-accuracy.md. Run from the repository's root:

python docs/data/plan_accuracy.py
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import sys
import tomllib
from typing import Any

from torch_pjrt.plan import chips, compare, estimate, families, layout, work
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.report_data import short
from torch_pjrt.plan.workload import Workload

HERE = pathlib.Path(__file__).resolve().parent
HEAD = """# How near `torch-pjrt plan` comes to published results

Written by `python docs/data/plan_accuracy.py` from `docs/data/plan-published.toml`; do not edit.

Each row is predicted with the default assumptions and the packaged facts of chips, but with flash attention, which all of
these runs have: nothing is fitted to a row, and no row is left out for being far off. Layout and recomputation are those
that the source states; where it states none, the plan chooses. *Ratio* is the middle of the predicted range by the
published figure; *inside* says whether the published figure is within the range. Figures are units (tokens or images) a
second on each chip. The default shares of peak were chosen with some of these sources in sight (their basis is in
`torch_pjrt/plan/assumptions.py`), so the rows of MaxText, gpt-fast and torchtitan's first are a check of the model's form
more than of its constants.

"""


def predicted(row: dict[str, Any], cache: dict[Any, work.Work]) -> estimate.Estimate:
    """The estimate for the published run, on as many chips, whether or not the plan finds that it fits."""
    load = Workload(
        row["kind"],
        row["batch"],
        row["sequence"],
        row.get("dtype", "bfloat16"),
        recompute=row.get("recompute", "none"),
    )
    key = (row["model"], load)
    if key not in cache:
        cache[key] = work.of(families.subject(row["model"], load), load, fused_attention=True, both=False)
    assumed = Assumptions(["memory=1", "fused-attention=1", *row.get("assume", [])])
    chip = chips.chips()[row["chip"]]
    stated = {name: dataclasses.replace(chip.fact(name), value=value) for name, value in row.get("facts", {}).items()}
    chip = dataclasses.replace(chip, facts={**chip.facts, **stated})
    fixed = layout.parse(row["layout"]) if "layout" in row else {}
    found = compare.plan(cache[key], [chip], [], assumed, count=row["chips"], layout=fixed).rows[0]
    if found.layout is None:  # the run did fit: what does not is our count of memory
        assumed = Assumptions(["memory=9", "fused-attention=1", *row.get("assume", [])])
        found = compare.plan(cache[key], [chip], [], assumed, count=row["chips"], layout=fixed).rows[0]
        found.reason = "does not fit by our count"
    return found


def lines(data: dict[str, Any]) -> tuple[list[str], list[float], int]:
    """Rows of the table, the ratios, and how many published figures are inside their range."""
    out, ratios, inside = [], [], 0
    cache: dict[Any, work.Work] = {}
    for row in data["result"]:
        found = predicted(row, cache)
        print(row["name"], row["chip"], flush=True)
        name = f"{row['name']}" + (f" ({row['note']})" if row.get("note") else "")
        where = f"{row['chips']} x {row['chip']}"
        if found.rate is None or found.layout is None:
            out.append(f"| {name} | {where} | | {short(row['published'])} | | {found.reason} | | {row['source']} |")
            continue
        low, mid, high = (v / row["chips"] for v in (found.rate.low, found.rate.mid, found.rate.high))
        ratios.append(mid / row["published"])
        within = low <= row["published"] <= high
        inside += within
        how = found.layout.text + (f" ({found.reason})" if found.reason else "")
        out.append(
            f"| {name} | {where} | {how} | {short(row['published'])} | {short(low)} to {short(high)} | "
            f"**{mid / row['published']:.2f}** | {'yes' if within else 'no'} | {row['source']} |"
        )
    return out, ratios, inside


def main() -> None:
    """Write the page."""
    data = tomllib.loads((HERE / "plan-published.toml").read_text(encoding="utf-8"))
    table, ratios, inside = lines(data)
    off = sorted(ratios, key=lambda r: -abs(math.log(r)))
    spread = math.exp(sum(abs(math.log(r)) for r in ratios) / len(ratios))
    parts = [
        HEAD,
        "| run | chips | layout | published | predicted | ratio | inside | source |\n|---|---|---|---|---|---|---|---|\n",
        "\n".join(table),
        f"\n\n{len(ratios)} of {len(table)} runs are predicted; {inside} published figures are inside their range. "
        f"A prediction is off by a factor of {spread:.2f} on (geometric) average, "
        f"and by {max(off[0], 1 / off[0]):.2f} at most.\n\n",
        (HERE / "plan-accuracy-remarks.md").read_text(encoding="utf-8"),
        "\n## Sources\n\n",
        "\n".join(f"- **{k}**: {s['what']}, <{s['address']}>, {s['date']}" for k, s in data["sources"].items()),
        "\n",
    ]
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "plan-accuracy.md"
    target.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
