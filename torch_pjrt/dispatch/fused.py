"""The recorder: collects steps into the pending Program and flushes it.

Owns the pending steps, their lock, the eager mode, and the index checks that have not been read yet. Each step refers to
Values; a flush numbers them, asks which results anybody still holds (by reference count), and hands over to launch.py.
"""

from __future__ import annotations

import functools
import threading
from sys import getrefcount
from threading import get_ident
from typing import Any

import numpy as np

from torch_pjrt.config import settings
from torch_pjrt.counters import counters, forbidden
from torch_pjrt.dispatch import launch, turns
from torch_pjrt.dispatch.lines import UNKNOWN, Line, Unknown, show, user_line
from torch_pjrt.errors import HostReadError, IndexOutOfRangeError, InvalidOperandError, RuntimeFailedError
from torch_pjrt.ops.dtypes import FROM_NUMPY
from torch_pjrt.ops.registry import ROWS
from torch_pjrt.pjrt import buffers
from torch_pjrt.program.cut import SMALL
from torch_pjrt.program.program import Spec, Template, out_spec, spec
from torch_pjrt.tensor.layout import contiguous_strides
from torch_pjrt.tensor.memory_ledger import ledger
from torch_pjrt.tensor.runtime import check_fork
from torch_pjrt.tensor.storage import FAILED, READY, Value

Step = tuple[Template, list[Value], tuple[Any, ...], tuple[Value, ...], Line]


def holders(values: list[Value]) -> list[int]:
    """How many references each value has besides the one in `values`."""
    return [getrefcount(v) - _ALONE for v in values]


_ALONE = 0
_ALONE = holders([Value(spec((), np.dtype(np.float32)), READY)])[0]


