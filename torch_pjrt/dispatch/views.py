"""View operators: torch's own metadata code, reached by redispatching to the CPU key.

These touch sizes, strides and offsets only; the payload is found through the storage, so nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

VIEW_OPS = (
    "as_strided.default",
    "view.default",
    "view.dtype",
    "_reshape_alias.default",
    "view_as_real.default",
    "view_as_complex.default",
    "unfold.default",
    "set_.source_Storage",
    "set_.source_Storage_storage_offset",
    "set_.source_Tensor",
    "set_.source_Tensor_storage_offset",
    "as_strided_.default",
    "is_set_to.default",
)


def redispatch(name: str) -> Callable[..., Any]:
    """A kernel that runs an overload's CPU kernel on a device tensor."""
    packet, overload = name.rsplit(".", 1)
    boxed = getattr(getattr(torch.ops.aten, packet), overload)._handle.redispatch_boxed

    def run(*args: Any, **kwargs: Any) -> Any:
        return boxed(CPU_KEYS, *args, **kwargs)

    return run


def register(library: torch.library.Library) -> None:
    """Register every view operator."""
    for name in VIEW_OPS:
        library.impl(name.removesuffix(".default"), redispatch(name), "PrivateUse1")
