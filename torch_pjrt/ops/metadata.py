"""What torch says of a result before it is computed: size, stride and dtype, by running its meta kernel.

Owns the calls to meta kernels. The answer is cached by the caller per template, so speed matters little here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import _disable_current_modes

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.ops import refusals_indexing, refusals_numbers  # noqa: F401 - they join the tables
from torch_pjrt.ops.operand_dtypes import check_dtypes
from torch_pjrt.ops.refusals import CHECKS

Meta = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]

# Overloads whose meta kernel is missing or wrong: name -> function of the (meta) arguments giving meta tensors.
OVERRIDES: dict[str, Callable[..., Any]] = {}
# Those of them that fake tensors on the device follow too (compile/fake_layouts.py): they give what the schema says.
IN_GRAPHS: set[str] = set()


def meta_override(*names: str, in_graphs: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: use this function in place of torch's meta kernel for these overloads ("aten::x.default")."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            OVERRIDES[name] = fn
        if in_graphs:
            IN_GRAPHS.update(names)
        return fn

    return register


def to_meta(value: Any) -> Any:
    """Tensors become meta tensors of the same size and stride; 0-d CPU tensors (numbers) and all else stay."""
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.dim() == 0 or value.device.type == "meta":
            return value
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return [to_meta(v) for v in value]
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, torch.Generator):
        return None
    return value


def infer(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Meta | None], bool]:
    """Sizes, strides and dtypes of the results of op(*args, **kwargs) (None: undefined), and whether they come as a list.

    Shapes that torch refuses raise torch's own error here, with torch's text.
    """
    with torch._C._DisableTorchDispatch(), _disable_current_modes(), torch._C._AutoDispatchBelowAutograd():
        meta_args = [to_meta(a) for a in args]
        meta_kwargs = {k: to_meta(v) for k, v in kwargs.items()}
        if "device" in meta_kwargs or any(a.name == "device" for a in op._schema.arguments):
            meta_kwargs["device"] = torch.device("meta")
            meta_kwargs.pop("pin_memory", None)
        check_dtypes(op, tuple(meta_args), meta_kwargs)
        check = CHECKS.get(f"{op._schema.name}.{op._overloadname}")
        if check is not None:
            check(*meta_args, **meta_kwargs)
        try:
            result = OVERRIDES.get(f"{op._schema.name}.{op._overloadname}", op)(*meta_args, **meta_kwargs)
        except AssertionError as error:  # how some meta kernels refuse operands
            raise InvalidOperandError(str(error) or f"{op._schema.name} does not accept these operands") from error
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(results) < len(op._schema.returns):
        results = _placed(op, args, kwargs, results)
    is_list = str(op._schema.returns[0].type).startswith("List[") if op._schema.returns else False
    return [None if r is None else (tuple(r.size()), tuple(r.stride()), r.dtype) for r in results], is_list


def _placed(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], results: list[Any]) -> list[Any]:
    """Results of which output_mask asked for some only, with None in the places of the others."""
    given = dict(zip((a.name for a in op._schema.arguments), args), **kwargs)  # noqa: B905 - defaults are left out
    mask = given["output_mask"]
    supply = iter(results)
    return [next(supply) if wanted else None for wanted in mask]
