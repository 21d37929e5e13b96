"""Operators that are not a row: making tensors, copies across the boundary, resizing, comparison to one bool.

Each function here is the kernel of the overloads that its decorator names.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch

from torch_pjrt.dispatch.bits import plain
from torch_pjrt.dispatch.fused import recorder
from torch_pjrt.dispatch.kernel_table import KernelTable
from torch_pjrt.dispatch.overlap import refuse_shared
from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.ops.schema import find_overload
from torch_pjrt.program.program import memory_order
from torch_pjrt.tensor import storage_methods, transfer
from torch_pjrt.tensor.layout import contiguous_strides
from torch_pjrt.tensor.mutate import write_value
from torch_pjrt.tensor.storage import UNFILLED, Value, aval_of_tensor, cell_of, empty, new_storage, tensor_over
from torch_pjrt.tensor.streams import check_device

aten = torch.ops.aten
KERNELS = KernelTable()
kernel = KERNELS.kernel


def _ours() -> str:
    return torch._C._get_privateuse1_backend_name()


@functools.lru_cache(maxsize=65536)
def _strides_like(
    size: tuple[int, ...], stride: tuple[int, ...], memory_format: torch.memory_format | None
) -> tuple[int, ...]:
    """The strides of torch.empty_like of a tensor with this size and stride."""
    like = torch.empty_strided(size, stride, device="meta")
    return tuple(torch.empty_like(like, memory_format=memory_format or torch.preserve_format).stride())


# -- making tensors ----------------------------------------------------------------------------------------------------


@kernel("empty.memory_format")
def empty_memory_format(
    size: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """torch.empty: nothing is written, and nothing is computed unless it is read."""
    if device is not None and device.index:
        check_device(device)
    shape = tuple(size)
    if any(n < 0 for n in shape):
        raise InvalidOperandError(f"Trying to create tensor with negative dimension: {list(shape)}")
    stride = None
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        stride = torch.empty(shape, device="meta", memory_format=memory_format).stride()
    return empty(shape, stride, dtype or torch.get_default_dtype())


@kernel("empty_strided")
def empty_strided(
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
) -> torch.Tensor:
    """torch.empty_strided, gaps and overlaps included."""
    if device is not None and device.index:
        check_device(device)
    if len(size) != len(stride) or any(s < 0 for s in stride):
        raise InvalidOperandError(f"mismatch in sizes {list(size)} and strides {list(stride)}")
    return empty(tuple(size), tuple(stride), dtype or torch.get_default_dtype())


@kernel("new_empty_strided")
def new_empty_strided(
    self: torch.Tensor,
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
) -> torch.Tensor:
    """As empty_strided, in self's dtype and on its device unless others are asked for."""
    return torch.empty_strided(size, stride, dtype=dtype or self.dtype, device=device or self.device)


