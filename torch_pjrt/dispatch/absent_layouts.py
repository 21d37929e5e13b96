"""Strided nested tensors and quantized tensors, which the device does not have: every operator on one says what to use.

The jagged layout is a tensor subclass over plain tensors and needs nothing here; its attention is ops/decompose_varlen.py.
Nested tensors answer for their metadata: torch's autograd would end the process if they did not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt.dispatch.lines import show, user_line
from torch_pjrt.errors import UnsupportedOpError
from torch_pjrt.ops.unsupported import refusal_of

METADATA = ("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets")
_HOST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.NestedTensorCPU)
_libraries: list[torch.library.Library] = []


def _metadata(name: str) -> Callable[..., Any]:
    boxed = getattr(torch.ops.aten, name).default._handle.redispatch_boxed

    def run(*args: Any, **kwargs: Any) -> Any:
        return boxed(_HOST_KEYS, *args, **kwargs)

    return run


# Keys of tensors that cannot be, with an operator that is refused for the same reason.
ABSENT = {
    "NestedTensorPrivateUse1": "aten::_nested_from_padded.default",
    "QuantizedPrivateUse1": "aten::quantize_per_tensor.default",
}


def _refusing(example: str) -> Callable[..., Any]:
    refusal = refusal_of(example)
    assert refusal is not None

    def refuse(op: Any, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOpError(
            f"{op.name()} cannot run on the device: {refusal.why}", where=show(user_line()), todo=refusal.instead
        )

    return refuse


def register(library: torch.library.Library) -> None:
    """Register the metadata kernels, and the refusal of everything else."""
    for name in METADATA:
        library.impl(name, _metadata(name), "NestedTensorPrivateUse1")
    for key, example in ABSENT.items():
        rest = torch.library.Library("_", "IMPL")  # noqa: TOR901 - lives as long as the process
        rest.fallback(_refusing(example), key)
        _libraries.append(rest)
