"""Plans known models for every chip and writes the results into docs/plan.md. Run from the repository's root:

python docs/data/plan_models.py
"""

from __future__ import annotations

import pathlib
import resource
import sys
import time

from torch_pjrt.plan import chips, compare, families, work
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.compare import Plan
from torch_pjrt.plan.report_data import money, seconds, short
from torch_pjrt.plan.workload import Workload

PAGE = pathlib.Path(__file__).resolve().parents[1] / "plan.md"
BEGIN, END = "<!-- models: written by docs/data/plan_models.py -->", "<!-- end of models -->"
CASES = (
    ("gpt2", Workload("train", 64, 1024, recompute="auto")),
    ("gpt2", Workload("decode", 64, 1024)),
    ("llama3-8b", Workload("train", 64, 8192, recompute="auto")),
    ("llama3-8b", Workload("prefill", 8, 2048)),
    ("llama3-8b", Workload("decode", 64, 4096)),
    ("llama3-70b", Workload("train", 256, 8192, recompute="auto")),
    ("llama3-70b", Workload("prefill", 8, 2048)),
    ("llama3-70b", Workload("decode", 64, 4096)),
    ("mixtral-8x7b", Workload("train", 256, 4096, recompute="auto")),
    ("mixtral-8x7b", Workload("decode", 64, 4096)),
    ("resnet50", Workload("train", 256, 1, recompute="auto")),
    ("resnet50", Workload("batch-infer", 256, 1)),
    ("unet", Workload("train", 64, 1, recompute="auto")),
    ("unet", Workload("batch-infer", 16, 1)),
    ("whisper-large", Workload("train", 32, 448, recompute="auto")),
    ("whisper-large", Workload("prefill", 32, 64)),
    ("whisper-large", Workload("decode", 32, 448)),
)
HEADS = (
    "model | workload | parameters | recorded in | each chip in | fits | cheapest | $ for 1M | fastest | a step there"
)


def line(name: str, load: Workload) -> str:
    """One row: what was planned, how long planning took, and the answer."""
    begin = time.perf_counter()
    counted = work.of(families.subject(name, load), load)
    recorded = time.perf_counter() - begin
    begin = time.perf_counter()
    kinds = list(chips.chips().values())
    made = compare.plan(counted, kinds, chips.prices(), Assumptions())
    each = (time.perf_counter() - begin) / len(kinds)
    size = f"batch {load.batch}" + (f" x {load.sequence:,}" if counted.unit == "token" else "")
    fits = sum(r.step is not None for r in made.rows)
    cells = [name, f"{load.kind}, {size}", short(counted.parameters), seconds(recorded), seconds(each)]
    return " | ".join(["", *cells, f"{fits} of {len(kinds)}", *_answer(made), ""]).strip()


def _answer(made: Plan) -> list[str]:
    rows = {r.chip.name: r for r in made.rows}
    cheap, quick = rows.get(made.cheapest), rows.get(made.fastest)
    cells = []
    for row, near in ((cheap, made.near_cheapest), (quick, made.near_fastest)):
        number = f"{row.layout.chips} x {row.chip.name}" if row and row.layout else "none"
        cells.append(number + (f" (or {len(near)} within the error bar)" if near else ""))
    cost = f"{money(cheap.cost.low)} to {money(cheap.cost.high)}" if cheap and cheap.cost else "unknown"
    step = f"{seconds(quick.step.low)} to {seconds(quick.step.high)}" if quick and quick.step else ""
    return [cells[0], cost, cells[1], step]


def main() -> None:
    """Write the table."""
    rows = []
    for name, load in CASES:
        rows.append(line(name, load))
        print(rows[-1], flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    table = [f"| {HEADS} |", "|" + "---|" * (HEADS.count("|") + 1), *rows]
    note = (
        f"\nThe process that made all of them held at most {short(float(peak), 'B')} of memory: no weights are made. Times are "
        "of one shared machine with two cores, that did other work as well; *each chip* is the time to try every layout of one "
        "chip, up to 1,024 of them.\n"
    )
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(table) + f"\n{note}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
