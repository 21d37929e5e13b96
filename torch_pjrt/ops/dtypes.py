"""torch dtypes, their NumPy/XLA twins, and torch's promotion.

Owns the one mapping between the two worlds. Promotion itself is asked of torch (torch.result_type), never re-derived.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from torch_pjrt.errors import UnsupportedDtypeError


class _Twins(dict[torch.dtype, np.dtype]):
    """The mapping to NumPy, with an error meant for the user where a dtype has no twin."""

    def __missing__(self, dtype: torch.dtype) -> np.dtype:
        todo = "Use torch.complex64." if dtype is torch.complex32 else "Keep such tensors on the CPU."
        raise UnsupportedDtypeError(f"the device has no dtype {dtype}: XLA does not know it", todo=todo)


TO_NUMPY: dict[torch.dtype, np.dtype] = _Twins(
    {
        torch.bool: np.dtype(np.bool_),
        torch.uint8: np.dtype(np.uint8),
        torch.int8: np.dtype(np.int8),
        torch.int16: np.dtype(np.int16),
        torch.int32: np.dtype(np.int32),
        torch.int64: np.dtype(np.int64),
        torch.uint16: np.dtype(np.uint16),
        torch.uint32: np.dtype(np.uint32),
        torch.uint64: np.dtype(np.uint64),
        torch.float16: np.dtype(np.float16),
        torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
        torch.float32: np.dtype(np.float32),
        torch.float64: np.dtype(np.float64),
        torch.complex64: np.dtype(np.complex64),
        torch.complex128: np.dtype(np.complex128),
        torch.float8_e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
        torch.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
        torch.float8_e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
        torch.float8_e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
    }
)
FROM_NUMPY: dict[np.dtype, torch.dtype] = {v: k for k, v in TO_NUMPY.items()}

_SMALLEST_0D = {
    "f": torch.zeros((), dtype=torch.bfloat16, device="cpu"),
    "c": torch.zeros((), dtype=torch.complex64, device="cpu"),
    "i": torch.zeros((), dtype=torch.int8, device="cpu"),
}


def category(dtype: torch.dtype) -> str:
    """One of "c", "f", "i", "b", in falling order of torch's promotion lattice."""
    if dtype.is_complex:
        return "c"
    if dtype.is_floating_point:
        return "f"
    return "b" if dtype is torch.bool else "i"


_WRAPPED_PROBES = {
    torch.float64: (_SMALLEST_0D["f"], torch.bfloat16),
    torch.int64: (_SMALLEST_0D["i"], torch.int8),
    torch.complex128: (_SMALLEST_0D["c"], torch.complex64),
}


def is_wrapped_number(tensor: torch.Tensor) -> bool:
    """Whether a 0-d CPU tensor is a Python number that torch wrapped (those do not promote within their category)."""
    probe = _WRAPPED_PROBES.get(tensor.dtype)
    return probe is not None and torch.result_type(probe[0], tensor) is probe[1]


def int_to_float(dtype: torch.dtype) -> torch.dtype:
    """torch's rule for true division and transcendental functions: integers become the default float dtype."""
    return torch.get_default_dtype() if category(dtype) in "ib" else dtype


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype that arithmetic is done in: float32 for the 16-bit and 8-bit floats, as torch's CPU kernels do."""
    return torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype


def common_dtype(operands: list[torch.Tensor | int | float | bool | complex]) -> torch.dtype:
    """torch's result type of any number of operands: tensors (any device; only dtype and rank are read) and numbers."""
    return _combine([_state(x) for x in operands])


_Entry = tuple[int, torch.dtype]


def _state(x: torch.Tensor | int | float | bool | complex) -> _Entry:
    if isinstance(x, torch.Tensor):
        if x.dim() > 0:
            return (2, x.dtype)
        return (0, x.dtype) if x.device.type == "cpu" and is_wrapped_number(x) else (1, x.dtype)
    return (0, {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}[type(x)])


def _combine(entries: list[_Entry]) -> torch.dtype:
    """ATen's result_type: per rank class (with dims, 0-d, wrapped numbers), then across classes by category."""
    result: dict[int, torch.dtype] = {}
    for rank, dtype in entries:
        if rank == 0 and dtype is torch.float64:
            dtype = torch.get_default_dtype()
        if rank == 0 and dtype is torch.complex128:
            dtype = torch.complex64 if torch.get_default_dtype() is not torch.float64 else torch.complex128
        result[rank] = torch.promote_types(result[rank], dtype) if rank in result else dtype
    out = result.get(2)
    for rank in (1, 0):
        other = result.get(rank)
        if other is None:
            continue
        if out is None:
            out = other
        elif category(out) == "f" and category(other) == "c":
            out = out.to_complex()  # of the width that the tensor with more dims has
        elif "bifc".index(category(other)) > "bifc".index(category(out)):
            out = torch.promote_types(out, other)
    assert out is not None
    return out
