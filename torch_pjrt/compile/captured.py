"""A captured graph: a Program with its calling convention, and how a call with real tensors runs it.

Owns Captured: which argument each input is, what is drawn anew at every call, what is written, and what the results are
tensors of. capture.py makes it. Its executables go when it goes.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_pjrt.compile.positions import Positions
from torch_pjrt.compile.tuning import Tuning
from torch_pjrt.counters import counters
from torch_pjrt.dispatch import launch
from torch_pjrt.dispatch.fused import Recorder, holders, recorder
from torch_pjrt.dispatch.launch import Plan, Plans, Policy
from torch_pjrt.dispatch.lines import Line
from torch_pjrt.pjrt.compiler import Executable
from torch_pjrt.program.program import OutSpec, Spec, Template, out_spec
from torch_pjrt.tensor.layout import aval_of, found
from torch_pjrt.tensor.random import default_state, take
from torch_pjrt.tensor.storage import READY, Cell, Value, cell_of, make_tensor, new_storage, tensor_over

Place = tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype]
Signature = tuple[Any, ...]
_STATE = struct.Struct("<QQ")


@dataclass(slots=True)
class Output:
    """One result: a plain Python value, a tensor over an input's storage or over a result of the Program, or the state of
    the generator at a step."""

    constant: Any = None
    place: Place | None = None
    input: int = -1  # the argument whose storage it shares
    start: int = 0  # the byte of that storage at which the argument began
    value: int = -1  # the number of the Program's value
    state: int = -1  # the step before which the generator's state is wanted
    whole: OutSpec | None = None  # the value fills a storage that no other result shares


@dataclass(frozen=True, slots=True)
class Draw:
    """A step whose last number is a seed and an offset: drawn anew at each call, or read from an argument that holds a state
    of the generator (activation checkpoints draw the same numbers twice)."""

    step: int
    words: int
    state: int = -1  # the argument with the state
    after: int = 0  # words that were drawn since that state


@dataclass(slots=True)
class Captured:
    """A Program and its calling convention."""

    steps: list[tuple[Template, tuple[int, ...]]]
    numbers: list[tuple[Any, ...]]
    random: list[Draw]
    lines: list[Line]
    in_specs: list[Spec]
    tensor_args: list[int]  # positions of the arguments that are the first inputs
    constants: list[Value]  # the inputs after those
    writes: list[tuple[int, int]]  # (argument, value): storages that are written
    outputs: list[Output]
    live: list[bool]
    structure: Any
    positions: Positions
    policy: Policy = field(default_factory=Policy)
    tuning: Tuning | None = None
    plans: Plans = field(default_factory=Plans)
    ahead: bool = False  # made for a size that has not come yet
    compiling: Callable[[], AbstractContextManager[object]] = nullcontext  # around a run that makes a plan
    written: list[int] = field(init=False)  # inputs whose storage is written
    specs: list[Spec] = field(init=False)  # of every value

    def __post_init__(self) -> None:
        position = {argument: i for i, argument in enumerate(self.tensor_args)}
        self.written = [position[a] for a, _ in self.writes]
        self.specs = [*self.in_specs, *(o.spec for template, _ in self.steps for o in template.outs)]
        users = Counter([o.value for o in self.outputs] + [number for _, number in self.writes])
        for output in self.outputs:
            if output.place is not None and output.value >= 0 and users[output.value] == 1:
                size, stride, offset, dtype = output.place
                whole = out_spec(size, stride, dtype)
                if offset == 0 and whole.stride == stride and whole.spec is self.specs[output.value]:
                    output.whole = whole

    def __call__(
        self, args: Sequence[Any], cells: list[Cell] | None = None, numbers: list[tuple[Any, ...]] | None = None
    ) -> list[Any]:
        """Run on real arguments with the signature that was captured.

        cells: of the tensor arguments, where they are known; numbers: where the arguments start elsewhere than those did.
        """
        engine = recorder()
        with engine.lock:
            engine.flush("compiled call")
            if cells is None:
                cells = [cell_of(args[i]) for i in self.tensor_args]
            values = [c.value for c in cells]
            for v in values:
                if v.index < READY:
                    values = [v if v.index >= READY else engine.usable(v) for v in values]
                    break
            values += self.constants
            dead = self._reusable(values)
            arrays: list[Any] = [v.array for v in values]
            numbers = self._drawn(args, self.numbers if numbers is None else numbers)
            if self.steps:
                self._run(engine, arrays, dead, numbers)
            return self._results(args, cells, arrays, numbers)

    def prepare(self, like: Captured) -> None:
        """Start compiling, in other threads, what a call will run; it will own its inputs as the last call of `like` did."""
        policy, precision, reusable = key = next(reversed(like.plans))
        self._plan(key, policy, reusable, ahead=True)
        self.ahead = True

    def _arrived(self) -> None:
        """A size for which this was made ahead has come. What could not be compiled is left to this call."""
        self.ahead = False
        counters.captures_ahead_used += 1
        waiting = [e for plan in self.plans.values() for e in (x.executable for x in plan.launches)]
        if any(isinstance(e, Future) and e.exception() is not None for e in waiting):
            self.plans.clear()

    def executables(self) -> list[Executable]:
        """Those that it has run."""
        found = [each.executable for plan in self.plans.values() for each in plan.launches]
        return [each for each in found if isinstance(each, Executable)]

    def overwrites(self, cells: list[Cell]) -> bool:
        """Whether these have two written arguments in one storage: the one's contents would replace what the other wrote."""
        return len(self.written) > 1 and len({cells[i] for i in self.written}) < len(self.written)

    def _reusable(self, values: list[Value]) -> tuple[int, ...]:
        """The inputs whose buffers may be overwritten: of storages that are written and that nobody else holds."""
        if not self.written:
            return ()
        counts = holders(values)
        return tuple(i for i in self.written if counts[i] == 1 and not values[i].shared)  # 1: its storage's cell

    def _drawn(self, args: Sequence[Any], numbers: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The numbers of this call, with new positions in the random stream."""
        if not self.random:
            return numbers
        numbers = list(numbers)
        for draw in self.random:
            if draw.state < 0:
                position = take(default_state(), draw.words)
            else:
                seed, offset = _STATE.unpack(bytes(args[draw.state].tolist()))
                position = seed, offset + draw.after
            numbers[draw.step] = (*numbers[draw.step][:-1], position)
        return numbers

    def _run(
        self, engine: Recorder, arrays: list[Any], reusable: tuple[int, ...], numbers: list[tuple[Any, ...]]
    ) -> None:
        policy = self.policy if self.tuning is None else self.tuning.next(self.policy)
        key = (policy, launch.precision(), reusable)
        plan = self.plans.get(key)
        counters.flushes["compiled call"] += 1
        arrays += [None] * len(self.live)
        if plan is not None and not self.ahead:
            engine.checks += launch.run(key, plan, arrays, numbers, self.lines, self.plans)
        else:
            if self.ahead:
                self._arrived()
            with self.compiling():
                plan = self._plan(key, policy, reusable)
                engine.checks += launch.run(key, plan, arrays, numbers, self.lines, self.plans)
        if self.tuning is not None:
            self.tuning.ran(policy, len(plan.launches))

    def _plan(self, key: Any, policy: Policy, reusable: tuple[int, ...], *, ahead: bool = False) -> Plan:
        dead = [False] * len(self.in_specs)
        for i in reusable:
            dead[i] = True
        return launch.plan_for(
            key, lambda: self.steps, self.in_specs, self.live, dead, self.lines, self.plans, policy, ahead=ahead
        )

    def _results(
        self, args: Sequence[Any], cells: list[Cell], arrays: list[Any], numbers: list[tuple[Any, ...]]
    ) -> list[Any]:
        fresh: dict[int, torch.UntypedStorage] = {}
        made: dict[int, Value] = {}

        def value_of(number: int) -> Value:
            value = made.get(number)
            if value is None:
                value = made[number] = Value(self.specs[number], READY, arrays[number])
            return value

        for position, (_, number) in zip(self.written, self.writes, strict=True):
            cells[position].value = value_of(number)
        out: list[Any] = []
        for output in self.outputs:
            if output.state >= 0:
                packed = _STATE.pack(*numbers[output.state][-1])
                out.append(torch.frombuffer(bytearray(packed), dtype=torch.uint8))
                continue
            if output.place is None:
                out.append(output.constant)
                continue
            if output.whole is not None:
                out.append(make_tensor(output.whole, value_of(output.value)))
                continue
            size, stride, offset, dtype = output.place
            if output.input >= 0:
                argument = args[output.input]
                storage = argument.untyped_storage()
                offset += (byte_of(argument) - output.start) // dtype.itemsize
            else:
                storage = fresh.get(output.value)
                if storage is None:
                    value = value_of(output.value)
                    storage = fresh[output.value] = new_storage(value, value.spec.nbytes)
            out.append(tensor_over(storage, size, stride, offset, dtype))
        return out


def byte_of(tensor: torch.Tensor) -> int:
    """At which byte of its storage a tensor starts."""
    return int(tensor.storage_offset()) * tensor.dtype.itemsize


def is_part(tensor: torch.Tensor, payload: Spec) -> bool:
    """Whether a tensor is a part of its storage's payload that could start elsewhere in it."""
    return bool(aval_of(payload, tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.dtype)[1])  # type: ignore[arg-type]


def bind(args: Sequence[Any]) -> tuple[Signature, list[Cell], tuple[int, ...]]:
    """What a capture depends on (how tensors lie in their storages, and plain values), the tensors' Cells, and at which
    byte of its storage each tensor starts that could start elsewhere (see is_part).

    CPU tensors do not count: of those a Program reads only states of the generator, at each call.
    """
    key: list[Any] = []
    cells: list[Cell] = []
    bytes_before: tuple[int, ...] = ()
    for arg in args:
        if not isinstance(arg, torch.Tensor):
            key.append((type(arg), arg))
            continue
        try:
            cell = arg.untyped_storage()._pjrt  # type: ignore[attr-defined]
        except AttributeError:
            if arg.device.type == "cpu":
                key.append(None)
                continue
            cell = cell_of(arg)
        place: Any = (cell.value.spec, arg.shape, arg.stride(), arg.storage_offset(), arg.dtype)
        known = found.get(place)
        aval, starts = aval_of(*place) if known is None else known
        cells.append(cell)
        key.append(aval)
        if starts:
            bytes_before += (byte_of(arg),)
    return tuple(key), cells, bytes_before
