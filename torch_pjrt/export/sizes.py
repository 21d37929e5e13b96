"""One Program for all sizes, found from Programs at a few: every int in them is a formula of the sizes that vary.

torch.export has shown that the model's own code is the same for all sizes in range (export/dynamic.py). Here the recorded
steps are compared: they must be the same steps at every sample, and each size, stride, static argument and number must be one
short formula of the dims (a constant, a + c m, a sum of two such terms, or a floor division) that is exact at all samples.
What is not is refused, with the step. Rows then see JAX's symbolic sizes, and JAX refuses a row that asks for a number.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.export.one_way import differ, in_one_way, results_in_one_way
from torch_pjrt.export.trace import Input, Read, Traced
from torch_pjrt.program.access import AccessPlan
from torch_pjrt.program.program import Aval, OutSpec, Spec, Template

Expression = Any  # an int, or a size of jax.export.symbolic_shape
_DIVISORS = (2, 4, 8, 16, 32, 3, 5, 6, 7, 14)


class NoFormula(Exception):
    """A value that differs between sizes in no way that is known."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """A float that depends on a size: factor * size ** power."""

    factor: float
    size: Expression
    power: float


@dataclass(frozen=True, slots=True)
class FixedPlan(AccessPlan):
    """An access plan whose sizes are formulas; which starts are operands was decided where they were numbers."""

    moving: tuple[bool, ...] = ()

    @property
    def moves(self) -> tuple[bool, ...]:
        return self.moving


class Formulas:
    """Finds formulas. dims: per dim its values at the samples and JAX's name for it."""

    def __init__(self, dims: Sequence[tuple[tuple[int, ...], Expression]]):
        self.num_samples = len(dims[0][0])
        self.known: dict[tuple[int, ...], Expression] = {}
        self.terms: list[tuple[np.ndarray[Any, Any], Expression]] = []
        for degree in (1, 2, 3):
            for factors in itertools.combinations_with_replacement(dims, degree):
                values = np.prod([np.array(v, object) for v, _ in factors], axis=0)
                self.terms.append((values, math.prod(e for _, e in factors)))
        self.single = self.terms[: len(dims)]
        self.quotients: list[
            tuple[np.ndarray[Any, Any], Expression]
        ] = []  # sizes after strided windows, as they were found

    def of(self, values: tuple[int, ...]) -> Expression:
        """The formula of an int with these values at the samples. Raises NoFormula."""
        if all(v == values[0] for v in values):
            return values[0]
        found = self.known.get(values)
        if found is None:
            found = self.known[values] = self._search(values)
        return found

    def _search(self, values: tuple[int, ...]) -> Expression:
        pairs = itertools.combinations(self.terms, 2)
        for terms in (*((t,) for t in self.terms), self.single, *pairs):
            found = self._linear(values, list(terms))
            if found is not None:
                return found
        return self._multiplied(values) or self._divided(values)

    def _multiplied(self, values: tuple[int, ...]) -> Expression | None:
        """A constant plus a multiple of a product with quotients that are known, as strides after strided windows are."""
        atoms = [*self.single, *self.quotients]
        for degree in (1, 2, 3):
            for factors in itertools.combinations_with_replacement(atoms, degree):
                product = np.prod([v for v, _ in factors], axis=0)
                found = self._linear(values, [(product, math.prod(e for _, e in factors))])
                if found is not None:
                    return found
        return None

    def _linear(self, values: tuple[int, ...], terms: list[Any]) -> Expression | None:
        """a + the sum of c * term with ints a and c, exact at every sample."""
        columns = np.array([[1] * len(values), *(t for t, _ in terms)], dtype=np.float64).T
        solution, _, rank, _ = np.linalg.lstsq(columns, np.array(values, np.float64), rcond=None)
        if rank < columns.shape[1] or not np.all(np.isfinite(solution)):
            return None
        start, *factors = (round(x) for x in solution)
        for i, value in enumerate(values):
            if start + sum(c * int(t[i]) for c, (t, _) in zip(factors, terms, strict=True)) != value:
                return None
        return start + sum(c * e for c, (_, e) in zip(factors, terms, strict=True))

    def _divided(self, values: tuple[int, ...]) -> Expression:
        """(term + a) // d, times or plus a constant: sizes after strided windows."""
        for floor, quotient in self._floors():
            for times, factor in ((1, 1), *self.single):
                found = self._linear(values, [(floor * times, quotient * factor)])
                if found is not None:
                    self.quotients.append((np.array(values, object), found))
                    return found
        raise NoFormula(f"{list(values)}")

    def _floors(self) -> Iterator[tuple[np.ndarray[Any, Any], Expression]]:
        """Quotients that differ between samples; at last those of sizes that are scaled by 3/2 or 3/4."""
        atoms = [*self.single, *self.quotients]
        ratios = [*((1, d) for d in _DIVISORS), (3, 2), (3, 4)]
        for times, divisor in ratios:
            for term, expression in atoms:
                for shift in range(-divisor + 1, divisor):
                    floor = (times * term + shift) // divisor
                    if len(set(floor)) > 1:
                        yield floor, (times * expression + shift) // divisor

    def number(self, values: tuple[Any, ...]) -> Any:
        """A 0-d operand: an int's formula, a float times or divided by one, a seed's offset, or the one value it always has."""
        first = values[0]
        if all(v == first or (v != v and first != first) for v in values):
            return first
        if isinstance(first, tuple):
            return (first[0], self.of(tuple(v[1] for v in values)))
        if isinstance(first, int):
            return self.of(values)
        if isinstance(first, float):
            for (term, expression), power in itertools.product(self.terms, (1.0, -1.0, 0.5, -0.5)):
                factors = [v / float(t) ** power for v, t in zip(values, term, strict=True)]
                if max(factors) - min(factors) <= 1e-12 * abs(factors[0]):
                    return Scaled(factors[0], expression, power)
        raise NoFormula(f"{list(values)}")


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
