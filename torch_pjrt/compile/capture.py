"""Turns a function of tensors into a Program by running it once on stand-ins, through the same kernels as eager.

Owns Captured: the recorded steps, what they need and what they give, and how a later call with real tensors runs them.
Nothing is computed while capturing; reading a value there is an error, since a Program cannot wait for the host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_pjrt.counters import counters
from torch_pjrt.dispatch import launch
from torch_pjrt.dispatch.fused import Recorder, holders, recorder
from torch_pjrt.dispatch.lines import Line
from torch_pjrt.program.program import Spec, Template
from torch_pjrt.tensor.random import default_state, take
from torch_pjrt.tensor.storage import READY, UNFILLED, Cell, Value, aval_of_tensor, cell_of, new_storage, tensor_over

Place = tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype]
Signature = tuple[Any, ...]


@dataclass(slots=True)
class Output:
    """One result: a plain Python value, or a tensor over an input's storage or over a result of the Program."""

    constant: Any = None
    place: Place | None = None
    input: int = -1  # the argument whose storage it shares
    value: int = -1  # the number of the Program's value


@dataclass(slots=True)
class Captured:
    """A Program and its calling convention."""

    steps: list[tuple[Template, tuple[int, ...]]]
    numbers: list[tuple[Any, ...]]
    random: list[int]  # steps whose last number is a seed and offset to draw anew
    lines: list[Line]
    in_specs: list[Spec]
    tensor_args: list[int]  # positions of the arguments that are the first inputs
    constants: list[Value]  # the inputs after those
    writes: list[tuple[int, int]]  # (argument, value): storages that are written
    outputs: list[Output]
    live: list[bool]
    structure: Any

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Run on real arguments (with the signature that was captured)."""
        engine = recorder()
        with engine.lock:
            engine.flush("compiled call")
            cells = [cell_of(args[i]) for i in self.tensor_args]
            values = [engine.ready(c.value) for c in cells]
            values += self.constants
            dead = self._reusable(cells, values)
            arrays: list[Any] = [v.array for v in values]
            if self.steps:
                self._run(engine, arrays, dead)
            return self._results(args, cells, arrays)

    def _reusable(self, cells: list[Cell], values: list[Value]) -> list[bool]:
        """Which inputs' buffers may be overwritten: those of storages that are written and that nobody else holds."""
        written = {i for i, _ in self.writes}
        counts = holders(values)
        dead = [False] * len(values)
        for position, argument in enumerate(self.tensor_args):
            if argument in written:
                dead[position] = counts[position] == 1 and not values[position].shared  # only its storage's cell
        return dead

    def _run(self, engine: Recorder, arrays: list[Any], dead: list[bool]) -> None:
        numbers = self.numbers
        if self.random:
            numbers = list(numbers)
            for s in self.random:
                numbers[s] = (*numbers[s][:-1], take(default_state(), self.steps[s][0].draws))
        key = ("captured", id(self), launch.precision(), tuple(dead))
        plan = launch.plan_for(key, lambda: self.steps, self.in_specs, self.live, dead, self.lines)
        counters.flushes["compiled call"] += 1
        arrays += [None] * len(self.live)
        engine.checks += launch.run(key, plan, arrays, numbers, self.lines)

    def _results(self, args: Sequence[Any], cells: list[Cell], arrays: list[Any]) -> list[Any]:
        fresh: dict[int, torch.UntypedStorage] = {}
        made: dict[int, Value] = {}

        def value_of(number: int) -> Value:
            if number not in made:
                made[number] = Value(self._spec(number), READY, arrays[number])
            return made[number]

        for argument, number in self.writes:
            cells[self.tensor_args.index(argument)].value = value_of(number)
        out: list[Any] = []
        for output in self.outputs:
            if output.place is None:
                out.append(output.constant)
                continue
            size, stride, offset, dtype = output.place
            if output.input >= 0:
                storage = args[output.input].untyped_storage()
            else:
                storage = fresh.get(output.value)
                if storage is None:
                    value = value_of(output.value)
                    storage = fresh[output.value] = new_storage(value, value.spec.nbytes)
            out.append(tensor_over(storage, size, stride, offset, dtype))
        return out

    def _spec(self, number: int) -> Spec:
        if number < len(self.in_specs):
            return self.in_specs[number]
        at = number - len(self.in_specs)
        for template, _ in self.steps:
            if at < len(template.outs):
                return template.outs[at].spec
            at -= len(template.outs)
        raise AssertionError("no such value")


def signature(args: Sequence[Any]) -> Signature:
    """What a capture depends on: how tensors lie in their storages, and everything that is not a device tensor."""
    out: list[Any] = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if arg.device.type == "cpu":
                out.append((arg.dtype, arg.item() if arg.dim() == 0 else id(arg)))
            else:
                _, aval, starts = aval_of_tensor(arg)
                out.append((aval, starts))
        else:
            out.append((type(arg), arg))
    return tuple(out)


