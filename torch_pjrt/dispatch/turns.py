"""Which pending steps belong to which thread, so that threads side by side do not cut each other's programs.

Threads record into one pending Program. A flush runs the steps of the thread that asks, and what they need; the others
stay pending, so that each thread's programs are the same whatever the others do. Steps of a thread that Python did not
start (autograd's) or that has ended belong to the thread whose pending values they use. Called by dispatch/fused.py.
"""

from __future__ import annotations

import threading
from typing import Any

from torch_pjrt.tensor.storage import FAILED

Turns = list[tuple[int, int]]  # (first step, thread) where the recording thread changed


def of_python(thread: int) -> bool:
    """Whether Python started this thread (autograd's it did not)."""
    return thread in _alive()


def _alive() -> set[int | None]:
    return {t.ident for t in threading.enumerate() if not isinstance(t, threading._DummyThread)}


def mine(steps: list[Any], turns: Turns, thread: int) -> list[bool] | None:
    """Which steps a flush of `thread` runs; None for all of them, as when no other thread has any."""
    alive = _alive()
    if thread not in alive or not any(other in alive and other != thread for _, other in turns):
        return None
    producer: list[int] = []
    owners: list[int | None] = []
    upcoming = iter([*turns[1:], (len(steps), 0)])
    recording, (until, following) = turns[0][1], next(upcoming)
    for i, (_, operands, _, outs, _) in enumerate(steps):
        if i == until:
            recording, (until, following) = following, next(upcoming)
        if recording in alive:
            owners.append(recording)
        else:
            pending = (owners[producer[v.index]] for v in operands if v.index >= 0)
            owners.append(next((owner for owner in pending if owner is not None), None))
        producer += [i] * len(outs)
    chosen = [owner == thread for owner in owners]
    for i in range(len(steps) - 1, -1, -1):
        if chosen[i]:
            for v in steps[i][1]:
                if v.index >= 0:
                    chosen[producer[v.index]] = True
    return chosen


def part(steps: list[Any], turns: Turns, chosen: list[bool], keep: bool) -> tuple[list[Any], Turns]:
    """The steps that are chosen (or are not), in order, and their turns."""
    kept: list[Any] = []
    starts: Turns = []
    position, at = -1, -1
    for i, step in enumerate(steps):
        while position + 1 < len(turns) and turns[position + 1][0] <= i:
            position += 1
        if chosen[i] is keep:
            if position != at:
                starts.append((len(kept), turns[position][1]))
                at = position
            kept.append(step)
    return kept, starts


def renumber(steps: list[Any]) -> int:
    """Number the results of steps from 0 on; gives how many there are."""
    count = 0
    for step in steps:
        for value in step[3]:
            value.index = count
            count += 1
    return count


def without_failed(steps: list[Any], turns: Turns) -> tuple[list[Any], Turns]:
    """Leaves out the steps that need a value which could not be computed; their results have failed as well."""
    healthy = []
    for _, operands, _, outs, _ in steps:
        error = next((v.error for v in operands if v.index == FAILED), None)
        healthy.append(error is None)
        if error is not None:
            for v in outs:
                v.index, v.error = FAILED, error
    return part(steps, turns, healthy, True)
