"""Pinned host memory, as far as out-of-tree devices written in Python can have it.

PJRT clients stage host memory themselves and offer no pinned allocator, so pinning makes an ordinary private copy and
marks its storage: `is_pinned()` answers truthfully what was asked for, and views of a pinned tensor are pinned.
DataLoader's `pin_memory=True` works. Factory calls with `pin_memory=True` go to torch's C++ allocator and raise
there.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt.tensor.runtime import is_ours

_MARK = "_pjrt_pinned"
# torch's own kernel is registered for all backends; a backend that has no build here still reaches it.
_ELSEWHERE = torch._C.DispatchKeySet(torch._C.DispatchKey.HPU)
_library: torch.library.Library | None = None


def register() -> None:
    """Take over pinning of CPU tensors for our device. Other devices' requests go to torch's own kernels."""
    global _library
    _library = torch.library.Library("aten", "IMPL")
    _library.impl("_pin_memory", _pin_memory, "CPU")
    _library.impl("is_pinned", _is_pinned, "CPU")


def _pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    if device is not None and not is_ours(torch.device(device).type):
        found: torch.Tensor = torch.ops.aten._pin_memory.default.redispatch(_ELSEWHERE, self, device)
        return found
    copy = self.detach().clone(memory_format=torch.preserve_format)
    setattr(copy.untyped_storage(), _MARK, True)
    return copy


def _is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    if device is not None and not is_ours(torch.device(device).type):
        return bool(torch.ops.aten.is_pinned.default.redispatch(_ELSEWHERE, self, device))
    return getattr(self.untyped_storage(), _MARK, False)
