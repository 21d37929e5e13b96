"""One Program for all sizes, found from Programs at a few: every int in them is a formula of the sizes that vary.

torch.export has shown that the model's own code is the same for all sizes in range (export/dynamic.py). Here the recorded
steps are compared: they must be the same steps at every sample, and each size, stride, static argument and number must be one
short formula of the dims (export/formulas.py) that is exact at all samples. What is not is refused, with the step. Rows then
see JAX's symbolic sizes, and JAX refuses a row that asks for a number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.export.formulas import Expression, Formulas, NoFormula
from torch_pjrt.export.one_way import differ, in_one_way, results_in_one_way
from torch_pjrt.export.trace import Input, Read, Traced
from torch_pjrt.program.access import AccessPlan
from torch_pjrt.program.program import Aval, OutSpec, Spec, Template


@dataclass(frozen=True, slots=True)
class FixedPlan(AccessPlan):
    """An access plan whose sizes are formulas; which starts are operands was decided where they were numbers."""

    moving: tuple[bool, ...] = ()

    @property
    def moves(self) -> tuple[bool, ...]:
        return self.moving


def unite(samples: Sequence[Traced], formulas: Formulas) -> tuple[Traced, list[Read]]:
    """The Program for all sizes, and how its results are read. Raises InvalidOperandError where the samples differ in more
    than sizes."""
    samples = in_one_way(samples)
    first = samples[0]
    for other in samples[1:]:
        _same_steps(first, other)
    union = _Union(formulas)
    steps, numbers = [], []
    for s, (template, operands) in enumerate(first.program.steps):
        try:
            steps.append((union.template([t.program.steps[s][0] for t in samples]), operands))
            numbers.append(tuple(formulas.number(v) for v in zip(*(t.numbers[s] for t in samples), strict=True)))
        except (NoFormula, ValueError, TypeError) as error:
            raise _unequal(first, s, f"{template.row.title} has sizes without a formula: {error}") from error
    try:
        specs = tuple(union.spec(list(each)) for each in zip(*(t.program.in_specs for t in samples), strict=True))
        results = [_result(union, [t.results[k] for t in samples]) for k in range(len(first.results))]
        reads = [union.read(each) for each in results_in_one_way(samples)]
        inputs = [_input(union, [t.inputs[k] for t in samples]) for k in range(len(first.inputs))]
    except NoFormula as error:
        raise InvalidOperandError(f"a size of an input or result has no formula: {error}", todo=_TODO) from error
    program = dataclasses.replace(first.program, steps=tuple(steps), in_specs=specs, key=("sizes", id(first)))
    return dataclasses.replace(first, program=program, numbers=numbers, results=results, inputs=inputs), reads


_TODO = "Export this model without dynamic_shapes, once per size."


def _unequal(traced: Traced, step: int, what: str) -> InvalidOperandError:
    where = traced.where(traced.scope(step)) if step < len(traced.program.steps) else None
    return InvalidOperandError(f"the recorded program depends on the sizes: {what}", where=where, todo=_TODO)


def _same_steps(one: Traced, two: Traced) -> None:
    for s, ((a, x), (b, y)) in enumerate(zip(one.program.steps, two.program.steps, strict=False)):
        if a.row is not b.row or x != y or a.number_kinds != b.number_kinds or len(a.outs) != len(b.outs):
            raise _unequal(one, s, f"step {s} is {a.row.title} at one size and {b.row.title} at another")
    facts = [
        (len(t.program.steps), t.program.outputs, t.writes, t.out_tree, [i.name for i in t.inputs]) for t in (one, two)
    ]
    if facts[0] != facts[1]:
        raise _unequal(one, len(one.program.steps), "it has other steps, inputs or outputs at another size")


class _Union:
    """Puts formulas in the place of numbers in what a Program is made of."""

    def __init__(self, formulas: Formulas):
        self.of = formulas.of
        self.number = formulas.number

    def ints(self, values: Sequence[tuple[int, ...]]) -> tuple[Expression, ...]:
        """Tuples of one length, position by position."""
        return tuple(self.of(each) for each in zip(*values, strict=True))

    def spec(self, specs: list[Spec]) -> Spec:
        return Spec(self.ints([s.shape for s in specs]), specs[0].dtype, -1)

    def plan(self, plans: list[AccessPlan | None]) -> AccessPlan | None:
        first = plans[0]
        if differ(plans):
            raise NoFormula("an operand is read in another order at another size")
        if first is None:
            return None
        found = [p for p in plans if p is not None]
        return FixedPlan(
            first.dtype,
            self.of(tuple(p.length for p in found)),
            self.ints([p.size for p in found]),
            self.ints([p.grid for p in found]),
            self.ints([p.block for p in found]),
            first.perm,
            first.kept,
            None if first.strides is None else self.ints([p.strides or () for p in found]),
            first.moves,
        )

    def aval(self, avals: list[Aval]) -> Aval:
        return Aval(
            self.spec([a.spec for a in avals]),
            self.plan([a.plan for a in avals]),
            self.ints([a.size for a in avals]),
            self.ints([a.stride for a in avals]),
            avals[0].dtype,
        )

    def out(self, outs: list[OutSpec]) -> OutSpec:
        first = outs[0]
        if any(o.perm != first.perm or o.dtype != first.dtype for o in outs):
            raise NoFormula("a result lies in another order at another size")
        made = OutSpec.__new__(OutSpec)  # its __init__ compares sizes
        facts = (
            self.ints([o.size for o in outs]),
            self.ints([o.stride for o in outs]),
            self.spec([o.spec for o in outs]),
        )
        for name, value in zip(("size", "stride", "spec"), facts, strict=True):
            object.__setattr__(made, name, value)
        for name in ("dtype", "perm", "contiguous"):
            object.__setattr__(made, name, getattr(first, name))
        return made

    def read(self, reads: list[Read]) -> Read:
        return reads[0][0], self.plan([r[1] for r in reads]), self.ints([r[2] for r in reads])

    def static(self, values: list[Any]) -> Any:
        """A static argument, or a binding: ints inside become formulas, all else must be equal."""
        first = values[0]
        if isinstance(first, tuple):
            if len({len(v) for v in values}) > 1:
                raise NoFormula(f"an argument is {first} at one size")
            return tuple(self.static(list(each)) for each in zip(*values, strict=True))
        if type(first) is int:
            return self.of(tuple(values))
        if type(first) is float:
            return self.number(tuple(values))
        if any(v != first for v in values):
            raise NoFormula(f"an argument is {first!r} at one size and {values[-1]!r} at another")
        return first

    def template(self, templates: list[Template]) -> Template:
        first = templates[0]
        if all(t is first for t in templates):
            return first
        return dataclasses.replace(
            first,
            bindings=self.static([t.bindings for t in templates]),
            avals=tuple(self.aval(list(each)) for each in zip(*(t.avals for t in templates), strict=True)),
            outs=tuple(self.out(list(each)) for each in zip(*(t.outs for t in templates), strict=True)),
            _text=None,
            draws=self.of(tuple(t.draws for t in templates)),
        )


def _result(union: _Union, results: list[tuple[int, Any]]) -> tuple[int, Any]:
    position, (_, _, _, dtype) = results[0]
    sizes, strides = (union.ints([place[i] for _, place in results]) for i in (0, 1))
    return position, (sizes, strides, union.of(tuple(place[2] for _, place in results)), dtype)


def _input(union: _Union, inputs: list[Input]) -> Input:
    return dataclasses.replace(inputs[0], size=union.ints([i.size for i in inputs]))