class Recorder:
    """The pending Program of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.steps: list[Step] = []
        self.turns: turns.Turns = []
        self.thread = 0  # that recorded the last step
        self.count = 0  # results recorded so far
        self.mode = settings.eager_mode
        self.fused = self.mode == "fused"
        self.limit = settings.max_pending_ops
        self.bytes = 0  # of the results recorded so far
        self.byte_limit = buffers.memory_limit() // 4
        self.checks: list[launch.Check] = []
        self.capturing = False

    # -- recording ---------------------------------------------------------------------------------------------------

    def record(
        self, template: Template, values: list[Value], numbers: tuple[Any, ...], line: Line | Unknown = UNKNOWN
    ) -> tuple[Value, ...]:
        """Append a step; gives its results as pending Values (already running in the strict and debug modes).

        line: the user's, from a caller that records many steps for one.
        """
        with self.lock:
            for value in values:
                if value.index < READY:
                    values = [v if v.index >= READY else self.usable(v) for v in values]
                    break
            if get_ident() != self.thread:
                self._turn()
            count = self.count
            if template.single:
                outs: tuple[Value, ...] = (Value(template.outs[0].spec, count),)
                self.count = count + 1
            else:
                outs = tuple([Value(o.spec, count + k) for k, o in enumerate(template.outs)])
                self.count = count + len(outs)
            self.steps.append((template, values, numbers, outs, user_line(2) if line is UNKNOWN else line))
            self.bytes += template.out_bytes
            if not self.fused:
                self._run_now()
            elif len(self.steps) >= self.limit and self._own() >= self.limit:
                self.flush("size")
            elif self.bytes > self.byte_limit and not self.capturing:
                self.flush("memory", whole=True)
        return outs

    def _turn(self) -> None:
        """Another thread records now. Where it is autograd's, what is pending is a forward pass: run that meanwhile."""
        if len(self.turns) == 1 and not turns.of_python(get_ident()):
            self.flush_long("backward begins")
        self.thread = get_ident()
        self.turns.append((len(self.steps), self.thread))

    def flush_long(self, reason: str) -> None:
        """Flush at a place where every step of a training loop comes by, if what is pending would be cut there anyway.

        The device then works while the host records on. Short programs stay whole.
        """
        if self.fused and not self.capturing and settings.segments and len(self.steps) > SMALL:
            self.flush(reason)

    def usable(self, value: Value) -> Value:
        """The Value itself, made real; inside a capture, zeros recorded in the place of memory that nobody has written."""
        if value.error is not None:
            raise RuntimeFailedError(
                "this tensor has no value, because the program that computed it failed",
                detail=str(value.error),
            ) from value.error
        if self.capturing:
            return self.record(_zeros_of(value.spec), [], ())[0]
        fill_unwritten(value)
        return value

    def ready(self, value: Value) -> Value:
        """A Value that is not pending any more; raises if it could not be computed."""
        if value.index >= 0:
            self.flush("another thread's value", whole=True)
        if value.index < READY:
            self.usable(value)
        return value

    def _own(self) -> int:
        """How many of the pending steps this thread recorded."""
        ends = [*(start for start, _ in self.turns[1:]), len(self.steps)]
        return sum(end - start for (start, t), end in zip(self.turns, ends, strict=True) if t == self.thread)

    def _run_now(self) -> None:
        self.flush(self.mode, whole=True)
        if self.mode == "debug":
            self.wait()

    # -- flushing ----------------------------------------------------------------------------------------------------

    def flush(self, reason: str, *, whole: bool = False) -> None:
        """Run the pending steps of this thread (`whole`: of all threads). Returns when they are launched, not when done."""
        with self.lock:
            if self.capturing:
                raise self._absent(reason)
            if not self.steps:
                return
            check_fork()
            steps = self._take(whole)
            if not steps:
                return
            counters.flushes[reason] += 1
            counters.recorded_ops += len(steps)
            try:
                self._run(steps)
            except BaseException:
                self._keep(*turns.without_failed(self.steps, self.turns))
                raise
            ledger.fold_if_long()

    def _take(self, whole: bool) -> list[Step]:
        """The steps to run now, numbered from 0; the others stay pending."""
        steps, began = self.steps, self.turns
        chosen = None if whole or len(began) < 2 else turns.mine(steps, began, get_ident())
        if chosen is None:
            self._keep([], [])
            return steps
        self._keep(*turns.part(steps, began, chosen, False))
        taken, _ = turns.part(steps, began, chosen, True)
        turns.renumber(taken)
        return taken

    def _keep(self, steps: list[Step], began: turns.Turns) -> None:
        """Make these the pending steps."""
        self.steps, self.turns, self.thread = steps, began, 0
        self.count = turns.renumber(steps)
        self.bytes = sum(step[0].out_bytes for step in steps)

    def _run(self, steps: list[Step]) -> None:
        externals: dict[Value, int] = {}
        inputs: list[Value] = []
        key: list[int] = []
        for template, values, _, _, _ in steps:
            key.append(template.id)
            for value in values:
                index = value.index
                if index < 0:
                    found = externals.get(value)
                    if found is None:
                        found = externals[value] = len(inputs)
                        inputs.append(value)
                    index = ~found
                key.append(index)
        templates = [s[0] for s in steps]
        arities = [len(s[1]) for s in steps]
        numbers = [s[2] for s in steps]
        lines = [s[4] for s in steps]
        outs = [v for s in steps for v in s[3]]
        externals.clear()
        steps.clear()
        values = value = None  # type: ignore[assignment]  # noqa: F841 - drop the loop's references before counting
        live = [count > 0 for count in holders(outs)]
        dead = [count == 0 and not v.shared for count, v in zip(holders(inputs), inputs, strict=True)]
        full = (launch.precision(), tuple(key), tuple(live), tuple(dead))
        offset = len(inputs)

        def body() -> list[tuple[Template, tuple[int, ...]]]:
            out, at = [], 0
            for template, arity in zip(templates, arities, strict=True):
                refs = key[at + 1 : at + 1 + arity]
                out.append((template, tuple(~r if r < 0 else r + offset for r in refs)))
                at += 1 + arity
            return out

        try:
            plan = launch.plan_for(full, body, [v.spec for v in inputs], live, dead, lines)
            arrays: list[Any] = [v.array for v in inputs]
            for v, is_dead in zip(inputs, dead, strict=True):
                if is_dead:
                    v.array = None
            arrays += [None] * len(outs)
            self.checks += launch.run(full, plan, arrays, numbers, lines)
        except BaseException as error:
            for v in outs:
                v.index, v.error = FAILED, error
            raise
        for position, v in enumerate(outs):
            v.index = READY
            if live[position]:
                v.array = arrays[offset + position]
        if len(self.checks) > 256:
            self._read_checks(only_ready=True)

    # -- capturing ---------------------------------------------------------------------------------------------------

    def begin_capture(self, steps: list[Step]) -> tuple[Any, ...]:
        """Record into an empty list (torch.compile); a flush is an error until end_capture."""
        saved = (self.steps, self.turns, self.count, self.fused, self.limit, self.capturing)
        self.steps, self.turns, self.count, self.fused, self.limit, self.capturing = steps, [], 0, True, 1 << 60, True
        self.thread = 0
        return saved

    def end_capture(self, saved: tuple[Any, ...]) -> None:
        """Back to what begin_capture left."""
        self.steps, self.turns, self.count, self.fused, self.limit, self.capturing = saved
        self.thread = 0
        self.bytes = 0

    # -- waiting -----------------------------------------------------------------------------------------------------

    def array_of(self, value: Value, reason: str) -> Any:
        """The device array of a Value: flushes if it is pending."""
        if value.index < READY:
            self.usable(value)
        if value.index >= 0:
            self.flush(reason)
        if value.index >= 0:  # another thread's
            self.flush(reason, whole=True)
        if value.index < READY:
            self.usable(value)
        if value.array is None and self.capturing:  # a stand-in for a graph's input
            raise self._absent(reason)
        return value.array

    @staticmethod
    def _absent(reason: str) -> HostReadError:
        return HostReadError(
            f"a value is read on the host inside a compiled graph ({reason})",
            where=show(user_line(3)),
            todo="Move the read out of what is recorded; torch.compile can break the graph there instead.",
        )

    def host_read(self, value: Value, what: str) -> Any:
        """A Value as a NumPy array (may alias the device's memory on CPU), counted and with index checks read."""
        line = show(user_line(2)) or "outside Python"
        counters.host_reads[line] += 1
        if forbidden.host_read:
            raise HostReadError(
                f"a device value would be read on the host ({what}) while that is forbidden",
                where=line,
                todo="Keep the value on the device, or read it outside torch.pjrt.fail_on(host_read=True).",
            )
        array = self.array_of(value, what)
        out = buffers.to_host(array)
        self._read_checks()
        return out

    def wait(self) -> None:
        """Flush, wait for the device, and raise what index checks found."""
        self.flush("synchronize")
        buffers.barrier()
        self._read_checks()

    def _read_checks(self, only_ready: bool = False) -> None:
        if not self.checks:
            return
        with self.lock:
            checks, self.checks = self.checks, []
            if only_ready:
                self.checks = [c for c in checks if not c[0].is_ready()]
                checks = [c for c in checks if c[0].is_ready()]
        for array, lines, says in checks:
            bad = int(buffers.to_host(array))
            if bad >= 0:
                words = says[bad]
                kind = InvalidOperandError if isinstance(words, str) else IndexOutOfRangeError
                raise kind(
                    words if isinstance(words, str) else "an index is out of range for its dimension",
                    where=show(lines[bad]),
                    todo='Run under torch.pjrt.eager_mode("debug") to stop at the op itself.',
                )


def fill_unwritten(value: Value) -> None:
    """Make memory that nobody has written real, as zeros. Raises OutOfMemoryError."""
    try:
        array = buffers.zeros(value.spec.shape, value.spec.dtype)
    except (MemoryError, RuntimeError) as error:
        raise launch.no_room(f"a tensor of {value.spec.nbytes} bytes ({value.spec})", user_line(2), error) from error
    value.array, value.index = array, READY


@functools.cache
def _zeros_of(spec: Spec) -> Template:
    """The step that makes zeros, for unwritten memory that a capture reads."""
    shape = spec.shape
    return Template(
        row=ROWS["aten::zeros.default"],
        bindings=(("size", ("const", shape)), ("dtype", ("const", spec.dtype))),
        avals=(),
        number_kinds="",
        number_dtypes=(),
        outs=(out_spec(shape, contiguous_strides(shape), FROM_NUMPY[spec.dtype]),),
        compute=None,
    )


_recorder: Recorder | None = None


def recorder() -> Recorder:
    """The one Recorder of this process."""
    global _recorder
    if _recorder is None:
        _recorder = Recorder()
    return _recorder
