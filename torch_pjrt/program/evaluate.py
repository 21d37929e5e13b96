"""The only evaluator: turns a Program into a pure function of arrays, row by row.

Used by the compiler for every mode (eager, fused, torch.compile, export). It casts and broadcasts what rows ask to have
cast and broadcast, reads views, stores results in memory order, and checks results against what torch says they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax import lax

from torch_pjrt.errors import LoweringMismatchError
from torch_pjrt.lowerings.arrays import as_dtype
from torch_pjrt.ops.dtypes import TO_NUMPY
from torch_pjrt.ops.registry import Checked, Promote
from torch_pjrt.program.access import read
from torch_pjrt.program.program import Program, Template

Array = Any

NUMBER_WORDS = {"i": 2, "f": 2, "b": 2, "c": 4, "s": 4}
_DTYPES = {"i": np.int64, "f": np.float64, "c": np.complex128, "b": np.bool_}


def decode_numbers(words: Array, kinds: str, narrow: bool = False) -> list[Array]:
    """The 0-d operands packed in a uint32 vector (see pjrt/buffers.py), as int64, float64, complex128, bool, uint32[4].

    narrow: floats are float32 (in the first words of their places), complex ones complex64.
    """
    out, at = [], 0
    for kind in kinds:
        width = NUMBER_WORDS[kind]
        part = lax.slice(words, (at,), (at + width,))
        at += width
        if kind == "s":
            out.append(part)
        elif kind == "b":
            out.append(lax.ne(lax.index_in_dim(part, 0, 0, False), np.uint32(0)))
        elif narrow and kind in "fc":
            floats = lax.bitcast_convert_type(part, np.float32)
            first = lax.index_in_dim(floats, 0, 0, False)
            out.append(first if kind == "f" else lax.complex(first, lax.index_in_dim(floats, 1, 0, False)))
        elif kind == "c":
            pairs = lax.bitcast_convert_type(lax.reshape(part, (2, 2)), np.float64)
            out.append(lax.complex(lax.index_in_dim(pairs, 0, 0, False), lax.index_in_dim(pairs, 1, 0, False)))
        else:
            out.append(lax.bitcast_convert_type(part, _DTYPES[kind]))
    return out


def cast(x: Array, dtype: np.dtype) -> Array:
    """Convert as torch does: complex to real drops the imaginary part, to bool is `!= 0`; NaN and inf to int as XLA does."""
    if x.dtype == dtype:
        return x
    if np.issubdtype(x.dtype, np.complexfloating) and not np.issubdtype(dtype, np.complexfloating):
        if dtype == np.bool_:
            return lax.ne(x, lax.full_like(x, 0))
        x = lax.real(x)
    if np.issubdtype(dtype, np.unsignedinteger) and np.issubdtype(x.dtype, np.floating):
        x = lax.convert_element_type(x, np.int64)  # negative floats wrap, as in C on the chips torch runs on
    elif dtype.kind == "i" and dtype.itemsize < 4 and x.dtype.kind not in "iub":
        x = lax.convert_element_type(x, np.int32)
    return as_dtype(x, dtype)


def _widened(dtype: np.dtype) -> np.dtype:
    """float32 for the floats below 32 bits, else the dtype itself."""
    if dtype.kind == "V" or dtype == np.float16 or dtype.name.startswith(("bfloat16", "float8")):
        return np.dtype(np.float32)
    return dtype


def _common_shape(arrays: Sequence[Array]) -> tuple[int, ...]:
    """The shape to which arrays broadcast; its sizes may be symbolic ones of jax.export."""
    return lax.broadcast_shapes(*(a.shape for a in arrays)) if arrays else ()


def _promoted(template: Template, arrays: list[Array], numbers: list[Array]) -> tuple[list[Array], list[Array]]:
    compute = template.compute
    assert compute is not None
    wide = _widened(compute)
    predicate = TO_NUMPY[template.outs[0].dtype] == np.bool_  # numbers are compared in the tensors' own precision
    arrays = [a if i in template.kept else cast(cast(a, compute), wide) for i, a in enumerate(arrays)]
    numbers = [
        n
        if kind == "s"
        else cast(cast(n if dtype is None else cast(n, dtype), compute) if dtype or predicate else n, wide)
        for n, dtype, kind in zip(
            numbers, template.number_dtypes, template.number_kinds[template.num_starts :], strict=True
        )
    ]
    if template.row.broadcast:
        shape = _common_shape(arrays)
        arrays = [lax.broadcast_in_dim(a, shape, range(len(shape) - a.ndim, len(shape))) for a in arrays]
        numbers = [n if n.ndim else lax.broadcast(n, shape) for n in numbers]
    return arrays, numbers


def _fixed(template: Template, value: Any, shape: tuple[int, ...]) -> Array:
    """A Scalar that was left at its default: a constant, in the dtype and shape that an operand would have."""
    if template.row.promote is Promote.NONE:
        return np.asarray(
            value, {float: np.float64, int: np.int64, bool: np.bool_, complex: np.complex128}[type(value)]
        )
    assert template.compute is not None
    return lax.full(shape if template.row.broadcast else (), value, _widened(template.compute))


def _bind(template: Template, arrays: list[Array], numbers: list[Array]) -> dict[str, Any]:
    shape = _common_shape(arrays) if template.row.broadcast else ()

    def pick(binding: tuple[str, Any]) -> Any:
        kind, what = binding
        if kind == "in":
            return arrays[what]
        if kind == "num":
            return numbers[what]
        if kind == "fixed":
            return _fixed(template, what, shape)
        if kind == "list":
            return [pick(b) for b in what]
        return what

    return {name: pick(binding) for name, binding in template.bindings}


def _stored(template: Template, index: int, result: Array) -> Array:
    """A result as its payload: checked against torch's shape and dtype, dims in memory order."""
    want = template.outs[index]
    dtype = TO_NUMPY[want.dtype]
    if template.row.promote is not Promote.NONE:
        result = cast(result, dtype)
    if tuple(result.shape) != want.size and _open(result.shape) and _open(want.size):
        result = lax.reshape(result, want.size)  # one size, written as two formulas
    if tuple(result.shape) != want.size or result.dtype != dtype:
        raise LoweringMismatchError(
            f"the row for {template.row.name} gave {result.dtype}{list(result.shape)} as result {index}; "
            f"torch says {dtype}{list(want.size)} (operands {', '.join(map(str, template.avals))})",
            todo="This is a bug in torch-pjrt; please report it with these operands.",
        )
    return result if want.perm is None else lax.transpose(result, want.perm)


