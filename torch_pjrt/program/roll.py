"""Finds the repeated blocks of a Program that can run as loops, so that a compiler sees a layer once and not once per layer.

Owns the plan (which steps, what is carried, what is read and written per round); program/rolled.py evaluates it. What rounds
read or leave differently lies in *stacks*: arrays with one element per round. Inputs that only differ by round (a layer's
weights) become one stacked input; results that are read later (activations) are written to a stack; a stack whose inputs are
overwritten by the loop is updated in place. What would have to be copied into a stack is not rolled, unless it is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch_pjrt.program.cut import groups_of
from torch_pjrt.program.program import Program, Spec

MIN_ROUNDS = 3
LARGEST_COPY = 1 << 20  # bytes of values that are copied into a stack, for one operand of a loop
_PERIODS = (1, 2, 3, 4)
_TRIED = 3  # how many rounds may be lost at the ends of a stretch that looks periodic

Group = tuple[int, ...]  # step numbers, in running order
Values = tuple[int, ...]  # a value number per round


@dataclass(eq=False, slots=True)
class Stack:
    """An array of values of one spec. origin: "input", "copy", "out" (results of a loop) or "in" (what its carry was).

    slot: the loop's result or carry; base: the input stack whose place an "out" stack takes.
    """

    origin: str
    members: Values
    spec: Spec
    slot: int = -1
    base: Stack | None = None


@dataclass(eq=False, slots=True)
class Loop:
    """Rounds of equal steps. refs: per step of a round its operands, ("local", result) or ("slot", number).

    fixed: slots that are one value; carried: slot -> the result of the round before, starting from `first`; read: slot -> the
    stack and the position of each round in it; last: results of which only the last round's is read afterwards; written:
    stacks of this loop, filled or updated round by round.
    """

    groups: list[Group]
    refs: list[tuple[tuple[str, int], ...]]
    slots: list[Values]
    results: list[Values]  # per local result, the value numbers of all rounds
    fixed: dict[int, int] = field(default_factory=dict)
    carried: dict[int, int] = field(default_factory=dict)
    read: dict[int, tuple[Stack, Values]] = field(default_factory=dict)
    last: list[int] = field(default_factory=list)
    written: list[Stack] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """How often it runs."""
        return len(self.groups)


@dataclass(slots=True)
class Plan:
    """Steps and loops in running order; inputs: those that stay alone, then the stacks of inputs."""

    items: list[int | Loop]
    single_inputs: list[int]
    input_stacks: list[Stack]
    stack_of: dict[int, list[Stack]]

    @property
    def loops(self) -> list[Loop]:
        """The loops, in running order."""
        return [i for i in self.items if isinstance(i, Loop)]


def roll(program: Program, writes: Mapping[int, int]) -> Plan | None:
    """The plan of a Program, None when nothing repeats. writes: input -> the value that takes its place."""
    return _Roller(program, writes).plan()


class _Roller:
    def __init__(self, program: Program, writes: Mapping[int, int]):
        self.steps = program.steps
        self.outputs = set(program.outputs)
        self.writes = writes
        self.num_inputs = len(program.in_specs)
        self.specs: list[Spec] = list(program.in_specs)
        self.first_out: list[int] = []
        for template, _ in self.steps:
            self.first_out.append(len(self.specs))
            self.specs.extend(o.spec for o in template.outs)
        self.input_stack: dict[int, Stack] = {}
        self.stacks: dict[int, list[Stack]] = {}
        self.item_of: dict[int, tuple[int, int]] = {}  # value -> (item, round)

    def plan(self) -> Plan | None:
        groups = [tuple(g) for g in groups_of(self.steps, self.num_inputs, uncut=0)]
        items = self._connected(self._items([g for g in groups if not self._is_lane(g)]))
        lanes = self._by_stack([t for g in groups if self._is_lane(g) for t in self._tensors(g)])
        place = next((s for s, g in enumerate(groups) if self._is_lane(g)), len(groups))
        after = {s for g in groups[place:] if not self._is_lane(g) for s in g}
        if lanes and not any(set(_steps(i)) & after for i in items):  # the optimizer's steps are the last ones
            items = self._connected([*items, *(i for bucket in lanes for i in self._items(bucket))])
        elif lanes:
            items = self._connected(self._items(groups))
        if not any(isinstance(i, Loop) for i in items):
            return None
        self._results(items)
        stacks = list(dict.fromkeys(self.input_stack.values()))
        return Plan(items, [i for i in range(self.num_inputs) if i not in self.input_stack], stacks, self.stacks)

    def _connected(self, items: list[int | Loop]) -> list[int | Loop]:
        """The items, with loops taken apart that cannot be connected."""
        while True:
            self.input_stack, self.stacks = {}, {}
            self._place(items)
            failed = self._connect(items)
            if failed is None:
                return items
            at = items.index(failed)
            items[at : at + 1] = [s for group in failed.groups for s in group]

    def _is_lane(self, group: Group) -> bool:
        return all(self.steps[s][0].lane for s in group)

    def _tensors(self, group: Group) -> list[Group]:
        """A group of foreach steps taken apart by what depends on what: one group per tensor."""
        parts: list[tuple[set[int], list[int]]] = []
        for s in group:
            template, operands = self.steps[s]
            made = set(range(self.first_out[s], self.first_out[s] + len(template.outs)))
            joined = [p for p in parts if p[0] & set(operands)]
            parts = [p for p in parts if p not in joined]
            parts.append((made.union(*(p[0] for p in joined)), [*(t for p in joined for t in p[1]), s]))
        return [tuple(sorted(steps)) for _, steps in sorted(parts, key=lambda p: min(p[1]))]

    def _by_stack(self, lanes: list[Group]) -> list[list[Group]]:
        """An optimizer's foreach steps, tensor by tensor: they need nothing of each other, so those are put together that
        are equal and whose tensors lie in the same stacks."""
        buckets: dict[object, list[Group]] = {}
        for lane in lanes:
            name, _, outside = self._signature(lane)
            where = tuple(next((id(s) for s in self.stacks.get(v, ())), None) for v in outside)
            buckets.setdefault((name, where), []).append(lane)
        return list(buckets.values())

    # -- which steps repeat ------------------------------------------------------------------------------------------

    def _items(self, groups: list[Group]) -> list[int | Loop]:
        names = [self._signature(g)[0] for g in groups]
        items: list[int | Loop] = []
        at = 0
        while at < len(groups):
            period, rounds = max(((p, _repeats(names, at, p)) for p in _PERIODS), key=lambda x: x[0] * (x[1] - 1))
            merged = [
                tuple(s for g in groups[at + k * period : at + (k + 1) * period] for s in g) for k in range(rounds)
            ]
            loop = self._loop(merged) if rounds >= MIN_ROUNDS else None
            if loop is None:
                items += groups[at]
                at += 1
            else:
                items.append(loop)
                at += rounds * period
        return self._extended(items)

    def _extended(self, items: list[int | Loop]) -> list[int | Loop]:
        """Give each loop the rounds that its surroundings hold: the cut begins blocks where little crosses, which may be in the
        middle of a layer, and tells the first and last layer apart, because what they read was made elsewhere."""
        out: list[int | Loop] = list(items)
        for loop in [i for i in items if isinstance(i, Loop)]:
            at, size = out.index(loop), len(loop.groups[0])
            before, after = at, at + 1
            while before > 0 and isinstance(out[before - 1], int):
                before -= 1
            while after < len(out) and isinstance(out[after], int):
                after += 1
            own = [s for g in loop.groups for s in g]
            order = [*_ints(out[before:at]), *own, *_ints(out[at + 1 : after])]
            first = start = at - before
            stop = first + len(own)
            kind = [self.steps[s][0].id for s in order]
            while start > 0 and kind[start - 1] == kind[start - 1 + size]:
                start -= 1
            while stop < len(order) and kind[stop] == kind[stop - size]:
                stop += 1
            longer = self._longest(order, start, stop, size, loop.rounds)
            if longer is not None:
                start, rounds = longer
                groups = [tuple(order[start + k * size : start + (k + 1) * size]) for k in range(rounds)]
                found = self._loop(groups)
                assert found is not None
                out[before:after] = [*order[:start], found, *order[start + rounds * size :]]
        return out

    def _longest(self, order: list[int], start: int, stop: int, size: int, rounds: int) -> tuple[int, int] | None:
        """The first place between start and stop from which more than `rounds` equal rounds follow, and how many."""
        most = (stop - start) // size
        for count in range(most, max(rounds, most - _TRIED), -1):
            for first in range(start, min(start + size, stop - count * size + 1)):
                groups = [tuple(order[first + k * size : first + (k + 1) * size]) for k in range(count)]
                if self._loop(groups) is not None:
                    return first, count
        return None

    def _signature(self, group: Group) -> tuple[object, list[tuple[tuple[str, int], ...]], list[int]]:
        """What makes groups equal; the operands of its steps; the outside values in order of first use."""
        local: dict[int, int] = {}
        outside: dict[int, int] = {}
        refs = []
        for s in group:
            template, operands = self.steps[s]
            refs.append(
                tuple(
                    ("local", local[v]) if v in local else ("slot", outside.setdefault(v, len(outside)))
                    for v in operands
                )
            )
            for k in range(len(template.outs)):
                local[self.first_out[s] + k] = len(local)
        specs = tuple(self.specs[v].id for v in outside)
        return (tuple(self.steps[s][0].id for s in group), tuple(refs), specs), refs, list(outside)

    def _loop(self, groups: list[Group]) -> Loop | None:
        found = [self._signature(g) for g in groups]
        if any(f[0] != found[0][0] for f in found):
            return None
        results = [[self.first_out[s] + k for s in g for k in range(len(self.steps[s][0].outs))] for g in groups]
        slots = list(zip(*(f[2] for f in found), strict=True))
        return Loop(groups, found[0][1], slots, list(zip(*results, strict=True)))

    # -- where operands come from ------------------------------------------------------------------------------------

    def _place(self, items: list[int | Loop]) -> None:
        self.item_of = {}
        for number, item in enumerate(items):
            if isinstance(item, Loop):
                for values in item.results:
                    self.item_of.update((v, (number, r)) for r, v in enumerate(values))
            else:
                outs = len(self.steps[item][0].outs)
                self.item_of.update((self.first_out[item] + k, (number, 0)) for k in range(outs))

    def _connect(self, items: list[int | Loop]) -> Loop | None:
        """Say for every slot of every loop what it is; gives a loop for which that cannot be done."""
        for number, item in enumerate(items):
            if not isinstance(item, Loop):
                continue
            item.fixed, item.carried, item.read, item.last, item.written = {}, {}, {}, [], []
            before = {values[:-1]: r for r, values in enumerate(item.results)}
            for slot, values in enumerate(item.slots):
                if len(set(values)) == 1:
                    item.fixed[slot] = values[0]
                elif values[1:] in before:
                    item.carried[slot] = before[values[1:]]
                else:
                    if any(self.item_of.get(v, (-1, 0))[0] == number for v in values):
                        return item  # it reads further back than one round
                    stack = self._stack(items, values)
                    if stack is None:
                        return item
                    item.read[slot] = (stack, tuple(stack.members.index(v) for v in values))
        return None

    def _stack(self, items: list[int | Loop], values: Values) -> Stack | None:
        """The stack in which values lie, or one made for them."""
        wanted = set(values)
        for stack in self.stacks.get(values[0], ()):
            if wanted <= set(stack.members):
                return stack
        if all(v < self.num_inputs for v in values):
            if not any(v in self.input_stack for v in values) and len(wanted) == len(values):
                made = self._made(Stack("input", values, self.specs[values[0]]))
                self.input_stack.update((v, made) for v in values)
                return made
        elif (made_by := self._made_by(items, values)) is not None:
            return made_by
        if self.specs[values[0]].nbytes * len(wanted) <= LARGEST_COPY:
            return self._made(Stack("copy", tuple(dict.fromkeys(values)), self.specs[values[0]]))
        return None

    def _made(self, stack: Stack) -> Stack:
        for v in stack.members:
            self.stacks.setdefault(v, []).append(stack)
        return stack

    def _made_by(self, items: list[int | Loop], values: Values) -> Stack | None:
        """A new stack of results, or of what was carried into each round, of the loop that makes the values."""
        for v in values:
            number, _ = self.item_of.get(v, (-1, 0))
            loop = items[number] if number >= 0 else None
            if not isinstance(loop, Loop):
                continue
            for result, members in enumerate(loop.results):
                if v in members:
                    if set(values) <= set(members):
                        return self._write(loop, Stack("out", members, self.specs[v], result))
                    for slot, carried in loop.carried.items():
                        if carried == result and set(values) <= set(loop.slots[slot]):
                            return self._write(loop, Stack("in", loop.slots[slot], self.specs[v], slot))
        return None

    def _write(self, loop: Loop, stack: Stack) -> Stack:
        loop.written.append(stack)
        return self._made(stack)

    # -- what is read of results -------------------------------------------------------------------------------------

    def _results(self, items: list[int | Loop]) -> None:
        """Results of loops that single steps, later loops or the caller read: from a stack, or as the last round's."""
        alone = set(self.outputs)
        for item in items:
            if isinstance(item, Loop):
                alone.update(item.fixed.values())
                alone.update(item.slots[slot][0] for slot in item.carried)
                alone.update(v for s, _ in item.read.values() if s.origin == "copy" for v in s.members)
            else:
                alone.update(self.steps[item][1])
        replaced = {v: i for i, v in self.writes.items()}
        for number, item in enumerate(items):
            if not isinstance(item, Loop):
                continue
            for result, members in enumerate(item.results):
                wanted = [v for v in members if v in alone]
                known = self.stacks.get(members[0], ())
                if not wanted or any(set(wanted) <= set(s.members) for s in known if s.origin == "out"):
                    continue
                if wanted == [members[-1]]:
                    item.last.append(result)
                    continue
                base = self._overwritten(items, number, item, [replaced.get(v, -1) for v in members])
                if base is None:
                    self._write(item, Stack("out", members, self.specs[members[0]], result))
                else:
                    order = {replaced[v]: v for v in members}
                    self._write(item, Stack("out", tuple(order[i] for i in base.members), base.spec, result, base))

    def _overwritten(self, items: list[int | Loop], number: int, loop: Loop, inputs: list[int]) -> Stack | None:
        """The input stack whose elements the rounds of this loop replace, if they alone still read it."""
        base = self.input_stack.get(inputs[0])
        if base is None or set(base.members) != set(inputs):
            return None
        order = tuple(base.members.index(i) for i in inputs)
        slots = [slot for slot, (stack, _) in loop.read.items() if stack is base]
        if any(loop.read[slot][1] != order for slot in slots):
            return None
        for later in items[number + 1 :]:
            if isinstance(later, Loop):
                if any(stack is base for stack, _ in later.read.values()) or set(later.fixed.values()) & set(inputs):
                    return None
            elif set(self.steps[later][1]) & set(inputs):
                return None
        taken = [s.base for s in loop.written]
        return None if base in taken else base


def _ints(items: Sequence[int | Loop]) -> list[int]:
    return [i for i in items if isinstance(i, int)]


def _steps(item: int | Loop) -> Sequence[int]:
    return [item] if isinstance(item, int) else [s for g in item.groups for s in g]


def _repeats(names: Sequence[object], at: int, period: int) -> int:
    """How often the `period` names at a place follow each other."""
    block = names[at : at + period]
    if len(block) < period:
        return 1
    count = 1
    while names[at + count * period : at + (count + 1) * period] == block:
        count += 1
    return count
