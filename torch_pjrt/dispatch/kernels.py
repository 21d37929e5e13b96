"""Makes a Python kernel for an overload that has a row: functional, in-place or out=.

Owns the last steps of every op: record, make result tensors, write back. dispatch/table.py decides which overloads get one.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from torch_pjrt.dispatch.bind import Binder, Operand
from torch_pjrt.dispatch.fused import recorder
from torch_pjrt.dispatch.lines import UNKNOWN, Line, Unknown
from torch_pjrt.dispatch.overlap import UNSHARED, UNSHARED_IN_PLACE, checked_in_place, refuse_repeated, refuse_shared
from torch_pjrt.errors import DeviceMismatchError, InvalidOperandError
from torch_pjrt.ops.metadata import infer
from torch_pjrt.ops.registry import Row
from torch_pjrt.ops.schema import Kind, schema_of
from torch_pjrt.program.program import OutSpec, Template
from torch_pjrt.tensor.mutate import aval_of_out, write_value
from torch_pjrt.tensor.random import state_of, take
from torch_pjrt.tensor.storage import Value, aval_of_tensor, cell_of, empty, make_tensor
from torch_pjrt.tensor.streams import check_device

Kernel = Callable[..., Any]


def operand_of(tensor: torch.Tensor) -> Operand:
    """A tensor operand, refused with a clear message when it is on another device."""
    if tensor.device.type == "cpu":
        raise DeviceMismatchError(
            f"Expected all tensors to be on the same device, but found a cpu tensor of shape {list(tensor.shape)} "
            f"({tensor.dtype}) among tensors on {torch._C._get_privateuse1_backend_name()}:0",
            todo=f'Move it first: x.to("{torch._C._get_privateuse1_backend_name()}").',
        )
    return aval_of_tensor(tensor)


class RowKernel:
    """Binds and records calls of one functional overload."""

    def __init__(self, op: OpOverload, row: Row, lane: bool = False):
        self.op = op
        self.row = row
        self.binder = Binder(op, row, operand_of, lane)
        self.bind = self.binder.bind
        self.record = recorder().record

    def step(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], line: Line | Unknown = UNKNOWN
    ) -> tuple[Template, tuple[Value, ...]]:
        """Record one step; gives its template and pending results."""
        template, values, numbers = self.bind(args, kwargs)
        if template.draws:
            numbers = (*numbers, take(state_of(_generator(self.binder, args, kwargs)), template.draws))
        return template, self.record(template, values, numbers, line)


def _generator(binder: Binder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if "generator" in kwargs:
        return kwargs["generator"]
    for argument, arg in zip(binder.arguments, args):  # noqa: B905 - trailing defaults are left out
        if argument.kind is Kind.GENERATOR:
            return arg
    return None


def functional(kernel: RowKernel) -> Kernel:
    """The kernel of a functional overload, as a plain function (faster to call than a bound method)."""
    step, bind, record = kernel.step, kernel.bind, kernel.record
    random = kernel.row.random

    def run(*args: Any, **kwargs: Any) -> Any:
        if random:
            template, outs = step(args, kwargs)
        else:
            template, values, numbers = bind(args, kwargs)
            outs = record(template, values, numbers)
        if template.single:
            return make_tensor(template.outs[0], outs[0])
        return results_of(template, outs)

    if not any(argument.name == "device" for argument in kernel.binder.arguments):
        return run

    def placed(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None:
            if device.type != ours:
                return _placed_elsewhere(kernel.op, device, args, kwargs)
            if device.index:
                check_device(device)
        return run(*args, **kwargs)

    ours = torch._C._get_privateuse1_backend_name()
    return placed


def _placed_elsewhere(op: OpOverload, device: torch.device, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """torch.ones_like(x, device="cpu") and its kin: of x they take no more than its layout, so a twin there serves them."""

    def twin(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)

    return op(*(twin(a) if isinstance(a, torch.Tensor) else a for a in args), **kwargs)


def results_of(template: Template, outs: tuple[Value, ...]) -> Any:
    """Tensors for the results, in the form that the schema returns them."""
    tensors = [make_tensor(o, v) for o, v in zip(template.outs, outs, strict=True)]
    if template.returns_list:
        return tensors
    if template.slots is not None:
        return tuple(undefined() if i is None else tensors[i] for i in template.slots)
    return tuple(tensors)


@functools.cache
def undefined() -> torch.Tensor:
    """Stands for a result that output_mask did not ask for: a Python kernel cannot return C++'s undefined tensor."""
    return empty((0,), None, torch.float32)


