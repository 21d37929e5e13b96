"""torch-pjrt: a native PyTorch backend for every chip that has a PJRT plugin.

`import torch` registers the device; this package adds what has no place in torch: `to_jax`, `from_jax`, the settings
and the errors. torch is imported first here, so that it loads this package's entry point before any module of it.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

with contextlib.suppress(ModuleNotFoundError):  # without torch, `torch-pjrt doctor` still runs and says so
    import torch as torch

from torch_pjrt._version import __version__
from torch_pjrt.config import settings

if TYPE_CHECKING:
    from torch_pjrt import aot, export
    from torch_pjrt.export.read import load
    from torch_pjrt.tensor.transfer import from_jax, to_jax

__all__ = ["__version__", "aot", "export", "from_jax", "load", "settings", "to_jax"]

_HOME = {
    "from_jax": "torch_pjrt.tensor.transfer",
    "load": "torch_pjrt.export.read",
    "to_jax": "torch_pjrt.tensor.transfer",
}
_PACKAGES = ("aot", "export")  # `export` is callable


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"torch_pjrt.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
