"""DLPack capsules of device arrays, out and in. tensor/dlpack.py decides when."""

from __future__ import annotations

from typing import Any

import jax

from torch_pjrt.pjrt.client import chip

_KINDS = {"cpu": 1, "cuda": 2, "gpu": 2, "rocm": 10, "oneapi": 14, "xpu": 14}


def export(array: Any, *, max_version: tuple[int, int] | None, dl_device: Any, copy: bool) -> Any:
    """The capsule of an array: of its own memory (read-only where the version can say so), or of a copy."""
    return array.__dlpack__(max_version=max_version, dl_device=dl_device, copy=True if copy else None)


def take(source: Any) -> Any:
    """A device array over what an object exports (itself when it is a device array already)."""
    with jax.enable_x64(True):
        if isinstance(source, jax.Array):
            return jax.device_put(source, chip().device)
        return jax.device_put(jax.dlpack.from_dlpack(source), chip().device)


def chip_kind() -> int | None:
    """The DLPack device type of our chip, or None when DLPack has none for it."""
    return _KINDS.get(chip().platform)
