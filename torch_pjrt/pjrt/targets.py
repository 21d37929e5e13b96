"""Chips that need not be here: how to get a device of each to compile for, from the compilers that plugins bring.

Owns the table of targets (targets.toml) and the compiling of a lowered function for one. Needs the plugin's package, never
the chip. Reading a result is aot/'s business.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from torch_pjrt.errors import BadSettingError, CompileError, MissingPluginError

# Fields that all GPUs of the table share; a row of the table may say otherwise.
_GPU_COMMON = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49152,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": 2147483647,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
}
_INSTALL = {
    "tpu": ("libtpu", 'pip install "torch-pjrt[tpu]"'),
    "cuda": ("jax_cuda13_plugin", 'pip install "torch-pjrt[cuda13]"'),
}

_TROUBLE = {
    "tpu": "One process of a machine may load libtpu at a time: end the other, or set ALLOW_MULTIPLE_LIBTPU_LOAD=1.",
    "cuda": "Where there is no such chip, set JAX_PLATFORMS=cpu; else see `torch-pjrt doctor`.",
}


@dataclass(frozen=True, slots=True)
class Target:
    """One row of targets.toml. memory: bytes of one device, None where it depends on the machine."""

    name: str
    platform: str
    topology: str = ""
    memory: int | None = None
    capability: tuple[int, ...] = ()
    device: dict[str, int | float] = field(default_factory=dict)
    note: str = ""
    source: str = ""


@functools.cache
def targets() -> dict[str, Target]:
    """All targets by name."""
    rows = tomllib.loads(Path(__file__).with_name("targets.toml").read_text(encoding="utf-8"))
    return {name: Target(name=name, **row) for name, row in rows.items()}


def target(name: str) -> Target:
    """The target of that name. Raises BadSettingError."""
    found = targets().get(name)
    if found is None:
        raise BadSettingError(f"there is no target {name!r}", todo=f"Choose one of {', '.join(targets())}.")
    return found


def available(name: str) -> str | None:
    """None when programs can be compiled for the target here, else what is missing, with the command that installs it."""
    platform = target(name).platform
    if platform not in _INSTALL:
        return None
    module, install = _INSTALL[platform]
    if platform == "cuda" and importlib.util.find_spec("jax_cuda12_plugin") is not None:
        return None
    if importlib.util.find_spec(module) is None:
        return f"the compiler for {name} is not installed: {install}"
    return None


def compiler_version(platform: str) -> dict[str, str]:
    """Name and version of the package that brings a platform's compiler; nothing where that is jaxlib itself."""
    names = {"tpu": ("libtpu",), "cuda": ("jax-cuda13-plugin", "jax-cuda12-plugin")}.get(platform, ())
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return {name: importlib.metadata.version(name)}
    return {}


# Smallest topology of at least so many devices, as libtpu names it: chips in 2 dims (v5e, v6e) or 3.
_TOPOLOGIES = {
    2: ((4, "2x2"), (8, "2x4"), (16, "4x4"), (32, "4x8"), (64, "8x8")),
    3: ((4, "2x2x1"), (8, "2x2x2"), (16, "2x2x4"), (32, "2x4x4"), (64, "4x4x4")),
}


@functools.cache
def devices_for(name: str, count: int = 1) -> list[Any]:
    """Devices to compile for; they run nothing unless the target is the CPU. Raises MissingPluginError, BadSettingError."""
    row = target(name)
    missing = available(name)
    if missing:
        what, _, install = missing.partition(": ")
        raise MissingPluginError(what, todo=install)
    if row.platform in ("cpu", "neuron"):
        found = jax.local_devices(backend="cpu")
    else:
        try:
            found = list(_topology(row, count).devices)
        except Exception as error:
            raise CompileError(
                f"the compiler for {name} could not be set up",
                todo=_TROUBLE[row.platform],
                detail=f"{type(error).__name__}: {error}",
            ) from error
    if len(found) < count:
        raise BadSettingError(f"a mesh of {count} devices is more than {name} has here ({len(found)})", todo=_SMALLER)
    return found[:count]


_SMALLER = "Take a smaller mesh, or a TPU or GPU target."


def _topology(row: Target, count: int) -> Any:
    if row.platform != "tpu":
        return topologies.get_topology_desc("", "cuda", target_config=gpu_config(row), topology=f"1x{count}x1")
    name = row.topology
    if count > 1:
        kind, _, size = name.partition(":")
        name = f"{kind}:{next((n for c, n in _TOPOLOGIES[size.count('x') + 1] if c >= count), size)}"
    return topologies.get_topology_desc(platform="tpu", topology_name=name)


def gpu_config(row: Target) -> str:
    """XLA's GpuTargetConfig of a GPU, as text proto."""
    fields = {**_GPU_COMMON, **row.device, "device_memory_size": row.memory}
    lines = "\n".join(f"  {name}: {value}" for name, value in fields.items())
    major, minor = row.capability
    features = " feature_extension: ACCELERATED_FEATURES" if major >= 9 else ""
    capability = f"  cuda_compute_capability {{ major: {major} minor: {minor}{features} }}"
    return (
        f"gpu_device_info {{\n{lines}\n{capability}\n}}\n"
        f'platform_name: "CUDA"\ndnn_version_info {{ major: 9 minor: 10 patch: 0 }}\n'
        f'device_description_str: "{row.name}"\n'
    )
