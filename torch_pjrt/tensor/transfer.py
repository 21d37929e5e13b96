"""Copies between host and device, and the zero-copy bridge to JAX.

Owns every crossing of the boundary. Host to device takes a private copy first, so a later write on the host is never seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.ops.dtypes import FROM_NUMPY, TO_NUMPY
from torch_pjrt.program.program import out_spec, spec
from torch_pjrt.tensor import runtime
from torch_pjrt.tensor.layout import contiguous_strides
from torch_pjrt.tensor.storage import READY, Value, aval_of_tensor, cell_of, make_tensor

# dtypes that torch and NumPy do not share, and the integer that has their bits
_CARRIERS = {1: torch.uint8, 2: torch.int16}


def host_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A private, row-major NumPy copy of a CPU tensor (conj and neg bits resolved)."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    dtype = TO_NUMPY.get(tensor.dtype)
    if dtype is None:
        raise InvalidOperandError(f"the device has no dtype for {tensor.dtype}", todo="Convert it first.")
    copy = tensor.clone(memory_format=torch.contiguous_format)
    if tensor.dtype in _NATIVE:
        return copy.numpy()
    return copy.view(_CARRIERS[tensor.dtype.itemsize]).numpy().view(dtype)


_NATIVE = frozenset(d for d in TO_NUMPY if not (d is torch.bfloat16 or (d.is_floating_point and d.itemsize == 1)))


def host_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A CPU tensor with a copy of an array's values."""
    dtype = FROM_NUMPY[array.dtype]
    if dtype in _NATIVE:
        return torch.from_numpy(np.array(array))
    carrier = np.uint8 if dtype.itemsize == 1 else np.int16
    return torch.from_numpy(np.array(array).view(carrier)).view(dtype)


def value_from_host(tensor: torch.Tensor) -> Value:
    """A CPU tensor's contents as a ready Value (row-major)."""
    from torch_pjrt.pjrt import buffers

    array = host_array(tensor)
    return Value(spec(array.shape, array.dtype), READY, buffers.to_device(array))


def to_cpu(recorder: Any, tensor: torch.Tensor, reason: str = "copy to cpu") -> torch.Tensor:
    """A CPU tensor with the contents and strides of a device tensor.

    A small view of a large storage is cut out on the device; a view with another dtype is taken on the host.
    """
    value, aval, _ = aval_of_tensor(tensor)
    count = tensor.numel()
    if aval.plan is not None and count * tensor.element_size() * 2 <= value.spec.nbytes:
        tensor = torch.ops.aten.clone.default(tensor, memory_format=torch.preserve_format)
        value, aval, _ = aval_of_tensor(tensor)
    host = host_tensor(recorder.host_read(value, reason))
    if aval.plan is None:
        return host
    flat = host.reshape(-1).view(tensor.dtype)
    return torch.as_strided(flat, tensor.size(), tensor.stride(), tensor.storage_offset()).clone()


def to_jax(tensor: torch.Tensor) -> Any:
    """The jax.Array of a device tensor, without a copy when the tensor is its whole storage.

    The array stays valid and unchanged whatever is later written to the tensor. Raises InvalidOperandError for a CPU tensor.
    """
    if tensor.device.type == "cpu":
        raise InvalidOperandError("to_jax takes a tensor on the device", todo='Move it first: x.to("pjrt").')
    tensor = tensor.detach().resolve_conj().resolve_neg()
    value, aval, _ = aval_of_tensor(tensor)
    if aval.plan is not None:
        tensor = torch.ops.aten.clone.default(tensor, memory_format=torch.contiguous_format)
        value = cell_of(tensor).value
    array = runtime.runtime().array_of(value, "to_jax")
    value = cell_of(tensor).value
    value.shared = True
    return array


def from_jax(array: Any) -> torch.Tensor:
    """A device tensor over a jax.Array, without a copy. In-place writes to the tensor never change the array."""
    dtype = np.dtype(array.dtype)
    if dtype not in FROM_NUMPY:
        raise InvalidOperandError(f"torch has no dtype for {dtype}", todo="Convert the array first.")
    shape = tuple(array.shape)
    value = Value(spec(shape, dtype), READY, array)
    value.shared = True
    return make_tensor(out_spec(shape, contiguous_strides(shape), FROM_NUMPY[dtype]), value)
