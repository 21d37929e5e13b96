"""Evaluates a Program with its repeated blocks as loops, by the plan of program/roll.py. Results are those of evaluate().

A calling convention of its own: (words, *inputs that stay alone, *stacks of inputs) -> outputs, of which those that lie in a
stack are given as the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from torch_pjrt.program.evaluate import NUMBER_WORDS, decode_numbers, evaluate_step, named
from torch_pjrt.program.program import Program
from torch_pjrt.program.roll import Loop, Plan, Stack

Array = Any


class Rolled:
    """A Program and its plan as one function of arrays."""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        precision: Any = None,
        scopes: Sequence[str] | None = None,
        narrow: bool = False,
    ):
        self.program, self.plan = program, plan
        self.precision, self.scopes, self.narrow = precision, scopes, narrow
        self.first_out: list[int] = []
        self.words_at: list[int] = []
        value, word = len(program.in_specs), 0
        for template, _ in program.steps:
            self.first_out.append(value)
            self.words_at.append(word)
            value += len(template.outs)
            word += sum(NUMBER_WORDS[k] for k in template.number_kinds)

    @property
    def inputs(self) -> list[tuple[int, ...]]:
        """Per array argument, the Program's inputs in it: one, or those of a stack."""
        return [*((i,) for i in self.plan.single_inputs), *(s.members for s in self.plan.input_stacks)]

    def shape(self, argument: tuple[int, ...], stacked: bool) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of an array argument."""
        spec = self.program.in_specs[argument[0]]
        return ((len(argument), *spec.shape) if stacked else spec.shape), spec.dtype

    def __call__(self, words: Array, *arrays: Array) -> tuple[Array, ...]:
        run = _Run(self, words, arrays)
        for item in self.plan.items:
            if isinstance(item, Loop):
                run.loop(item)
            else:
                run.step(item)
        return run.outputs()

    def body(self, loop: Loop) -> Callable[..., Any]:
        """One round of a loop as a function of its operands and first numbers: what a cost analysis counts per round."""

        def once(words: Array, *slots: Array) -> list[Array]:
            return _Run(self, words, ()).round(loop, dict(enumerate(slots)), None)

        return once


class _Run:
    def __init__(self, rolled: Rolled, words: Array, arrays: Sequence[Array]):
        self.rolled, self.words = rolled, words
        self.steps = rolled.program.steps
        plan = rolled.plan
        count = len(plan.single_inputs)
        self.values: dict[int, Array] = dict(zip(plan.single_inputs, arrays[:count], strict=bool(arrays)))
        self.stacks: dict[Stack, Array] = dict(zip(plan.input_stacks, arrays[count:], strict=bool(arrays)))

    def get(self, value: int) -> Array:
        """A value by its number; out of a stack where it lies in one."""
        if value not in self.values:
            stack = next(s for s in self.rolled.plan.stack_of[value] if s in self.stacks)
            self.values[value] = lax.index_in_dim(self.stacks[stack], stack.members.index(value), 0, False)
        return self.values[value]

    def outputs(self) -> tuple[Array, ...]:
        found: dict[Any, Array] = {}
        for value in self.rolled.program.outputs:
            stack = next(
                (s for s in self.rolled.plan.stack_of.get(value, ()) if s in self.stacks and s.origin == "out"), None
            )
            found.setdefault(
                value if stack is None else stack, self.get(value) if stack is None else self.stacks[stack]
            )
        return tuple(found.values())

    def step(self, number: int) -> None:
        template, operands = self.steps[number]
        results = self._evaluate(number, [self.get(v) for v in operands], None, ())
        first = self.rolled.first_out[number]
        self.values.update((first + k, r) for k, r in enumerate(results[: len(template.outs)]))

    def loop(self, loop: Loop) -> None:
        """Run a loop; leaves its stacks and last results."""
        for stack, _ in loop.read.values():
            if stack.origin == "copy" and stack not in self.stacks:
                self.stacks[stack] = lax.concatenate([lax.expand_dims(self.get(v), (0,)) for v in stack.members], 0)
        bases = [s.base for s in loop.written]
        reads = [(slot, stack, _table(at)) for slot, (stack, at) in loop.read.items()]
        outside = {s: self.stacks[s] for _, s, _ in reads if s not in bases}
        fixed = {slot: self.get(v) for slot, v in loop.fixed.items()}
        places = [_table([s.members.index(v) for v in self._members(loop, s)]) for s in loop.written]
        start = (
            [self.get(loop.slots[slot][0]) for slot in loop.carried],
            [_zeros(self._spec(loop, r)) for r in loop.last],
            [self.stacks[s.base] if s.base is not None else _zeros(s.spec, len(s.members)) for s in loop.written],
        )

        def body(i: Array, state: Any) -> Any:
            carried, _, written = state
            slots = dict(fixed) | dict(zip(loop.carried, carried, strict=True))
            with named("stack@"):
                for slot, stack, table in reads:
                    array = written[bases.index(stack)] if stack in bases else outside[stack]
                    slots[slot] = lax.dynamic_index_in_dim(array, _at(table, i), 0, False)
            results = self.round(loop, slots, i)
            kept = []
            for stack, array, table in zip(loop.written, written, places, strict=True):
                element = slots[stack.slot] if stack.origin == "in" else results[stack.slot]
                with named("stack@"):
                    kept.append(lax.dynamic_update_index_in_dim(array, element, _at(table, i), 0))
            return [results[r] for r in loop.carried.values()], [results[r] for r in loop.last], kept

        carried, last, written = lax.fori_loop(0, loop.rounds, body, start)
        self.stacks.update(zip(loop.written, written, strict=True))
        for slot, array in zip(loop.carried, carried, strict=True):
            self.values[loop.results[loop.carried[slot]][-1]] = array
        for result, array in zip(loop.last, last, strict=True):
            self.values[loop.results[result][-1]] = array

    def round(self, loop: Loop, slots: dict[int, Array], i: Array | None) -> list[Array]:
        """The results of one round; i None: of the first."""
        local: list[Array] = []
        for position, (number, refs) in enumerate(zip(loop.groups[0], loop.refs, strict=True)):
            operands = [local[k] if kind == "local" else slots[k] for kind, k in refs]
            local += self._evaluate(number, operands, i, [g[position] for g in loop.groups])
        return local

    def _evaluate(self, number: int, operands: list[Array], i: Array | None, rounds: Sequence[int]) -> list[Array]:
        template, _ = self.steps[number]
        width = sum(NUMBER_WORDS[k] for k in template.number_kinds)
        at: Any = self.rolled.words_at[number]
        with named("numbers@"):
            if i is not None and width:
                at = _at(_table([self.rolled.words_at[s] for s in rounds]), i)
                words = lax.dynamic_slice(self.words, (at,), (width,))
            else:
                words = lax.slice(self.words, (at,), (at + width,))
            numbers = decode_numbers(words, template.number_kinds, self.rolled.narrow)
        scopes = self.rolled.scopes
        with named(scopes[number] if scopes is not None else f"{template.row.title}@"):
            return evaluate_step(template, operands, numbers, self.rolled.precision)[0]

    def _members(self, loop: Loop, stack: Stack) -> tuple[int, ...]:
        return loop.slots[stack.slot] if stack.origin == "in" else loop.results[stack.slot]

    def _spec(self, loop: Loop, result: int) -> Any:
        for number in loop.groups[0]:
            outs = self.steps[number][0].outs
            if result < len(outs):
                return outs[result].spec
            result -= len(outs)
        raise AssertionError("no such result")


def _table(positions: Sequence[int]) -> tuple[int, int] | np.ndarray[Any, Any]:
    """Positions by round: (start, step) when they are evenly spaced."""
    step = positions[1] - positions[0]
    if all(b - a == step for a, b in zip(positions, positions[1:], strict=False)):
        return positions[0], step
    return np.array(positions, np.int32)


def _at(table: tuple[int, int] | np.ndarray[Any, Any], i: Array) -> Array:
    if isinstance(table, tuple):
        return lax.add(lax.mul(i, lax.full_like(i, table[1])), lax.full_like(i, table[0]))
    return lax.dynamic_index_in_dim(table, i, 0, False)


def _zeros(spec: Any, *leading: int) -> Array:
    return lax.full((*leading, *spec.shape), 0, spec.dtype)


def costs_of_rounds(rolled: Rolled, words: int, count: Callable[[Any], dict[str, float]]) -> dict[str, float]:
    """What a cost analysis that counts a loop's body once leaves out: per property, the sum over loops of the other rounds."""
    more: dict[str, float] = {}
    for loop in rolled.plan.loops:
        specs = [_spec_of(rolled, values[0]) for values in loop.slots]
        shapes = [jax.ShapeDtypeStruct((words,), np.uint32), *(jax.ShapeDtypeStruct(s.shape, s.dtype) for s in specs)]
        lowered = jax.jit(rolled.body(loop)).lower(*shapes)
        for name, value in count(lowered).items():
            more[name] = more.get(name, 0.0) + value * (loop.rounds - 1)
    return more


def _spec_of(rolled: Rolled, value: int) -> Any:
    if value < len(rolled.program.in_specs):
        return rolled.program.in_specs[value]
    for number, first in enumerate(rolled.first_out):
        outs = rolled.program.steps[number][0].outs
        if first <= value < first + len(outs):
            return outs[value - first].spec
    raise AssertionError("no such value")
