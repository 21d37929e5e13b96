"""Brings the samples of an export to one way of reading: where they find a view in its payload by different plans.

Which plan a view gets depends on its numbers: every third column is a block of a grid where the width is a multiple of three,
and a gather elsewhere. A gather holds for all, so it stands in where the samples differ. Called by export/sizes.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import prod
from typing import Any

from torch_pjrt.export.trace import Read, Traced, reads_of
from torch_pjrt.ops.dtypes import TO_NUMPY
from torch_pjrt.program.access import AccessPlan, offset_of
from torch_pjrt.program.program import Aval, Spec, Template

Numbers = tuple[Any, ...]
Numbered = tuple[Template, Numbers]


def differ(plans: Sequence[AccessPlan | None]) -> bool:
    """Whether plans are not of one kind, so that no formulas of sizes make one plan of them."""
    kinds = {None if p is None else (p.perm, p.kept, p.moves, p.strides is None, p.dtype) for p in plans}
    return len(kinds) > 1


def in_one_way(samples: Sequence[Traced]) -> list[Traced]:
    """The samples, with gathers for the operands that they read by different plans."""
    steps = [list(t.program.steps) for t in samples]
    numbers = [list(t.numbers) for t in samples]
    for s in range(min(map(len, steps))):
        same = [(own[s][0], given[s]) for own, given in zip(steps, numbers, strict=True)]
        if len({len(template.avals) for template, _ in same}) > 1:
            continue
        for k in range(len(same[0][0].avals)):
            if differ([template.avals[k].plan for template, _ in same]):
                same = [_gathering(each, k) for each in same]
        for i, (template, given) in enumerate(same):
            steps[i][s] = (template, steps[i][s][1])
            numbers[i][s] = given
    return [
        dataclasses.replace(t, program=dataclasses.replace(t.program, steps=tuple(own)), numbers=given)
        for t, own, given in zip(samples, steps, numbers, strict=True)
    ]


def results_in_one_way(samples: Sequence[Traced]) -> list[list[Read]]:
    """Per result, how each sample reads it."""
    found = [list(each) for each in zip(*map(reads_of, samples), strict=True)]
    for k, reads in enumerate(found):
        if differ([plan for _, plan, _ in reads]):
            for i, (traced, (position, _, _)) in enumerate(zip(samples, reads, strict=True)):
                size, stride, offset, dtype = traced.results[k][1]
                payload = traced.program.out_specs()[position]
                reads[i] = (position, _gather(payload, TO_NUMPY[dtype], size, stride), (offset,))
    return found


def _gathering(step: Numbered, k: int) -> Numbered:
    """A step that gathers its operand number k."""
    template, numbers = step
    aval = template.avals[k]
    before = sum(a.plan.num_starts for a in template.avals[:k] if a.plan is not None)
    count = 0 if aval.plan is None else aval.plan.num_starts
    offset = 0 if aval.plan is None else offset_of(aval.plan, numbers[before : before + count])
    twin = Aval(
        aval.spec, _gather(aval.spec, aval.np_dtype, aval.size, aval.stride), aval.size, aval.stride, aval.dtype
    )
    template = dataclasses.replace(
        template,
        avals=(*template.avals[:k], twin, *template.avals[k + 1 :]),
        number_kinds="i" * (1 - count) + template.number_kinds[max(count - 1, 0) :],
        _text=None,
    )
    return template, (*numbers[:before], offset, *numbers[before + count :])


def _gather(payload: Spec, dtype: Any, size: tuple[int, ...], stride: tuple[int, ...]) -> AccessPlan:
    length = prod(payload.shape) * payload.dtype.itemsize // dtype.itemsize
    return AccessPlan(dtype, length, size, strides=stride)
