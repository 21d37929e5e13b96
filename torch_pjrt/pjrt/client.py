"""Which chip this process drives, and the client that drives it. Created on first use, never at import.

Owns the choice of platform (TORCH_PJRT_PLATFORM) and what the platform can do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax

from torch_pjrt.config import settings
from torch_pjrt.errors import MissingPluginError
from torch_pjrt.pjrt import host_memory

# Our names for platforms, and the names under which JAX plugins register.
ALIASES = {"rocm": ("rocm", "gpu"), "cuda": ("cuda", "gpu"), "tpu": ("tpu",), "cpu": ("cpu",), "neuron": ("neuron",)}
# Platforms whose compiler has no float64: 0-d operands go to them as float32.
NARROW_PLATFORMS = frozenset({"neuron"})
EXTRAS = {"tpu": "tpu", "cuda": "cuda13", "rocm": "rocm7", "oneapi": "oneapi", "xpu": "oneapi"}


@dataclass(frozen=True, slots=True)
class Chip:
    """The device and what it is."""

    device: Any
    platform: str
    kind: str
    version: str


@functools.cache
def chip() -> Chip:
    """The one device of this process."""
    wanted = settings.platform
    device = _find(wanted) if wanted else jax.local_devices()[0]
    client = device.client
    if device.platform == "cpu":
        host_memory.keep_freed()
    return Chip(device, device.platform, device.device_kind, client.platform_version)


def _find(wanted: str) -> Any:
    problems = []
    for name in ALIASES.get(wanted, (wanted,)):
        try:
            return jax.local_devices(backend=name)[0]
        except RuntimeError as error:
            problems.append(str(error))
    extra = EXTRAS.get(wanted)
    todo = f'pip install "torch-pjrt[{extra}]"' if extra else "install the PJRT plugin of that chip's vendor"
    raise MissingPluginError(
        f"TORCH_PJRT_PLATFORM={wanted}, but JAX finds no such device here",
        todo=f"{todo}; `torch-pjrt doctor` lists what is installed.",
        detail="; ".join(problems),
    )


def describe() -> str:
    """A text that changes whenever an executable compiled here could not run there."""
    here = chip()
    return f"{here.platform}/{here.kind}/{here.version}/{_host_features() if here.platform == 'cpu' else ''}"


@functools.cache
def _host_features() -> str:
    """The host's instruction sets (XLA:CPU compiles for them)."""
    import platform

    try:
        with open("/proc/cpuinfo") as lines:
            flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = ""
    return f"{platform.machine()}{hash_text(flags)}"


def hash_text(text: str) -> str:
    """A short stable hash."""
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]
