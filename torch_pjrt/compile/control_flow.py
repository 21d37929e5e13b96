"""torch.cond, while_loop and scan inside a captured graph: their bodies become Programs, the operators become lax's.

Outside a capture torch's own eager meaning holds (the condition is read on the host). Bodies may not draw random numbers
or write to their operands; torch.compile has made them pure before they arrive here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jax import lax

from torch_pjrt.compile.capture import Captured, capture
from torch_pjrt.dispatch.fused import recorder
from torch_pjrt.errors import UnsupportedOpError
from torch_pjrt.ops.dtypes import FROM_NUMPY
from torch_pjrt.ops.registry import Row
from torch_pjrt.program.evaluate import run_steps
from torch_pjrt.program.fingerprint import program_text
from torch_pjrt.program.program import Program, Template, out_spec
from torch_pjrt.tensor.layout import contiguous_strides
from torch_pjrt.tensor.storage import Value, aval_of_tensor, make_tensor


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A captured function as a Program: arrays in, arrays out, and where its numbers and constants lie among the step's."""

    program: Program
    numbers: slice
    constants: slice

    def __repr__(self) -> str:
        return f"Body({program_text(self.program)}, {self.numbers}, {self.constants})"

    def __call__(self, arrays: Sequence[Any], numbers: Sequence[Any], constants: Sequence[Any]) -> list[Any]:
        return run_steps(self.program, numbers[self.numbers], [*arrays, *constants[self.constants]])[0]


def _cond(pred: Any, operands: list[Any], numbers: list[Any], constants: list[Any], bodies: tuple[Body, ...]) -> Any:
    yes, no = (lambda *xs, b=b: tuple(b(xs, numbers, constants)) for b in bodies)
    return lax.cond(lax.reshape(pred, ()), yes, no, *operands)


def _while(
    operands: list[Any], numbers: list[Any], constants: list[Any], bodies: tuple[Body, ...], carried: int
) -> Any:
    test, body = bodies
    fixed = operands[carried:]

    def more(carry: tuple[Any, ...]) -> Any:
        return lax.reshape(test([*carry, *fixed], numbers, constants)[0], ())

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(body([*carry, *fixed], numbers, constants))

    return lax.while_loop(more, step, tuple(operands[:carried]))