def inplace(op: OpOverload, kernel: RowKernel) -> Kernel:
    """The kernel of an in-place overload: its functional twin, then a write to the arguments that the schema marks."""
    positions = schema_of(op).writes
    step, bind, record = kernel.step, kernel.bind, kernel.record
    name = op._schema.name
    random, checked = kernel.row.random, checked_in_place(op, kernel.op)
    own = _own_defaults(op, kernel.op)

    def run(*args: Any, **kwargs: Any) -> Any:
        if len(args) < len(own):
            args = (*args, *own[len(args) :])
        if name in IDEMPOTENT and 0 in args[0].stride():
            run(_written_once(args[0]), *args[1:], **kwargs)
            return args[0]
        if random:
            template, outs = step(args, kwargs)
        else:
            template, values, numbers = bind(args, kwargs)
            if checked and len(values) > 1 and (values[0] is values[1] or values[0] is values[-1]):
                refuse_shared(name, args[0], (*args[1:], *kwargs.values()), UNSHARED_IN_PLACE)
            outs = record(template, values, numbers)
        for position, out, value in zip(positions, template.outs, outs, strict=False):
            target = args[position]
            if target.shape != out.size:
                raise InvalidOperandError(
                    f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(out.size)} in {name}"
                )
            store(target, out, value, name)
        return args[positions[0]]

    return run


# Operators that write one number everywhere, for which torch lets a tensor's elements share memory.
IDEMPOTENT = frozenset(("aten::fill_", "aten::zero_"))


def _written_once(target: torch.Tensor) -> torch.Tensor:
    """An expanded tensor without its repetitions: dims of stride 0 are of size 1."""
    pairs = list(zip(target.shape, target.stride(), strict=True))
    sizes = [min(n, 1) if stride == 0 else n for n, stride in pairs]
    return target.as_strided(sizes, [stride or 1 for _, stride in pairs], target.storage_offset())


def _own_defaults(op: OpOverload, twin: OpOverload) -> tuple[Any, ...]:
    """The in-place overload's positional defaults, if its twin lacks one of them (bernoulli_'s p); else nothing."""
    given = [a for a in schema_of(op).arguments if not a.kwarg_only]
    theirs = {a.name: a.default for a in schema_of(twin).arguments}
    return () if all(theirs.get(a.name) == a.default for a in given) else tuple(a.default for a in given)


def store(target: torch.Tensor, out: OutSpec, value: Value, name: str) -> None:
    """Write a result to a tensor of the same shape, if torch lets its dtype be cast."""
    if out.dtype is not target.dtype and not torch.can_cast(out.dtype, target.dtype):
        raise InvalidOperandError(
            f"result type {_title(out.dtype)} can't be cast to the desired output type {_title(target.dtype)} in {name}"
        )
    write_value(recorder(), target, value, aval_of_out(out))


def store_first(target: torch.Tensor, template: Template, value: Value, name: str) -> None:
    """store() of a step's only result into its first operand: without asking again how that lies in its storage."""
    out, own = template.outs[0], template.avals[0]
    if own.plan is None and out.contiguous and out.spec is own.spec and out.dtype is own.dtype:
        cell_of(target).value = value
    else:
        store(target, out, value, name)


