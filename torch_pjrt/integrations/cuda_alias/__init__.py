"""Runs code that asks for `cuda` on the pjrt device, while a block lasts.

    with cuda_alias.active() as counts:
        ...                              # torch.zeros(2, device="cuda") is on the pjrt device
    print(counts)                        # {'device="cuda"': 1}

Patches are the same in every thread and cost nothing per operator: only functions that take a device are wrapped.
`tensor.device` stays honest (`pjrt:0`). Used by `torch-pjrt run`; nothing else activates it.
"""

from __future__ import annotations

__all__ = ["active"]

import contextlib
from collections.abc import Iterator

from . import calls, devices
from .patching import Counts, Patches


@contextlib.contextmanager
def active() -> Iterator[Counts]:
    """Map CUDA to the pjrt device in a block. Gives the count of what was mapped, by name."""
    patches = Patches()
    try:
        devices.install(patches)
        calls.install(patches)
        yield patches.counts
    finally:
        patches.undo()
