"""Nested tensors in the strided layout, which the device does not have: their metadata answers, all else says what to use.

The jagged layout is a tensor subclass over plain tensors and needs nothing here; its attention is ops/decompose_varlen.py.
Without the metadata kernels, torch's autograd would end the process when it meets one.
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


def _refuse(op: Any, *args: Any, **kwargs: Any) -> Any:
    refusal = refusal_of("aten::_nested_tensor_from_mask.default")
    assert refusal is not None
    raise UnsupportedOpError(
        f"{op.name()} cannot run on the device: {refusal.why}", where=show(user_line()), todo=refusal.instead
    )


def register(library: torch.library.Library) -> None:
    """Register the metadata kernels, and the refusal of everything else."""
    for name in METADATA:
        library.impl(name, _metadata(name), "NestedTensorPrivateUse1")
    rest = torch.library.Library("_", "IMPL")  # noqa: TOR901 - lives as long as the process
    rest.fallback(_refuse, "NestedTensorPrivateUse1")
    _libraries.append(rest)