def capture(function: Callable[..., Any], args: Sequence[Any], steps: list[Any] | None = None) -> Captured:
    """Record function(*args) without computing it. Tensors in args on the device are replaced by stand-ins.

    steps: the (empty) list to record into, for a caller that wants to see steps as they are recorded.
    """
    engine = recorder()
    with engine.lock:
        if not engine.capturing:
            engine.flush("capture", whole=True)
        stand_ins, inputs, tensor_args = _stand_ins(args)
        state = default_state()
        before = (state.seed, state.offset)
        try:
            with _recording_apart(engine, steps) as recorded:
                result = function(*stand_ins)
                flat, structure = torch.utils._pytree.tree_flatten(result)
                return _assemble(recorded, stand_ins, inputs, tensor_args, flat, structure)
        finally:
            state.seed, state.offset = before


def _stand_ins(args: Sequence[Any]) -> tuple[list[Any], list[Value], list[int]]:
    """Tensors over storages of their own, with the specs and layouts of the real ones."""
    out: list[Any] = []
    inputs: list[Value] = []
    positions: list[int] = []
    for position, arg in enumerate(args):
        if not isinstance(arg, torch.Tensor) or arg.device.type == "cpu":
            out.append(arg)
            continue
        cell = cell_of(arg)
        value = Value(cell.value.spec, READY)
        storage = new_storage(value, arg.untyped_storage().nbytes())
        with torch.no_grad():
            out.append(
                tensor_over(storage, tuple(arg.shape), tuple(arg.stride()), int(arg.storage_offset()), arg.dtype)
            )
        inputs.append(value)
        positions.append(position)
    return out, inputs, positions


@contextlib.contextmanager
def _recording_apart(engine: Recorder, steps: list[Any] | None) -> Iterator[list[Any]]:
    """Record into a list of its own; a flush inside is an error."""
    saved = engine.begin_capture([] if steps is None else steps)
    try:
        yield engine.steps
    finally:
        engine.end_capture(saved)


def _assemble(
    steps: list[Any],
    stand_ins: list[Any],
    inputs: list[Value],
    tensor_args: list[int],
    flat: list[Any],
    structure: Any,
) -> Captured:
    for tensor in (*stand_ins, *flat):
        if isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu" and cell_of(tensor).value.index == UNFILLED:
            cell_of(tensor).value = recorder().usable(cell_of(tensor).value)
    numbering = {value: i for i, value in enumerate(inputs)}
    constants: list[Value] = []
    for _, operands, _, _, _ in steps:
        for value in operands:
            if value.index == READY and value not in numbering:
                numbering[value] = len(inputs) + len(constants)
                constants.append(value)
    for extra in [cell_of(t).value for t in flat if isinstance(t, torch.Tensor) and t.device.type != "cpu"]:
        if extra.index == READY and extra not in numbering:
            numbering[extra] = len(inputs) + len(constants)
            constants.append(extra)
    first = len(inputs) + len(constants)
    body = []
    for template, operands, _, outs, _ in steps:
        body.append((template, tuple(numbering[v] for v in operands)))
        for v in outs:
            numbering[v] = first + v.index
    storages = {id(stand_ins[a].untyped_storage()._pjrt): a for a in tensor_args}
    outputs = [_output(t, storages, numbering) for t in flat]
    writes = []
    for position, argument in enumerate(tensor_args):
        now = cell_of(stand_ins[argument]).value
        if now is not inputs[position]:
            writes.append((argument, numbering[now]))
    wanted = {o.value for o in outputs} | {v for _, v in writes}
    count = sum(len(t.outs) for t, *_ in steps)
    return Captured(
        steps=body,
        numbers=[s[2] for s in steps],
        random=[i for i, s in enumerate(steps) if s[0].draws],
        lines=[s[4] for s in steps],
        in_specs=[v.spec for v in inputs] + [v.spec for v in constants],
        tensor_args=tensor_args,
        constants=constants,
        writes=writes,
        outputs=outputs,
        live=[first + i in wanted for i in range(count)],
        structure=structure,
    )


def _output(item: Any, storages: dict[int, int], numbering: dict[Value, int]) -> Output:
    if not isinstance(item, torch.Tensor) or item.device.type == "cpu":
        return Output(constant=item)
    place = (tuple(item.shape), tuple(item.stride()), int(item.storage_offset()), item.dtype)
    cell = cell_of(item)
    argument = storages.get(id(cell), -1)
    if argument >= 0:
        return Output(place=place, input=argument)
    return Output(place=place, value=numbering[cell.value])