def _title(dtype: torch.dtype) -> str:
    names = {
        torch.int64: "Long",
        torch.int32: "Int",
        torch.float32: "Float",
        torch.float64: "Double",
        torch.bool: "Bool",
    }
    names |= {torch.uint8: "Byte", torch.int8: "Char", torch.int16: "Short", torch.float16: "Half"}
    names |= {torch.bfloat16: "BFloat16", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble"}
    return names.get(dtype, str(dtype))


def out_variant(op: OpOverload, kernel: RowKernel) -> Kernel:
    """The kernel of an out= overload: resize the outputs if needed, then write."""
    schema = schema_of(op)
    names = [schema.arguments[i].name for i in schema.writes]
    step = kernel.step
    accepted: set[tuple[int, tuple[torch.dtype, ...]]] = set()
    # factories have a dtype, and their out= overloads that of the output instead
    typed = any(a.name == "dtype" for a in schema_of(kernel.op).arguments) and all(
        a.name != "dtype" for a in schema.arguments
    )
    chosen = op.name() in COMPUTED_IN_OUTPUT

    def run(*args: Any, **kwargs: Any) -> Any:
        targets = [kwargs.pop(n) for n in names]
        if typed or chosen and kwargs.get("dtype") is None:
            kwargs["dtype"] = targets[0].dtype
        for target in targets:
            refuse_repeated(op._schema.name, target)
            refuse_shared(op._schema.name, target, (*args, *kwargs.values()), UNSHARED)
        template, outs = step(args, kwargs)
        dtypes = tuple(t.dtype for t in targets)
        if (template.id, dtypes) not in accepted:
            if any(o.dtype is not d for o, d in zip(template.outs, dtypes, strict=True)):
                _ask_torch(op, args, kwargs, dict(zip(names, targets, strict=True)))
            accepted.add((template.id, dtypes))
        if any(t.shape != o.size for t, o in zip(targets, template.outs, strict=True)):
            resize(op, dict(zip(names, targets, strict=True)), template.outs, args, kwargs)
        for target, out, value in zip(targets, template.outs, outs, strict=True):
            store(target, out, value, op._schema.name)
        return targets[0] if len(targets) == 1 else tuple(targets)

    return run


RESIZED = (
    "An output with one or more elements was resized since it had shape {}, which does not match the required output shape "
    "{}. This behavior is deprecated; reuse an out tensor t by resizing it to zero elements with t.resize_(0)."
)


def resize(
    op: OpOverload,
    targets: dict[str, torch.Tensor],
    outs: Sequence[OutSpec],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Give out= arguments their results' sizes, and strides that are not row-major where torch's own kernel gives them."""
    odd = []
    for position, (target, out) in enumerate(zip(targets.values(), outs, strict=True)):
        if target.shape != out.size:
            if target.numel():
                warnings.warn(RESIZED.format(list(target.shape), list(out.size)), UserWarning, stacklevel=4)
            target.resize_(out.size)
            if target.stride() != out.stride:
                odd.append((position, target, out))
    if not odd:
        return
    empty = {name: torch.empty(0, dtype=t.dtype, device="meta") for name, t in targets.items()}
    try:
        metas = infer(op, args, kwargs | empty)[0]
    except (NotImplementedError, RuntimeError):
        return
    for position, target, out in odd:
        meta = metas[position]
        if meta is not None and meta[1] == out.stride:
            target.as_strided_(out.size, out.stride)


# Overloads that compute in the dtype of their output, where no other is given.
COMPUTED_IN_OUTPUT = frozenset(("aten::sum.IntList_out", "aten::prod.int_out", "aten::cumsum.out", "aten::cumprod.out"))

# Overloads that take outputs of the result's dtype only, which their meta kernels do not say.
SAME_DTYPE = frozenset(
    f"aten::{n}.out"
    for n in ("complex", "polar", "aminmax", "amax", "amin", "clamp", "index_select", "take", "_int_mm")
)

# Overloads that cast to any inexact output, which their meta kernels refuse.
CASTING = frozenset(("aten::abs.out",))


def _ask_torch(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], outs: dict[str, torch.Tensor]) -> None:
    """Let torch's meta kernel refuse outputs of another dtype than the result's, where it does."""
    if op.name() in SAME_DTYPE:
        raise InvalidOperandError(f"{op.name()}: Expected out tensor to have the dtype of the result")
    if op.name() in CASTING and all(out.is_floating_point() or out.is_complex() for out in outs.values()):
        return
    try:
        infer(op, args, {**kwargs, **outs})
    except NotImplementedError:
        return
