"""Storages of the device: plain torch storages whose Python attribute holds the payload.

Owns Value (one immutable payload, ready or pending), Cell (the mutable slot on a storage) and the making of tensors.
The address of a storage is a unique fake one: never dereferenced, but libraries compare it to find shared tensors.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.ops.dtypes import TO_NUMPY
from torch_pjrt.program.program import Aval, OutSpec, Spec, out_spec, spec
from torch_pjrt.tensor.layout import aval_of, contiguous_strides
from torch_pjrt.tensor.memory_ledger import ledger

READY, UNFILLED, FAILED = -1, -2, -3

_CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_set = torch.ops.aten.set_.source_Storage_storage_offset._handle.redispatch_boxed
_new_tensor = torch._C._acc.create_empty_tensor
_new_storage = torch._C._construct_storage_from_data_pointer
_next_address = 1 << 44


class Value:
    """One payload. index >= 0: result number `index` of the pending Program; READY: `array` holds it.

    UNFILLED: memory nobody has written yet; zeros are made if somebody reads it. FAILED: `error` is what prevented the value
    from being computed. `shared` values are never donated.
    """

    __slots__ = ("array", "error", "index", "shared", "spec")

    def __init__(self, spec: Spec, index: int, array: Any = None):
        self.spec = spec
        self.index = index
        self.array = array
        self.shared = False
        self.error: BaseException | None = None


class Cell:
    """The slot on a storage: which Value its bytes are now."""

    __slots__ = ("__weakref__", "nbytes", "value")

    def __init__(self, value: Value, nbytes: int):
        self.value = value
        self.nbytes = nbytes
        ledger.append(nbytes)

    def __del__(self) -> None:
        ledger.append(-self.nbytes)


def device() -> torch.device:
    """pjrt:0 under whatever name it has."""
    return _device


_device = torch.device(torch._C._get_privateuse1_backend_name(), 0)
_NO_ELEMENTS = (0,)


def new_storage(value: Value, nbytes: int) -> torch.UntypedStorage:
    """A storage on our device that holds a Value."""
    storage = _new_tensor(_NO_ELEMENTS, torch.uint8).untyped_storage()
    _give(storage, value, nbytes)
    return storage


def _give(storage: Any, value: Value, nbytes: int) -> None:
    """Make an empty storage one of `nbytes` bytes at an address of its own that holds a Value.

    Swapping with a storage made from an address is several times cheaper than putting that storage into a tensor.
    """
    global _next_address
    address = _next_address
    _next_address = address + (nbytes + 127 & ~63)
    storage._swap_data_ptr_(_new_storage(address, _device, nbytes))
    storage._pjrt = Cell(value, nbytes)


def tensor_over(
    storage: torch.UntypedStorage, size: tuple[int, ...], stride: tuple[int, ...], offset: int, dtype: torch.dtype
) -> torch.Tensor:
    """A new tensor over a storage."""
    tensor = _new_tensor(_NO_ELEMENTS, dtype)
    _set(_CPU_KEYS, tensor, storage, offset, size, stride)
    return tensor


def make_tensor(out: OutSpec, value: Value) -> torch.Tensor:
    """A tensor with a storage of its own that holds a result."""
    tensor = _new_tensor(out.size, out.dtype)
    storage = tensor.untyped_storage()
    _give(storage, value, out.spec.nbytes)
    if not out.contiguous:
        _set(_CPU_KEYS, tensor, storage, 0, out.size, out.stride)
    return tensor


@functools.lru_cache(maxsize=65536)
def _dense_out(size: tuple[int, ...], stride: tuple[int, ...] | None, dtype: torch.dtype) -> OutSpec | None:
    """The OutSpec of an unwritten tensor that fills its storage exactly; None if its strides leave gaps or overlap."""
    stride = contiguous_strides(size) if stride is None else stride
    out = out_spec(size, stride, dtype)
    return out if out.stride == stride and 0 not in stride else None


def empty(size: tuple[int, ...], stride: tuple[int, ...] | None, dtype: torch.dtype) -> torch.Tensor:
    """An unwritten tensor; strides may leave gaps or overlap, as empty_strided allows."""
    out = _dense_out(size, stride, dtype)
    if out is not None:
        return make_tensor(out, Value(out.spec, UNFILLED))
    assert stride is not None
    needed = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    flat = spec((needed,), TO_NUMPY[dtype])
    return tensor_over(new_storage(Value(flat, UNFILLED), flat.nbytes), size, stride, 0, dtype)


def cell_of(tensor: torch.Tensor) -> Cell:
    """The Cell of a tensor's storage. A storage that torch made by itself is given an unwritten one."""
    storage = tensor.untyped_storage()
    try:
        return storage._pjrt  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        return adopt(storage)


def adopt(storage: torch.UntypedStorage) -> Cell:
    """Give a storage without a Cell an unwritten payload of its bytes."""
    if storage.device.type != device().type:
        raise InvalidOperandError(f"expected a tensor on {device()}, got one on {storage.device}")
    flat = spec((storage.nbytes(),), np.dtype(np.uint8))
    cell = Cell(Value(flat, UNFILLED), flat.nbytes)
    storage._pjrt = cell  # type: ignore[attr-defined]
    return cell


def aval_of_tensor(tensor: torch.Tensor) -> tuple[Value, Aval, tuple[int, ...]]:
    """What an operator needs to read a tensor: its Value, Aval and start operands. The Value may be UNFILLED."""
    try:
        value = tensor.untyped_storage()._pjrt.value  # type: ignore[attr-defined]
    except AttributeError:
        value = cell_of(tensor).value
    aval, starts = aval_of(value.spec, tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype)  # type: ignore[arg-type]
    return value, aval, starts
