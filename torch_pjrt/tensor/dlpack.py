"""DLPack in both directions for tensors of the device.

An exported tensor is announced as what its chip is to other libraries (CPU memory on the cpu platform, CUDA on cuda).
Payloads are immutable, so a consumer that cannot be told "read only" (DLPack before 1.0, raw capsules) gets a private
copy. torch.from_dlpack of a tensor of ours gives an alias of it, on the device.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt.tensor.runtime import device as our_device
from torch_pjrt.tensor.runtime import is_ours, started

_CPU = 1  # DLPack's kDLCPU


def export(
    tensor: torch.Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: Any = None,
    copy: bool | None = None,
) -> Any:
    """The capsule of a tensor: `Tensor.__dlpack__`. Raises BufferError for what DLPack cannot say."""
    from torch_pjrt.pjrt import dlpack as arrays

    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set")
    if tensor.is_neg():
        raise BufferError("Can't export tensors with the negative bit set")
    read_only = max_version is not None and max_version[0] >= 1
    if copy is False and not read_only:
        raise BufferError("Can't export without a copy: values are immutable, which DLPack before 1.0 cannot say")
    private = bool(copy) or not read_only
    return arrays.export(_array(tensor), max_version=max_version, dl_device=dl_device, copy=private)


def device_of(tensor: torch.Tensor) -> tuple[Any, int]:
    """(device type, index) under which other libraries see a tensor: `Tensor.__dlpack_device__`."""
    from torch.utils.dlpack import DLDeviceType

    kind, index = _array(tensor).__dlpack_device__()
    return DLDeviceType(int(kind)), int(index)


def wants_ours(source: Any, device: Any) -> bool:
    """Whether torch.from_dlpack(source, device=device) is for us: a tensor of ours, or one to be put here."""
    if isinstance(source, torch.Tensor):
        return is_ours(source.device.type) or (device is not None and is_ours(torch.device(device).type))
    if device is not None:
        return is_ours(torch.device(device).type)
    return started() and hasattr(source, "__dlpack_device__") and _on_our_chip(source)


def take(source: Any, device: Any, copy: bool | None, native: Any) -> torch.Tensor:
    """torch.from_dlpack for what `wants_ours` accepts."""
    if isinstance(source, torch.Tensor):
        return _from_tensor(source, None if device is None else torch.device(device), copy)
    if type(source).__module__.partition(".")[0] in ("jax", "jaxlib") or (started() and _on_our_chip(source)):
        from torch_pjrt.pjrt import dlpack as arrays
        from torch_pjrt.tensor.transfer import from_jax

        found = from_jax(arrays.take(source))
        return found.clone() if copy else found
    if copy is False:
        raise ValueError(f"cannot move a DLPack tensor to {device} without a copy")
    host: torch.Tensor = native(source)
    return host.to(our_device())


def _from_tensor(source: torch.Tensor, device: torch.device | None, copy: bool | None) -> torch.Tensor:
    if source.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if device is None or device.type == source.device.type:
        return source.clone() if copy else source.detach()
    if copy is False:
        raise ValueError(f"cannot move a tensor from {source.device} to {device} without a copy")
    return source.to(device)


def _on_our_chip(source: Any) -> bool:
    """Whether an object's memory is our chip's (never so on the cpu platform, where it is plain host memory)."""
    from torch_pjrt.pjrt import dlpack as arrays

    kind = int(source.__dlpack_device__()[0])
    return kind != _CPU and kind == arrays.chip_kind()


def _array(tensor: torch.Tensor) -> Any:
    from torch_pjrt.tensor.transfer import to_jax

    return to_jax(tensor)