def _open(size: Sequence[Any]) -> bool:
    """Whether a size is a symbolic one of jax.export."""
    return not all(isinstance(n, int) for n in size)


def _is_contiguous(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """torch's row-major test: strides of dims of one element do not matter."""
    expected = 1
    for n, step in zip(reversed(size), reversed(stride), strict=True):
        if n != 1 and step != expected:
            return 0 in size
        expected *= n
    return True


def _results(
    template: Template, payloads: Sequence[Array], numbers: list[Array], precision: Any = None, platform: str = ""
) -> tuple[list[Array], Array | None]:
    """Call the row: its results as it gave them, and the 0-d bool that says a bad index was met (or None)."""
    starts, own = numbers[: template.num_starts], numbers[template.num_starts :]
    arrays, at = [], 0
    for aval, payload in zip(template.avals, payloads, strict=True):
        count = aval.plan.num_starts if aval.plan is not None else 0
        arrays.append(read(payload, aval.plan, starts[at : at + count]))
        at += count
    if template.row.promote is not Promote.NONE:
        arrays, own = _promoted(template, arrays, own)
    else:
        own = [n if d is None else cast(n, d) for n, d in zip(own, template.number_dtypes, strict=True)]
    arguments = _bind(template, arrays, own)
    if template.row.wants_out and "out" not in arguments:  # attention's backward has an argument of that name
        arguments["out"] = tuple((o.size, TO_NUMPY[o.dtype]) for o in template.outs)
    if template.row.wants_platform:
        arguments["platform"] = platform
    if template.row.wants_precision:
        arguments["precision"] = precision
    if template.row.wants_contiguous:
        arguments["contiguous"] = tuple(_is_contiguous(a.size, a.stride) for a in template.avals)
    result = template.row.fn(**arguments)
    bad = None
    if isinstance(result, Checked):
        result, bad = result
    if template.row.dynamic:
        found, count = result
        result = [*(found if isinstance(found, (tuple, list)) else [found]), count]
    return list(result) if isinstance(result, (tuple, list)) else [result], bad


def evaluate_step(
    template: Template, payloads: Sequence[Array], numbers: list[Array], precision: Any = None, platform: str = ""
) -> tuple[list[Array], Array | None]:
    """One step: payloads in, payloads out, and the 0-d bool that says a bad index was met (or None)."""
    results, bad = _results(template, payloads, numbers, precision, platform)
    if len(results) != len(template.outs):
        raise LoweringMismatchError(f"{template.row.name} gave {len(results)} results, not {len(template.outs)}")
    return [_stored(template, i, r) for i, r in enumerate(results)], bad


def result_shapes(template: Template) -> list[tuple[tuple[int, ...], np.dtype]]:
    """Shapes and dtypes that the row itself gives, for overloads of which torch cannot say (data-dependent sizes)."""
    words = sum(NUMBER_WORDS[k] for k in template.number_kinds)
    inputs = [jax.ShapeDtypeStruct(a.spec.shape, a.spec.dtype) for a in template.avals]

    def run(words: Array, *payloads: Array) -> list[Array]:
        return _results(template, payloads, decode_numbers(words, template.number_kinds))[0]

    with jax.enable_x64(True):
        found = jax.eval_shape(run, jax.ShapeDtypeStruct((words,), np.uint32), *inputs)
    return [(tuple(f.shape), np.dtype(f.dtype)) for f in found]


def run_steps(
    program: Program,
    numbers: Sequence[Array],
    inputs: Sequence[Array],
    precision: Any = None,
    scopes: Sequence[str] | None = None,
    platform: str = "",
) -> tuple[list[Array], Array]:
    """The Program's outputs, and the number of the first step that met a bad index (int32, -1: none).

    scopes: a name per step that its operations carry in the compiler's texts and errors ("mm@model.py:12").
    """
    values, at = list(inputs), 0
    first_bad: Array = np.int32(-1)
    for position, (template, operands) in enumerate(program.steps):
        count = len(template.number_kinds)
        own = list(numbers[at : at + count])
        with named(scopes[position] if scopes is not None else f"{template.row.title}@"):
            results, bad = evaluate_step(template, [values[i] for i in operands], own, precision, platform)
        at += count
        values.extend(results)
        if bad is not None:
            here = lax.select(bad, np.int32(position), np.int32(-1))
            known = not isinstance(first_bad, np.int32)
            first_bad = lax.select(lax.lt(first_bad, np.int32(0)), here, first_bad) if known else here
    return [values[i] for i in program.outputs], first_bad


@contextmanager
def named(scope: str) -> Iterator[None]:
    """A scope "title@place" for one step; what a row raises says in which step it was.

    XLA names instructions by what comes before the @. Without it they would have JAX's names, of which some differ from
    XLA's own by a hyphen only: dynamic_slice.1 and dynamic-slice.1. The fusion emitters of XLA (jaxlib 0.10) make one name
    of the two, and then read the one where the other is meant.
    """
    try:
        with jax.named_scope(scope):
            yield
    except Exception as error:
        error.add_note(f"in the step {scope.removesuffix('@')}")
        raise


def evaluate(
    program: Program,
    precision: Any = None,
    scopes: Sequence[str] | None = None,
    narrow: bool = False,
    platform: str = "",
) -> Callable[..., tuple[Array, ...]]:
    """The Program as a function (words, *payloads) -> outputs; the check's int32 comes last when there is one."""

    def run(words: Array, *inputs: Array) -> tuple[Array, ...]:
        with named("numbers@"):
            numbers = decode_numbers(words, program.number_kinds, narrow)
        outputs, bad = run_steps(program, numbers, inputs, precision, scopes, platform)
        if program.checked:
            outputs.append(lax.convert_element_type(bad, np.int32))
        return tuple(outputs)

    return run
