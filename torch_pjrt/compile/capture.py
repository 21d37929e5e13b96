"""Turns a function of tensors into a Program by running it once on stand-ins, through the same kernels as eager.

Nothing is computed while capturing; reading a value there is an error, since a Program cannot wait for the host. What
comes out is a Captured (captured.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_pjrt.compile.captured import Captured, Draw, Output, byte_of, is_part
from torch_pjrt.compile.positions import positions_of
from torch_pjrt.dispatch.bits import plain
from torch_pjrt.dispatch.fused import Recorder, recorder
from torch_pjrt.dispatch.lines import Line
from torch_pjrt.tensor.random import default_state
from torch_pjrt.tensor.storage import READY, UNFILLED, Cell, Value, cell_of, new_storage, tensor_over

__all__ = ["Captured", "Steps", "capture", "states"]


class Steps(list[Any]):
    """A list to record into that gives every step the line in `line`: of a graph's node, not of who calls the graph."""

    line: Line = None

    def append(self, step: Any) -> None:
        """Take a step, with the better line."""
        super().append(step if self.line is None else (*step[:4], self.line))


@dataclass(slots=True)
class States:
    """States of the generator that a capture saves (tensor -> number of the step before which) and draws from again
    (first step, number of steps, tensor)."""

    saved: list[tuple[torch.Tensor, int]] = field(default_factory=list)
    replayed: list[tuple[int, int, torch.Tensor]] = field(default_factory=list)

    def source(self, step: int, args: Sequence[Any]) -> tuple[int, int]:
        """(argument with the state that a step draws from, first step that does); -1: the default generator."""
        for first, count, tensor in self.replayed:
            if first <= step < first + count:
                return next(i for i, arg in enumerate(args) if arg is tensor), first
        return -1, step


_states: list[States] = []


def states() -> States | None:
    """Those of the capture that is going on."""
    return _states[-1] if _states else None


def capture(
    function: Callable[..., Any], args: Sequence[Any], steps: list[Any] | None = None, *, together: bool = False
) -> Captured:
    """Record function(*args) without computing it. Tensors in args on the device are replaced by stand-ins.

    steps: the (empty) list to record into, for a caller that wants to see steps as they are recorded. together: stand-ins
    share storages where args do, so that what is written through one is kept when another is written. Such a capture holds
    for these positions in the storages only.
    """
    engine = recorder()
    with engine.lock:
        if not engine.capturing:
            engine.flush("capture", whole=True)
        stand_ins, inputs, tensor_args = _stand_ins(args, together)
        state = default_state()
        before = (state.seed, state.offset)
        _states.append(States())
        try:
            with _recording_apart(engine, steps) as recorded:
                result = function(*stand_ins)
                flat, structure = torch.utils._pytree.tree_flatten(result)
                # values and layouts go out, the conj and neg bits do not
                flat = [plain(t) if isinstance(t, torch.Tensor) and t.device.type != "cpu" else t for t in flat]
                return _assemble(recorded, stand_ins, inputs, tensor_args, flat, structure, fixed=together)
        finally:
            _states.pop()
            state.seed, state.offset = before


def _stand_ins(args: Sequence[Any], together: bool) -> tuple[list[Any], list[Value], list[int]]:
    """Tensors over storages of their own (together: shared as the real ones are), with the real specs and layouts."""
    out: list[Any] = []
    shared: dict[Cell, tuple[Value, torch.UntypedStorage]] = {}
    inputs: list[Value] = []
    positions: list[int] = []
    for position, arg in enumerate(args):
        if not isinstance(arg, torch.Tensor) or arg.device.type == "cpu":
            out.append(arg)
            continue
        cell = cell_of(arg)
        value = Value(cell.value.spec, READY)
        storage = new_storage(value, arg.untyped_storage().nbytes())
        if together:
            value, storage = shared.setdefault(cell, (value, storage))
        with torch.no_grad():
            twin = tensor_over(storage, tuple(arg.shape), tuple(arg.stride()), int(arg.storage_offset()), arg.dtype)
            twin = torch._conj(twin) if arg.is_conj() else twin
            out.append(torch._neg_view(twin) if arg.is_neg() else twin)
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
    *,
    fixed: bool,
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
    assert _states
    saved = {id(tensor): step for tensor, step in _states[-1].saved}
    outputs = [
        Output(state=saved[id(t)]) if id(t) in saved else _output(t, storages, numbering, stand_ins) for t in flat
    ]
    writes = []
    for position, argument in enumerate(tensor_args):
        now = cell_of(stand_ins[argument]).value
        if now is not inputs[position]:
            writes.append((argument, numbering[now]))
    wanted = {o.value for o in outputs} | {v for _, v in writes}
    count = sum(len(t.outs) for t, *_ in steps)
    numbers = [s[2] for s in steps]
    parts = [i for i, a in enumerate(tensor_args) if not fixed and is_part(stand_ins[a], inputs[i].spec)]
    return Captured(
        steps=body,
        numbers=numbers,
        positions=positions_of(
            body,
            numbers,
            {i: k for k, i in enumerate(parts)},
            tuple(byte_of(stand_ins[tensor_args[i]]) for i in parts),
            first,
        ),
        random=_draws(steps, stand_ins),
        lines=[s[4] for s in steps],
        in_specs=[v.spec for v in inputs] + [v.spec for v in constants],
        tensor_args=tensor_args,
        constants=constants,
        writes=writes,
        outputs=outputs,
        live=[first + i in wanted for i in range(count)],
        structure=structure,
    )


def _draws(steps: list[Any], args: list[Any]) -> list[Draw]:
    """The steps that draw random numbers, and from where."""
    out: list[Draw] = []
    after: dict[int, int] = {}
    for i, (template, *_) in enumerate(steps):
        if template.draws:
            argument, first = _states[-1].source(i, args)
            begin = after.setdefault(first, 0) if argument >= 0 else 0
            out.append(Draw(i, template.draws, argument, begin))
            after[first] = begin + template.draws
    return out


def _output(item: Any, storages: dict[int, int], numbering: dict[Value, int], args: Sequence[Any]) -> Output:
    if not isinstance(item, torch.Tensor) or item.device.type == "cpu":
        return Output(constant=item)
    place = (tuple(item.shape), tuple(item.stride()), int(item.storage_offset()), item.dtype)
    cell = cell_of(item)
    argument = storages.get(id(cell), -1)
    if argument >= 0:
        return Output(place=place, input=argument, start=byte_of(args[argument]))
    return Output(place=place, value=numbering[cell.value])
