"""Where to cut a pending Program: repeated runs of steps become segments of their own.

Owns the search for repetition. Works on structural hashes only; results never depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_pjrt.program.program import Template

Steps = Sequence[tuple[Template, tuple[int, ...]]]


def groups_of(steps: Steps, num_inputs: int) -> list[Sequence[int]]:
    """Groups of step numbers in running order; together they are all steps, and no group needs a later one."""
    return [range(len(steps))]