def _scan(
    operands: list[Any], numbers: list[Any], constants: list[Any], bodies: tuple[Body, ...], carried: int, scanned: int
) -> Any:
    (body,) = bodies
    fixed = operands[carried + scanned :]

    def step(carry: tuple[Any, ...], x: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        out = body([*carry, *x, *fixed], numbers, constants)
        return tuple(out[:carried]), tuple(out[carried:])

    carry, ys = lax.scan(step, tuple(operands[:carried]), tuple(operands[carried : carried + scanned]))
    return (*carry, *ys)


COND, WHILE, SCAN = Row("hop::cond", _cond), Row("hop::while_loop", _while), Row("hop::scan", _scan)


def _body(
    function: Callable[..., Any],
    args: Sequence[torch.Tensor],
    numbers: list[Any],
    kinds: list[str],
    constants: list[Value],
) -> tuple[Body, Captured]:
    """Capture a body on contiguous operands; its numbers and constants are added to the step's."""

    def dense(*xs: Any) -> list[torch.Tensor]:
        out = function(*xs)
        return [
            t.clone(memory_format=torch.contiguous_format) for t in (out if isinstance(out, (tuple, list)) else [out])
        ]

    captured = capture(dense, args)
    if captured.random or captured.writes:
        raise UnsupportedOpError(
            "a body of torch.cond, while_loop or scan draws random numbers or writes to an operand",
            todo="Draw or write outside the body, and pass the result in.",
        )
    program = Program(
        steps=tuple(captured.steps),
        in_specs=tuple(captured.in_specs),
        outputs=tuple(o.value if o.input < 0 else captured.tensor_args.index(o.input) for o in captured.outputs),
        donate=(),
        key=(),
    )
    mine = [n for step in captured.numbers for n in step]
    body = Body(
        program,
        slice(len(numbers), len(numbers) + len(mine)),
        slice(len(constants), len(constants) + len(captured.constants)),
    )
    numbers += mine
    kinds += program.number_kinds
    constants += captured.constants
    return body, captured


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor that fills its storage, as a body's stand-in for it must: a body is given what the step reads."""
    return tensor.clone(memory_format=torch.contiguous_format)  # free where it is one already


def _record(
    row: Row,
    functions: Sequence[tuple[Callable[..., Any], Sequence[torch.Tensor]]],
    operands: Sequence[torch.Tensor],
    shapes: Callable[[list[Captured]], list[tuple[tuple[int, ...], torch.dtype]]],
    pred: torch.Tensor | None = None,
    **static: int,
) -> list[torch.Tensor]:
    numbers: list[Any] = []
    kinds: list[str] = []
    constants: list[Value] = []
    bodies, captures = [], []
    for function, args in functions:
        body, captured = _body(function, args, numbers, kinds, constants)
        bodies.append(body)
        captures.append(captured)
    tensors = [_whole(t) for t in operands]
    everything = ([pred] if pred is not None else []) + tensors
    reads = [aval_of_tensor(t) for t in everything]
    starts = [s for _, _, own in reads for s in own]
    holders = [make_tensor(_spec_of(v), v) for v in constants]
    constant_reads = [aval_of_tensor(t) for t in holders]
    first = 0 if pred is None else 1
    count = len(tensors)
    bindings: list[tuple[str, Any]] = [] if pred is None else [("pred", ("in", 0))]
    bindings += [
        ("operands", ("list", tuple(("in", first + i) for i in range(count)))),
        ("numbers", ("list", tuple(("num", i) for i in range(len(numbers))))),
        ("constants", ("list", tuple(("in", first + count + i) for i in range(len(constants))))),
        ("bodies", ("const", tuple(bodies))),
        *((name, ("const", value)) for name, value in static.items()),
    ]
    outs = tuple(out_spec(size, contiguous_strides(size), dtype) for size, dtype in shapes(captures))
    template = Template(
        row=row,
        bindings=tuple(bindings),
        avals=tuple(a for _, a, _ in (*reads, *constant_reads)),
        number_kinds="i" * len(starts) + "".join(kinds),
        number_dtypes=(None,) * len(numbers),
        outs=outs,
        compute=None,
    )
    values = [v for v, _, _ in reads] + constants
    results = recorder().record(template, values, (*starts, *numbers))
    return [make_tensor(o, v) for o, v in zip(outs, results, strict=True)]


def _spec_of(value: Value) -> Any:
    shape = value.spec.shape
    return out_spec(shape, contiguous_strides(shape), FROM_NUMPY[np.dtype(value.spec.dtype)])


def _shapes_of(captured: Captured) -> list[tuple[tuple[int, ...], torch.dtype]]:
    return [(o.place[0], o.place[3]) for o in captured.outputs if o.place is not None]


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
    """torch.cond in a capture."""
    tensors = [_whole(t) for t in operands]
    functions = [(true_fn, tensors), (false_fn, tensors)]
    return tuple(_record(COND, functions, tensors, lambda cs: _shapes_of(cs[0]), pred))


def while_loop(cond_fn: Any, body_fn: Any, carried: Sequence[Any], extra: Sequence[Any]) -> Any:
    """torch.while_loop in a capture."""
    tensors = [_whole(t) for t in (*carried, *extra)]
    functions = [(cond_fn, tensors), (body_fn, tensors)]
    count = len(carried)
    return tuple(_record(WHILE, functions, tensors, lambda cs: _shapes_of(cs[1]), carried=count))


def scan(combine_fn: Any, init: Sequence[Any], xs: Sequence[Any], extra: Sequence[Any] = ()) -> Any:
    """torch's scan along dim 0 in a capture."""
    length = xs[0].shape[0]
    tensors = [_whole(t) for t in (*init, *xs, *extra)]
    step_args = [*tensors[: len(init)], *(_whole(x[0]) for x in xs), *tensors[len(init) + len(xs) :]]

    def shapes(captures: list[Captured]) -> list[tuple[tuple[int, ...], torch.dtype]]:
        found = _shapes_of(captures[0])
        return found[: len(init)] + [((length, *size), dtype) for size, dtype in found[len(init) :]]

    static: dict[str, Any] = {"carried": len(init), "scanned": len(xs)}
    return tuple(_record(SCAN, [(combine_fn, step_args)], tensors, shapes, **static))


def register() -> None:
    """Give torch's higher-order operators these meanings while a graph is captured."""
    from torch._higher_order_ops.cond import cond_op
    from torch._higher_order_ops.scan import scan_op
    from torch._higher_order_ops.while_loop import while_loop_op

    key = torch._C.DispatchKey.PrivateUse1
    for op, ours in ((cond_op, cond), (while_loop_op, while_loop), (scan_op, scan)):
        op.py_impl(key)(_choose(op, ours))


def _choose(op: Any, ours: Callable[..., Any]) -> Callable[..., Any]:
    eager = op.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]

    def run(*args: Any) -> Any:
        if recorder().capturing and all(
            isinstance(t, torch.Tensor) for part in args if isinstance(part, (list, tuple)) for t in part
        ):
            return ours(*args)
        return eager(*args)

    return run
