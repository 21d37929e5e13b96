"""Asks the real compilers whether the model compiles for each chip: "compiles", "lint-clean", or why not."""

from __future__ import annotations

import torch

from torch_pjrt.pjrt import targets
from torch_pjrt.plan.compare import Plan
from torch_pjrt.plan.estimate import Estimate
from torch_pjrt.plan.families import Subject
from torch_pjrt.plan.workload import Workload


def check(made: Plan, subject: Subject, workload: Workload) -> None:
    """Fill in `compiles` of every row whose target has a compiler here. One compile for each target, of one chip's program."""
    from torch_pjrt import aot

    wanted: dict[str, list[Estimate]] = {}
    for row in made.rows:
        name = row.chip.target
        if not name or name not in targets.targets():
            row.compiles = "not checked: no compiler is known for it"
            continue
        missing = targets.available(name)
        if missing:
            row.compiles = f"not checked: {missing}"
        else:
            wanted.setdefault(name, []).append(row)
    if not wanted:
        return
    mode = "train" if workload.kind == "train" else "infer"
    small = subject.shorter() if subject.shorter is not None else subject
    if small is not subject:
        made.notes.append(
            "compiled with one block of the stack, since all blocks are equal; memory is the plan's own estimate"
        )
    if isinstance(small.model, torch.nn.Module):
        small.model.train(mode == "train")
    reports = aot.compile_all(
        small.model, small.args, small.kwargs, targets_=list(wanted), mode=mode, optimizer=small.optimizer
    )
    for report in reports:
        text = report.verdict
        if report.compile_seconds:
            text += f" in {report.compile_seconds:.1f} s"
        if report.error:
            text += f": {report.error.splitlines()[0][:120]}"
        elif report.findings:
            text += ": " + ", ".join(sorted({f.rule for f in report.findings}))
        for row in wanted[report.target]:
            row.compiles = text
