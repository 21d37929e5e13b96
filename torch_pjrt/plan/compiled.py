"""Asks the real compilers: whether the program of one chip compiles, and what they say of its work, time and memory.

Of a layout's replicas one is compiled, with its batch; a tensor-parallel one for all of its chips together, sharded by
aot/mesh.py, and the figures are of one of them. Pipelines, contexts and expert axes are not compiled: there it is the whole
model on one chip.

A stack of equal blocks is not compiled whole: the program with one block and that with two are, and a block is their
difference. What the compiler says then changes the estimate: its own time replaces the roofline's where it gives one for just
what a chip of the layout runs; else its operations and bytes correct the roofline's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_pjrt.errors import PjrtError
from torch_pjrt.pjrt import targets
from torch_pjrt.plan import work as counting
from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.estimate import INTERCONNECT, Compiled, Estimate, Machine
from torch_pjrt.plan.families import Subject
from torch_pjrt.plan.layout import Layout
from torch_pjrt.plan.ranges import Range
from torch_pjrt.plan.work import Work
from torch_pjrt.plan.workload import Workload

ESTIMATE, COUNTS = "compiler estimate", "roofline of the compiler's counts"
Maker = Callable[[Workload], Subject]


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a program: operations, bytes of traffic, seconds (None where none are given), and memory without its arguments."""

    flops: float | None = None
    bytes: float | None = None
    seconds: float | None = None
    temporaries: float | None = None
    arguments: float | None = None

    def with_blocks(self, longer: Figures, blocks: int) -> Figures:
        """This program has one block and the longer one two: the same with so many."""

        def line(a: float | None, b: float | None) -> float | None:
            return None if a is None or b is None or b < a else a + (blocks - 1) * (b - a)

        pairs = ((getattr(self, n), getattr(longer, n)) for n in self.__slots__)
        return Figures(*(line(a, b) for a, b in pairs))


