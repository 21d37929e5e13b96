"""Numbers that the dtype they are written as cannot hold: torch refuses them, an array would take them cut or wrapped.

Joins the table of checks that run at every call (ops/refusals.py, AT_CALL).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.ops.refusals import AT_CALL, refuses

Number = bool | int | float | complex


def _limits() -> dict[torch.dtype, float]:
    """The largest number of each dtype (of its parts, if it is complex)."""
    ints = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    floats = (torch.float16, torch.bfloat16, torch.float32, torch.complex64)
    return {d: torch.iinfo(d).max for d in ints} | {d: torch.finfo(d).max for d in floats}


LIMITS = _limits()
HALVES = frozenset((torch.float16, torch.bfloat16))


def _fits(value: Number, dtype: torch.dtype) -> bool:
    if type(value) is complex:
        return dtype.is_complex and _fits(value.real, dtype) and _fits(value.imag, dtype) or not value.imag
    limit = LIMITS.get(dtype)
    if limit is None or 0 <= value <= limit:  # type: ignore[operator]
        return True
    if dtype.is_floating_point or dtype.is_complex:
        return not math.isfinite(value) or abs(value) <= limit  # type: ignore[arg-type]
    if dtype is torch.uint8:
        return type(value) is int and -limit <= value < 0  # negative integers wrap
    return -limit - 1 <= value <= limit  # type: ignore[operator]


def _refuse_number(value: Number, dtype: torch.dtype | None) -> None:
    if dtype is not None and dtype is not torch.bool and not _fits(value, dtype):
        raise InvalidOperandError(f"value {value} cannot be converted to type {dtype} without overflow")


@refuses("fill_.Scalar", "fill.Scalar", table=AT_CALL)
def fill(self: torch.Tensor, value: Any) -> None:
    _refuse_number(value, self.dtype)


@refuses("masked_fill_.Scalar", "masked_fill.Scalar", table=AT_CALL)
def masked_fill(self: torch.Tensor, mask: torch.Tensor, value: Any) -> None:
    _refuse_number(value, self.dtype)


@refuses("index_fill_.int_Scalar", "index_fill.int_Scalar", table=AT_CALL)
def index_fill(self: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> None:
    _refuse_number(value, self.dtype)


@refuses("full.default", table=AT_CALL)
def full(size: Any, fill_value: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> None:
    _refuse_number(fill_value, dtype)


@refuses("full_like.default", table=AT_CALL)
def full_like(self: torch.Tensor, fill_value: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> None:
    _refuse_number(fill_value, dtype or self.dtype)


@refuses("new_full.default", table=AT_CALL)
def new_full(
    self: torch.Tensor, size: Any, fill_value: Any, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> None:
    _refuse_number(fill_value, dtype or self.dtype)


@refuses("scalar_tensor.default", table=AT_CALL)
def scalar_tensor(s: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> None:
    if (
        dtype not in HALVES or type(s) is complex
    ):  # in which torch makes infinity of large numbers here, as in x[0] = 1e9
        _refuse_number(s, dtype)