@kernel("zeros_like")
def zeros_like(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """torch.zeros_like: memory that nobody has written reads as zeros, so an optimizer's first step runs the same program
    as its second."""
    if device is not None and torch.device(device).type != _ours():
        return torch.zeros(self.shape, dtype=dtype or self.dtype, device=device)
    return empty(tuple(self.shape), _strides_like(self.shape, self.stride(), memory_format), dtype or self.dtype)


@kernel("resize_")
def resize_(self: torch.Tensor, size: list[int], *, memory_format: Any = None) -> torch.Tensor:
    """Change a tensor's shape in place; a storage too small grows, for every tensor on it."""
    shape = tuple(size)
    if shape == tuple(self.shape) and memory_format is None:
        return self
    stride = contiguous_strides(shape)
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        stride = torch.empty(shape, device="meta", memory_format=memory_format).stride()
    count = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    needed = int(count + self.storage_offset()) * self.element_size()
    storage = self.untyped_storage()
    if needed > storage.nbytes():
        storage = storage_methods.resize(storage, needed)
    aten.set_.source_Storage_storage_offset(self, storage, self.storage_offset(), shape, stride)
    return self


@kernel("set_")
def set_to_nothing(self: torch.Tensor) -> torch.Tensor:
    """x.set_(): an empty tensor on a storage of its own."""
    return self.set_(torch.empty(0, dtype=self.dtype, device=self.device))  # type: ignore[call-overload,no-any-return]


# -- copies ------------------------------------------------------------------------------------------------------------


def _classless(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without what a class of its own makes of its properties: parameters of lazy modules refuse theirs."""
    return tensor if type(tensor) in (torch.Tensor, torch.nn.Parameter) else tensor.as_subclass(torch.Tensor)


@kernel("copy_", "_copy_from_and_resize")
def copy_(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy between any two of host and device, with torch's broadcast and cast."""
    given = src = _classless(src)
    if src.shape != self.shape:
        src = src.expand(self.shape)
    if self.device.type == "cpu":
        if src.device.type == "cpu":
            return aten.copy_.default(self, src, non_blocking)  # type: ignore[no-any-return]
        self.copy_(transfer.to_cpu(recorder(), plain(src), "copy to cpu"))
        return self
    if self.is_conj():
        copy_(torch._conj(self), src.conj().resolve_conj())
        return self
    if self.is_neg():
        copy_(torch._neg_view(self), aten.neg(plain(src)))
        return self
    if src.device.type == "cpu":
        _from_host(self, src)
    elif src.device.type == self.device.type:
        value, aval, starts = aval_of_tensor(plain(src))
        if value is cell_of(self).value:
            refuse_shared("aten::copy_", self, (given,), frozenset())
        if value.index == UNFILLED:
            value = recorder().usable(value)
        write_value(recorder(), self, value, aval, starts)
    else:
        copy_(self, src.cpu())
    return self


def _from_host(target: torch.Tensor, src: torch.Tensor) -> None:
    """Write a host tensor: transferred in the target's memory order, so that a dense target simply takes it."""
    src = src.detach()
    if src.dtype is not target.dtype and (src.numel() == 0 or src.element_size() >= target.element_size()):
        src = src.to(target.dtype)
    order = memory_order(tuple(target.shape), target.stride())
    value = transfer.value_from_host(src if order is None else src.permute(order))
    aval, _ = _host_aval(value, tuple(src.shape), src.dtype, order)
    _, own, _ = aval_of_tensor(target)
    cell = cell_of(target)
    if value.spec is cell.value.spec and (
        own.plan is None
        or own.plan.num_starts == 0
        and own.plan.strides is None
        and target.numel() * target.element_size() == cell.nbytes
    ):
        cell.value = value
        return
    write_value(recorder(), target, value, aval)


def _host_aval(value: Value, size: tuple[int, ...], dtype: torch.dtype, order: tuple[int, ...] | None) -> Any:
    from torch_pjrt.tensor.layout import aval_of

    if order is None:
        return aval_of(value.spec, size, contiguous_strides(size), 0, dtype)
    stride = [0] * len(size)
    for step, dim in zip(contiguous_strides(tuple(size[d] for d in order)), order, strict=True):
        stride[dim] = step
    return aval_of(value.spec, size, tuple(stride), 0, dtype)


@kernel("_copy_from")
def _copy_from(self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """torch's other spelling of copy_, source first."""
    return copy_(dst, self, non_blocking)


@kernel("_to_copy")
def _to_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """x.to(...): to the host, or to another dtype or memory format on the device."""
    self = _classless(self)
    if device is not None and torch.device(device).type != _ours():
        if torch.device(device).type != "cpu":
            return transfer.to_cpu(recorder(), plain(self)).to(device, dtype=dtype)
        host = transfer.to_cpu(recorder(), plain(self))
        keep = memory_format if memory_format is not None else torch.preserve_format
        return host.to(dtype=dtype or self.dtype, memory_format=keep)
    if device is not None:
        check_device(device)
    stride = _strides_like(self.shape, self.stride(), memory_format)
    return copy_(empty(tuple(self.shape), stride, dtype or self.dtype), self)


@kernel("clone")
def clone(self: torch.Tensor, *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    """A copy that shares the (immutable) value until either side is written: free for a dense tensor."""
    self = plain(self)
    value, aval, starts = aval_of_tensor(self)
    dense = _strides_like(self.shape, self.stride(), memory_format)
    if (
        dense == self.stride()
        and self.storage_offset() == 0
        and value.spec.nbytes == self.numel() * self.element_size()
    ):
        if value.index == UNFILLED:
            value = Value(value.spec, UNFILLED)
        return tensor_over(
            new_storage(value, value.spec.nbytes), tuple(self.shape), tuple(self.stride()), 0, self.dtype
        )
    out = empty(tuple(self.shape), dense, self.dtype)
    if value.index == UNFILLED:
        value = recorder().usable(value)
    write_value(recorder(), out, value, aval, starts)
    return out


# -- reading one value -------------------------------------------------------------------------------------------------


@kernel("_local_scalar_dense")
def local_scalar(self: torch.Tensor) -> int | float | bool | complex:
    """x.item(): one value read on the host."""
    return aten._local_scalar_dense.default(transfer.to_cpu(recorder(), plain(self), "item"))  # type: ignore[no-any-return]


@kernel("equal")
def equal(self: torch.Tensor, other: torch.Tensor) -> bool:
    """torch.equal: one bool read on the host."""
    if self.shape != other.shape:
        return False
    if self.numel() == 0:
        return True
    return bool(torch.eq(self, other).all())


def register(library: torch.library.Library) -> None:
    """Register every kernel of this module."""
    for name, fn in KERNELS.items():
        if find_overload(f"aten::{name}" if "." in name else f"aten::{name}.default") is None:
            warnings.warn(f"torch {torch.__version__} has no operator {name}", stacklevel=2)
            continue
        library.impl(name, fn, "PrivateUse1")
