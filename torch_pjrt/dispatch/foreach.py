"""Operators on lists of tensors: one recorded step per tensor, without going through the dispatcher for each.

Owns _foreach_*, the fused optimizers and the loss scaler. The steps are marked as lanes, so that program/cut.py may put
all steps of one tensor together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt.dispatch.internal import internal
from torch_pjrt.dispatch.kernels import RowKernel, store, store_first
from torch_pjrt.dispatch.lines import user_line
from torch_pjrt.ops.registry import ROWS
from torch_pjrt.ops.schema import find_overload
from torch_pjrt.tensor.storage import make_tensor

Tensors = Sequence[torch.Tensor]

UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round "
    "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()
# base name -> the row for (tensor, number or tensor)
BINARY = {
    "add": "add.Tensor",
    "sub": "sub.Tensor",
    "mul": "mul.Tensor",
    "div": "div.Tensor",
    "clamp_max": "minimum.default",
    "clamp_min": "maximum.default",
    "maximum": "maximum.default",
    "minimum": "minimum.default",
}
# the rows for (tensor, number) where the one for tensors takes no numbers
WITH_NUMBERS = {
    "clamp_max": "clamp_max.default",
    "clamp_min": "clamp_min.default",
    "maximum": "clamp_min.default",
    "minimum": "clamp_max.default",
}


def _lane(name: str) -> RowKernel | None:
    row = ROWS.get(f"aten::{name}")
    op = find_overload(f"aten::{name}")
    return None if row is None or op is None else RowKernel(op, row, lane=True)


def _each(kernel: RowKernel, spread: Callable[..., list[tuple[tuple[Any, ...], dict[str, Any]]]]) -> Callable[..., Any]:
    """The functional list operator: spread(args) gives the arguments of each tensor's step."""

    def run(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        out, line = [], user_line()
        for one_args, one_kwargs in spread(*args, **kwargs):
            template, values = kernel.step(one_args, one_kwargs, line)
            out.append(make_tensor(template.outs[0], values[0]))
        return out

    return run


def _each_inplace(kernel: RowKernel, spread: Callable[..., Any], name: str) -> Callable[..., None]:
    def run(self: Tensors, *args: Any, **kwargs: Any) -> None:
        line = user_line()
        for target, (one_args, one_kwargs) in zip(self, spread(self, *args, **kwargs), strict=True):
            template, values = kernel.step(one_args, one_kwargs, line)
            store_first(target, template, values[0], name)

    return run


def _same(self: Tensors, *rest: Any, **kwargs: Any) -> list[Any]:
    """Every tensor with the same further arguments."""
    return [((t, *rest), kwargs) for t in self]


def _zipped(self: Tensors, *rest: Any, **kwargs: Any) -> list[Any]:
    """Lists go element by element; numbers and single tensors go to each."""
    columns = [r if isinstance(r, (list, tuple)) else [r] * len(self) for r in rest]
    return [(row, kwargs) for row in zip(self, *columns, strict=True)]


def _pair(library: torch.library.Library, base: str, overload: str, row: str, spread: Callable[..., Any]) -> None:
    """Register _foreach_base.overload and its in-place twin over a row, if this torch has them."""
    kernel = _lane(row)
    if kernel is None:
        return
    for name, make in ((f"_foreach_{base}", _each), (f"_foreach_{base}_", _each_inplace)):
        if find_overload(f"aten::{name}.{overload}") is None:
            continue
        run = make(kernel, spread) if make is _each else _each_inplace(kernel, spread, name)
        library.impl(name if overload == "default" else f"{name}.{overload}", run, "PrivateUse1")


def _addc(kernel_name: str) -> Callable[..., Any]:
    def spread(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Any = 1) -> list[Any]:
        if isinstance(scalars, torch.Tensor):
            scalars = scalars.tolist()
        values = scalars if isinstance(scalars, (list, tuple)) else [scalars] * len(self)
        return [((a, b, c), {"value": v}) for a, b, c, v in zip(self, tensor1, tensor2, values, strict=True)]

    return spread


def _norm(self: Tensors, ord: float = 2, dtype: torch.dtype | None = None) -> list[Any]:
    return [((t, ord, None, False), {"dtype": dtype} if dtype is not None else {}) for t in self]


def _zero_(self: Tensors) -> None:
    for t in self:
        t.zero_()


# -- fused optimizers --------------------------------------------------------------------------------------------------


def _fused(step: str, lists: int, steps_at: int | None) -> Callable[..., None]:
    """aten::_fused_*_: `lists` argument lists (possibly empty), one of which counts steps and is not written."""

    def run(*args: Any, **kwargs: Any) -> None:
        columns, rest = args[:lists], args[lists:]
        lr = kwargs.get("lr")
        on_device = isinstance(lr, torch.Tensor) and lr.device.type != "cpu"
        if isinstance(lr, torch.Tensor) and not on_device:
            kwargs["lr"] = lr.item()
        kernel = internal(f"{step}.tensor_lr" if on_device else step)
        line = user_line()
        for i in range(len(columns[0])):
            row = [c[i] if i < len(c) else None for c in columns]
            template, outs = kernel.step((*row, *rest), kwargs, line)
            targets = [t for position, t in enumerate(row) if t is not None and position != steps_at]
            for target, out, value in zip(targets, template.outs, outs, strict=True):
                store(target, out, value, step)

    return run


FUSED = {"adam": (6, 5), "adamw": (6, 5), "sgd": (3, None), "adagrad": (4, 3)}


def _unscale(self: Tensors, found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    """Divide gradients by the loss scale and note whether any was not finite."""
    kernel = internal("amp_unscale")
    for grad in self:
        template, outs = kernel.step((grad, found_inf, inv_scale), {})
        store(grad, template.outs[0], outs[0], "_amp_foreach_non_finite_check_and_unscale_")
        store(found_inf, template.outs[1], outs[1], "_amp_foreach_non_finite_check_and_unscale_")


def register(library: torch.library.Library) -> None:
    """Register the list operators."""
    for name in UNARY:
        _pair(library, name, "default", f"{name}.default", _same)
    for base, row in BINARY.items():
        for overload in ("Scalar", "List", "ScalarList", "Tensor"):
            numbers = overload in ("Scalar", "ScalarList")
            _pair(library, base, overload, WITH_NUMBERS.get(base, row) if numbers else row, _zipped)
    for base in ("addcmul", "addcdiv"):
        for overload in ("Scalar", "ScalarList", "Tensor"):
            _pair(library, base, overload, f"{base}.default", _addc(base))
    _pair(library, "lerp", "List", "lerp.Tensor", _zipped)
    _pair(library, "lerp", "Scalar", "lerp.Scalar", _zipped)
    _pair(library, "lerp", "ScalarList", "lerp.Scalar", _zipped)
    _pair(library, "pow", "List", "pow.Tensor_Tensor", _zipped)
    _pair(library, "pow", "Scalar", "pow.Tensor_Scalar", _zipped)
    _pair(library, "pow", "ScalarList", "pow.Tensor_Scalar", _zipped)
    _pair(library, "norm", "Scalar", "linalg_vector_norm.default", _norm)
    library.impl("_foreach_zero_", _zero_, "PrivateUse1")
    for name, (lists, steps_at) in FUSED.items():
        run = _fused(f"{name}_step", lists, steps_at)
        library.impl(f"_fused_{name}_", run, "PrivateUse1")
        library.impl(f"_fused_{name}_.tensor_lr", run, "PrivateUse1")
    library.impl("_amp_foreach_non_finite_check_and_unscale_", _unscale, "PrivateUse1")
