"""Which inputs of a Program give their buffers to which results.

A buffer is reused where a result is the input's new value: an operator's that writes it in place, or a chain of those. XLA
then computes it where the old value lies. Any other pair of one shape and dtype would make XLA copy one of the two to keep
them apart, which costs a pass over the memory and saves none.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from torch_pjrt.ops.registry import Row
from torch_pjrt.program.program import Spec, Template

Steps = Sequence[tuple[Template, tuple[int, ...]]]


def heirs(steps: Steps, in_specs: Sequence[Spec], wanted: Sequence[int], dead: Sequence[bool]) -> dict[int, int]:
    """Input -> the wanted value that takes its buffer, in the order of the inputs. dead: inputs that nobody reads later."""
    specs, before = list(in_specs), list(range(-1, -1 - len(in_specs), -1))  # an input comes from itself
    for template, operands in steps:
        sources = _replaced(template, operands)
        for out, source in zip(template.outs, sources, strict=True):
            same = source >= 0 and specs[source] is out.spec
            before.append(before[source] if same else 0)
            specs.append(out.spec)
    found: dict[int, int] = {}
    for value in reversed(wanted):  # the last writer has the final word
        origin = -1 - before[value]
        if before[value] < 0 and value >= len(in_specs) and dead[origin]:
            found.setdefault(origin, value)
    return dict(sorted(found.items()))


def _replaced(template: Template, operands: tuple[int, ...]) -> list[int]:
    """Per result: the value that it is the new value of, or -1."""
    count = len(template.outs)
    if template.row.updates:
        places = dict(template.bindings)
        taken = [places[name][1] for name in template.row.updates if places.get(name, ("",))[0] == "in"]
        return [-1] * (count - len(taken)) + [operands[i] for i in taken]
    if count == 1 and operands and _writes_in_place(template.row):
        return [operands[0]]
    return [-1] * count


@functools.cache
def _writes_in_place(row: Row) -> bool:
    """Whether an operator has an in-place form, which writes to its first tensor."""
    namespace, name = row.name.split("::")
    if namespace == "pjrt":
        return True
    return hasattr(getattr(torch.ops, namespace), name.split(".")[0] + "_")
