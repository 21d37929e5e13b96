"""Turns one operator call into a Template, its operands and its numbers.

Owns the key that says two calls are the same computation. `Binder` is made once per overload; bind() is the hot path of
every eager op, so it is one plain loop. What a tensor's payload is comes from the `operand_of` function that the caller
gives: tensor -> (Value, Aval, starts).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch._ops import OpOverload

from torch_pjrt.ops.dtypes import FROM_NUMPY, TO_NUMPY, category, common_dtype, int_to_float, is_wrapped_number
from torch_pjrt.ops.metadata import infer
from torch_pjrt.ops.registry import Promote, Row
from torch_pjrt.ops.schema import Argument, Kind, schema_of
from torch_pjrt.program.evaluate import result_shapes
from torch_pjrt.program.program import Aval, OutSpec, Template, out_spec
from torch_pjrt.tensor.layout import aval_of, contiguous_strides, found

Operand = tuple[Any, Aval, tuple[int, ...]]
Bound = tuple[Template, list[Any], tuple[Any, ...]]

get_default_dtype = torch.get_default_dtype
_NUMBER_LETTER = {float: "f", int: "i", bool: "b", complex: "c"}
_RANK = {"b": 0, "i": 1, "f": 2, "c": 3}
_CODES = {Kind.TENSOR: 0, Kind.TENSORS: 1, Kind.SCALAR: 2, Kind.STATIC: 3, Kind.DROPPED: 4, Kind.GENERATOR: 5}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, (list, tuple)) else value


class Binder:
    """Binds calls of one overload to Templates of its row."""

    def __init__(self, op: OpOverload, row: Row, operand_of: Callable[[torch.Tensor], Operand], lane: bool = False):
        self.op = op
        self.lane = lane
        self.row = row
        self.operand_of = operand_of
        self.arguments = schema_of(op).arguments
        self.codes = tuple(self._code(a) for a in self.arguments)
        self.by_name = {a.name: self._code(a) for a in self.arguments}
        self.templates: dict[tuple[Any, ...], Template] = {}

    def _code(self, argument: Argument) -> int:
        if argument.kind is Kind.SCALAR and argument.name in self.row.static:
            return 6
        if argument.is_int and argument.name in self.row.operands:
            return 2
        return _CODES[argument.kind]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        """The template (new or known), the tensor operands' Values, and the numbers (starts first)."""
        key: list[Any] = []
        values: list[Any] = []
        starts: tuple[int, ...] = ()
        numbers: list[Any] = []
        for code, arg in zip(self.codes, args):  # noqa: B905 - trailing defaults are left out
            if code == 0:
                try:
                    value = arg.untyped_storage()._pjrt.value
                except AttributeError:
                    starts = self._slow(code, arg, key, values, starts, numbers)
                    continue
                place = (value.spec, arg.shape, arg.stride(), arg.storage_offset(), arg.dtype)
                known = found.get(place)
                aval, more = aval_of(*place) if known is None else known
                key.append(aval)
                values.append(value)
                if more:
                    starts += more
            elif code == 3:
                key.append(arg if type(arg) is not list else _frozen(arg))
            else:
                starts = self._slow(code, arg, key, values, starts, numbers)
        if kwargs:
            for name, arg in kwargs.items():
                key.append(name)
                starts = self._slow(self.by_name[name], arg, key, values, starts, numbers)
        if get_default_dtype() is not torch.float32:
            key.append(get_default_dtype())
        frozen = tuple(key)
        template = self.templates.get(frozen)
        if template is None:
            template = self.templates[frozen] = self._build(args, kwargs)
        return template, values, starts if not numbers else (*starts, *numbers)

    def _slow(
        self,
        code: int,
        arg: Any,
        key: list[Any],
        values: list[Any],
        starts: tuple[int, ...],
        numbers: list[Any],
    ) -> tuple[int, ...]:
        if arg is None or code == 4 or code == 5:
            key.append(None)
        elif isinstance(arg, torch.Tensor):
            if arg.device.type == "cpu" and arg.dim() == 0:
                key.append(arg.dtype if is_wrapped_number(arg) else (arg.dtype,))
                numbers.append(arg.item())
            else:
                value, aval, more = self.operand_of(arg)
                key.append(aval)
                values.append(value)
                return starts + more
        elif code == 1:
            key.append(len(arg))
            for item in arg:
                starts = self._slow(0, item, key, values, starts, numbers)
        elif code == 2 or code == 0:  # code 0: a plain number where the schema says Tensor, as captured graphs have
            key.append(type(arg))
            numbers.append(arg)
        elif code == 6:
            key.append((type(arg), _frozen(arg)))
        else:
            key.append(_frozen(arg))
        return starts

    def _build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Template:
        """A new Template: where each argument comes from, the compute dtype, and what torch says of the results."""
        builder = _Builder(self)
        given = {a.name: arg for a, arg in zip(self.arguments, args)}  # noqa: B905
        given.update(kwargs)
        bindings = []
        for argument in self.arguments:
            code = self.by_name[argument.name]
            if code in (4, 5):
                continue
            if code == 2 and argument.name not in given and argument.default is not None:
                bindings.append((argument.name, ("fixed", argument.default)))
                continue
            value = given.get(argument.name, argument.default)
            builder.keeping = argument.name in self.row.keep
            bindings.append((argument.name, builder.binding(code, value)))
        if self.row.random:
            bindings.append(("rng", ("num", len(builder.kinds))))
            builder.kinds.append("s")
            builder.dtypes.append(None)
        starts = "i" * sum(a.plan.num_starts for a in builder.avals if a.plan is not None)
        blank = Template(
            row=self.row,
            bindings=tuple(bindings),
            avals=tuple(builder.avals),
            number_kinds=starts + "".join(builder.kinds),
            number_dtypes=tuple(builder.dtypes),
            outs=(),
            compute=None,
            kept=frozenset(builder.kept),
            lane=self.lane,
        )
        results, is_list = self._results(blank, args, kwargs)
        metas = [m for m in results if m is not None]
        outs = tuple(out_spec(*m) for m in metas)
        return dataclasses.replace(
            blank,
            outs=outs,
            compute=builder.compute_dtype(metas[0][2]) if metas else None,
            draws=_draws(self.row.random, outs, builder.avals) if self.row.random else 0,
            returns_list=is_list,
            slots=_slots(results),
        )

    def _results(self, blank: Template, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], bool]:
        """What torch's meta kernel says of the results; the row itself where sizes depend on values or torch has none."""
        if not self.row.dynamic:
            try:
                return infer(self.op, args, kwargs)
            except NotImplementedError:
                if self.row.wants_out or self.row.promote is not Promote.NONE:
                    raise
        shapes = result_shapes(blank)
        return [(s, contiguous_strides(s), FROM_NUMPY[d]) for s, d in shapes], False


