"""Asks the real compilers whether the model compiles for each chip: "compiles", "lint-clean", or why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from torch_pjrt.pjrt import targets
from torch_pjrt.plan.compare import Plan
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.families import Subject
from torch_pjrt.plan.workload import Workload

_NOTE = "compiled: one block of the stack, since blocks are equal, with one chip's batch and no sharding of weights"


def check(made: Plan, subject_of: Callable[[Workload], Subject], workload: Workload) -> None:
    """Fill in `compiles` of every row whose target has a compiler here: of one block of the stack, with one chip's batch."""
    wanted: dict[int, dict[str, list[Estimate]]] = {}
    for row in made.rows:
        name = row.chip.target
        if not name or name not in targets.targets():
            row.compiles = "not checked: no compiler is known for it"
            continue
        missing = targets.available(name)
        if missing:
            row.compiles = f"not checked: {missing}"
            continue
        share = max(1, workload.together // (row.layout.chips if row.layout else workload.together))
        wanted.setdefault(share, {}).setdefault(name, []).append(row)
    for share, rows in wanted.items():
        _compile(made, subject_of(replace(workload, batch=share, accumulate=1)), workload, rows)


def _compile(made: Plan, subject: Subject, workload: Workload, rows: dict[str, list[Estimate]]) -> None:
    from torch_pjrt import aot

    mode = "train" if workload.kind == "train" else "infer"
    small = subject.shorter() if subject.shorter is not None else subject
    if small is not subject and _NOTE not in made.notes:
        made.notes.append(_NOTE)
    if isinstance(small.model, torch.nn.Module):
        small.model.train(mode == "train")
    reports = aot.compile_all(
        small.model, small.args, small.kwargs, targets_=list(rows), mode=mode, optimizer=small.optimizer
    )
    for report in reports:
        text = report.verdict
        if report.compile_seconds:
            text += f" in {report.compile_seconds:.1f} s"
        if report.error:
            text += f": {report.error.splitlines()[0][:120]}"
        elif report.findings:
            text += ": " + ", ".join(sorted({f.rule for f in report.findings}))
        for row in rows[report.target]:
            row.compiles = text