def refine(
    rows: Iterable[Estimate],
    make: Maker,
    workload: Workload,
    work: Work,
    assumed: Assumptions,
    progress: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Fill in `compiles` and `compiled` of every row whose target has a compiler here, and its time. Gives notes."""
    wanted: dict[tuple[int, int], dict[str, list[Estimate]]] = {}
    for row in rows:
        missing = _missing(row.chip.target)
        if missing:
            row.compiles = f"not checked: {missing}"
            continue
        key = (_share(row.layout, workload), _sharded(row))
        wanted.setdefault(key, {}).setdefault(row.chip.target, []).append(row)
    notes = []
    for (share, tensor), chips in wanted.items():
        progress(f"compiling for {', '.join(chips)}" + (f", sharded over {tensor}" if tensor > 1 else ""))
        subject = make(replace(workload, batch=share, accumulate=1))
        found = _compile(subject, workload, list(chips), tensor)
        ours = _ours(subject, workload) if any(f.flops or f.bytes for _, f in found.values()) else None
        for name, (said, figures) in found.items():
            for row in chips[name]:
                row.compiled = replace(said)
                row.compiles = said.verdict + (f": {said.detail}" if said.detail else "")
                _use(row, figures, ours, work, assumed)
        if subject.shorter is not None:
            held = f"its part of the weights, sharded over {tensor} chips" if tensor > 1 else "all weights"
            notes.append(
                f"compiled: the program with one block and with two, as one chip has it (its batch, {held}); other blocks "
                "are taken to be like the second"
            )
    return list(dict.fromkeys(notes))


def _missing(target: str) -> str | None:
    if not target or target not in targets.targets():
        return "no compiler is known for it"
    return targets.available(target)


def _share(layout: Layout | None, workload: Workload) -> int:
    """Sequences, images or samples that one chip takes at once."""
    if layout is None:
        return 1
    return max(1, workload.together // (layout.data * layout.context * layout.microbatches))


def _sharded(row: Estimate) -> int:
    """Over how many chips the program is compiled."""
    layout, platform = row.layout, targets.target(row.chip.target).platform
    if layout is None or layout.context > 1 or layout.expert > 1 or layout.pipeline > 1 or platform == "neuron":
        return 1  # the lint reads the program of one chip
    try:
        targets.devices_for(row.chip.target, layout.tensor)
    except PjrtError:  # more than the compiler has a description of
        return 1
    return layout.tensor


def _programs(subject: Subject) -> list[Subject]:
    """One block and two; or all of it, where blocks are not known."""
    return [subject.shorter(1), subject.shorter(2)] if subject.shorter is not None else [subject]


def _compile(
    subject: Subject, workload: Workload, names: list[str], tensor: int = 1
) -> dict[str, tuple[Compiled, Figures]]:
    from torch_pjrt import aot
    from torch_pjrt.aot.mesh import MODEL, Mesh

    mode = "train" if workload.kind == "train" else "infer"
    reports: list[dict[str, Any]] = []
    for program in _programs(subject):
        if isinstance(program.model, torch.nn.Module):
            program.model.train(mode == "train")
        made = aot.compile_all(
            program.model,
            program.args,
            program.kwargs,
            targets_=names,
            mode=mode,
            optimizer=program.optimizer,
            mesh=Mesh({MODEL: tensor}) if tensor > 1 else None,
            loops=False,  # a compiler counts a loop's body once
        )
        reports.append({r.target: r for r in made})
        names = [n for n in names if reports[-1][n].compiled is not None]  # the second is for figures alone
        if not names:
            break
    found = {}
    for name, first in reports[0].items():
        all_of = [r[name] for r in reports if name in r]
        figures = [_figures(r) for r in all_of]
        whole = figures[0].with_blocks(figures[1], subject.layers) if len(figures) > 1 else figures[0]
        if len(figures) == 1 and subject.shorter is not None:
            whole = Figures()
        detail = (
            first.error.splitlines()[0][:120] if first.error else ", ".join(sorted({f.rule for f in first.findings}))
        )
        took = sum(r.compile_seconds for r in all_of)
        said = Compiled(
            first.verdict, detail, whole.flops, whole.bytes, whole.seconds, whole.arguments, whole.temporaries, took
        )
        said.chips, said.collectives = tensor, all_of[-1].collectives
        found[name] = (said, whole)
    return found


def _figures(report: Any) -> Figures:
    memory, cost = report.memory, report.cost
    return Figures(
        cost.compiler_flops,
        cost.compiler_bytes,
        cost.compiler_seconds,
        memory.temporaries if memory else None,
        memory.arguments if memory else None,
    )


def _ours(subject: Subject, workload: Workload) -> Figures:
    """The plan's own counts of the programs that were compiled, taken together in the same way."""
    mine = []
    for program in _programs(subject):
        reading = counting.read(counting.recorded(program, workload), fused_attention=False)
        flops = sum((g.flops + g.vector) * g.count for g in reading.groups)
        mine.append(Figures(flops, sum(g.bytes * g.count for g in reading.groups)))
    return mine[0].with_blocks(mine[1], subject.layers) if len(mine) > 1 else mine[0]


def _use(row: Estimate, figures: Figures, ours: Figures | None, work: Work, assumed: Assumptions) -> None:
    """Let what the compiler said change a row's time."""
    layout = row.layout
    if layout is None or row.step is None or ours is None or not ours.flops or not ours.bytes or row.compiled is None:
        return
    chips = row.compiled.chips  # the plan divides all work by them
    more = figures.flops * chips / ours.flops if figures.flops else 1.0
    moved = figures.bytes * chips / ours.bytes if figures.bytes else 1.0
    row.compiled.flops_ratio, row.compiled.bytes_ratio = more, moved
    machine = Machine(work.with_attention(False), row.chip, assumed, scale=(more, moved))
    timed = machine.step(layout)
    if timed is None or not (figures.flops or figures.bytes):
        return
    row.step, row.parts, row.method = *timed, COUNTS
    whole = layout.tensor == layout.pipeline == layout.context == layout.expert == 1
    if figures.seconds and whole and layout.recompute == "none" and work.workload.accumulate == 1:
        _take(row, figures.seconds, machine, layout, assumed)


def _take(row: Estimate, seconds: float, machine: Machine, layout: Layout, assumed: Assumptions) -> None:
    """The compiler's time for each microbatch, and the layout's communication beside it."""
    ends = []
    for best, pick in ((True, assumed.high), (False, assumed.low)):
        once = machine.kernels(best, "none").optimizer_seconds(layout)
        busy = seconds * layout.microbatches * pick("compiler-time") - once * (layout.microbatches - 1)
        talk = machine.talking(layout, busy, best) or 0.0
        ends.append((busy, talk))
    (quick, little), (slow, much) = ends
    row.step, row.method = Range(quick + little, slow + much), ESTIMATE
    share = Range(quick, slow).mid / max(1e-30, sum(v for k, v in row.parts.items() if k != INTERCONNECT))
    row.parts = {k: v if k == INTERCONNECT else v * share for k, v in row.parts.items()}
