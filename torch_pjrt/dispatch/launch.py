"""Runs a pending Program: finds or builds its launch plan, then runs the plan's segments on the device.

Owns the plan cache (key of a pending Program -> segments with executables). Called by dispatch/fused.py with its lock held,
and by captured graphs, which keep plans of their own so that these go when the graph goes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torch_pjrt.config import settings
from torch_pjrt.counters import counters
from torch_pjrt.dispatch.lines import Line, show
from torch_pjrt.errors import OutOfMemoryError, PjrtError, RuntimeFailedError
from torch_pjrt.pjrt import buffers
from torch_pjrt.pjrt.client import chip
from torch_pjrt.pjrt.compiler import Executable, executable_for
from torch_pjrt.program.cut import groups_of
from torch_pjrt.program.program import Spec, Template
from torch_pjrt.program.segment import Segment, build_segments

Check = tuple[Any, list[Line], list[bool | str]]


@dataclass(slots=True)
class Launch:
    """One segment, ready to run: which numbers it takes and which slots it reads, writes and frees."""

    segment: Segment
    executable: Executable | Future[Executable]
    number_steps: tuple[int, ...]


@dataclass(slots=True)
class Plan:
    """How a pending Program runs."""

    launches: list[Launch]
    num_values: int
    ready: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """How a Program is compiled where the settings are not to decide: what torch.compile was given as options."""

    share_layers: bool | None = None
    precision: str | None = None
    xla: tuple[tuple[str, str | int | float | bool], ...] = ()


class Plans(dict[Any, Plan]):
    """Plans by key, of one owner. `forget` empties them all."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        _owners.add(self)


_owners: weakref.WeakSet[Plans] = weakref.WeakSet()
_eager = Plans()
_BY_SETTINGS = Policy()
_WIDE = frozenset({np.dtype(np.float64), np.dtype(np.complex128)})


def precision() -> str:
    """torch.get_float32_matmul_precision(), part of every key."""
    return torch.get_float32_matmul_precision()


def plan_for(
    key: Any,
    steps: Callable[[], Sequence[tuple[Template, tuple[int, ...]]]],
    in_specs: Sequence[Spec],
    live: Sequence[bool],
    dead_inputs: Sequence[bool],
    lines: Sequence[Line],
    plans: Plans = _eager,
    policy: Policy = _BY_SETTINGS,
    *,
    ahead: bool = False,
) -> Plan:
    """The plan of a pending Program; new ones are cut, and their missing executables start compiling together.

    ahead: it may be run later, or never.
    """
    plan = plans.get(key)
    if plan is not None:
        counters.cache_hits += 1
        return plan
    body = steps()
    _note_wide_dtypes(body, lines)
    share = settings.segments if policy.share_layers is None else policy.share_layers
    groups = groups_of(body, len(in_specs)) if share else [range(len(body))]
    segments = build_segments(body, in_specs, live, dead_inputs, groups)
    mode = policy.precision or precision()
    launches = []
    for segment in segments:
        where = [show(lines[s]) for s in segment.order]
        numbered = tuple(s for s in segment.order if body[s][0].number_kinds)
        launches.append(
            Launch(segment, executable_for(segment.program, mode, where, policy.xla, ahead=ahead), numbered)
        )
    plan = Plan(launches, len(in_specs) + len(live))
    plans[key] = plan
    return plan


def _note_wide_dtypes(body: Sequence[tuple[Template, tuple[int, ...]]], lines: Sequence[Line]) -> None:
    """Count the lines that compute in dtypes which other chips lack: once for each op of a new program."""
    for (template, _), line in zip(body, lines):  # noqa: B905 - one line a step
        for out in template.outs:
            if out.spec.dtype in _WIDE and line is not None:
                counters.wide_dtypes[f"{out.spec.dtype} at {show(line)}"] += 1


def run(
    key: Any,
    plan: Plan,
    arrays: list[Any],
    numbers: Sequence[tuple[Any, ...]],
    lines: Sequence[Line],
    plans: Plans = _eager,
) -> list[Check]:
    """Run every segment; `arrays` (inputs first) is filled with the results. Gives the checks to read later."""
    checks: list[Check] = []
    try:
        for launch in plan.launches:
            executable = launch.executable
            if not isinstance(executable, Executable):
                executable = launch.executable = executable.result()
            flat: list[Any] = []
            for s in launch.number_steps:
                flat += numbers[s]
            words = executable.pack(flat)
            segment = launch.segment
            results = executable.call(words, *[arrays[v] for v in segment.args])
            if executable.checked:
                says = [template.row.checked for template, _ in segment.program.steps]
                checks.append((results[-1], [lines[s] for s in segment.order], says))
            for v, result in zip(segment.results, results):  # noqa: B905 - the check has no slot
                arrays[v] = result
            for v in segment.released:
                arrays[v] = None
            counters.programs_launched += 1
            if results:
                buffers.remember(results[0])
    except PjrtError:
        plans.pop(key, None)
        raise
    except Exception as error:
        plans.pop(key, None)
        raise _failed(error, lines) from error
    return checks


def _failed(error: Exception, lines: Sequence[Line]) -> PjrtError:
    text = str(error)
    where = next((show(line) for line in lines if line is not None), None)
    if "RESOURCE_EXHAUSTED" in text or isinstance(error, MemoryError):
        return OutOfMemoryError(
            f"{chip().kind} has no room for a program of {len(lines)} ops",
            where=where,
            todo="Free tensors, use a smaller batch, or run in torch.bfloat16.",
            detail=text,
        )
    return RuntimeFailedError(
        f"a program of {len(lines)} ops failed on {chip().platform}",
        where=where,
        todo='Run under torch.pjrt.eager_mode("debug") to see which op it is.',
        detail=f"{type(error).__name__}: {text}",
    )


def no_room(what: str, line: Line, error: BaseException) -> OutOfMemoryError:
    """The error for memory that the device could not give outside a program."""
    return OutOfMemoryError(
        f"{chip().kind} has no room for {what}", where=show(line), todo="Free tensors first.", detail=str(error)
    )


def forget() -> None:
    """Drop all plans."""
    for plans in list(_owners):
        plans.clear()