def _slots(found: list[Any]) -> tuple[int | None, ...] | None:
    """Which result each return is, when some returns are undefined."""
    if all(m is not None for m in found):
        return None
    supply = iter(range(len(found)))
    return tuple(None if m is None else next(supply) for m in found)


def _draws(words: int, outs: tuple[OutSpec, ...], avals: list[Aval]) -> int:
    """How far a step moves the generator's offset: its words, rounded up to whole blocks of four."""
    sizes = [int(np.prod(o.size, dtype=np.int64)) for o in outs] or [0]
    sizes += [int(np.prod(a.size, dtype=np.int64)) for a in avals[:1]]
    return -(-max(sizes) * words // 4) * 4 + 4


class _Builder:
    """Collects operands and numbers in the order in which bind() does."""

    def __init__(self, binder: Binder):
        self.binder = binder
        self.avals: list[Aval] = []
        self.kinds: list[str] = []
        self.dtypes: list[np.dtype | None] = []
        self.promoting: list[Any] = []
        self.kept: list[int] = []
        self.keeping = False

    def binding(self, code: int, value: Any) -> tuple[str, Any]:
        if value is None:
            return ("const", None)
        if isinstance(value, torch.Tensor):
            if self.keeping:
                self.kept.append(len(self.avals))
            else:
                self.promoting.append(value)
            if value.device.type == "cpu" and value.dim() == 0:
                return self._number(category(value.dtype), TO_NUMPY[value.dtype] if value.dtype.itemsize < 8 else None)
            self.avals.append(self.binder.operand_of(value)[1])
            return ("in", len(self.avals) - 1)
        if code == 1:
            return ("list", tuple(self.binding(0, v) for v in value))
        if code == 2 or code == 0:
            self.promoting.append(value)
            return self._number(_NUMBER_LETTER[type(value)], None)
        if isinstance(value, torch.dtype):
            return ("const", TO_NUMPY.get(value))
        return ("const", _frozen(value))

    def _number(self, letter: str, dtype: np.dtype | None) -> tuple[str, Any]:
        self.kinds.append(letter)
        self.dtypes.append(dtype)
        return ("num", len(self.kinds) - 1)

    def compute_dtype(self, out: torch.dtype) -> np.dtype | None:
        """The dtype a promoting row computes in: the result's, or (for predicates, abs of complex) the operands' common one."""
        row = self.binder.row
        if row.promote is Promote.NONE:
            return None
        if not self.promoting:
            return TO_NUMPY[out]
        dtype = common_dtype([x for x in self.promoting if isinstance(x, torch.Tensor)] or self.promoting)
        if out is torch.bool:
            dtype = common_dtype(self.promoting)
        elif _RANK[category(out)] >= _RANK[category(dtype)]:
            dtype = out
        if row.promote is Promote.INT_TO_FLOAT:
            dtype = int_to_float(dtype)
        return TO_NUMPY[dtype]
