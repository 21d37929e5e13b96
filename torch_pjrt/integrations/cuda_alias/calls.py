"""The calls of torch.cuda that have a counterpart on the pjrt device, as one table.

What is not in it keeps torch's own answer ("Torch not compiled with CUDA enabled"), so that nothing is pretended.
"""

from __future__ import annotations

__all__ = ["install"]

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

from .patching import Patches, device_module

# Same name on both sides.
SAME = """
    Event Stream current_device current_stream default_stream device_count empty_cache get_device_properties
    get_rng_state get_rng_state_all initial_seed is_bf16_supported manual_seed manual_seed_all max_memory_allocated
    max_memory_reserved mem_get_info memory_allocated memory_reserved memory_stats memory_summary
    reset_accumulated_memory_stats reset_peak_memory_stats seed seed_all set_device set_rng_state set_rng_state_all
    stream synchronize
""".split()

# Other names, or answers that need no device.
OTHERS: dict[str, Callable[..., Any]] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": lambda: None,
    "is_current_stream_capturing": lambda: False,
    "ipc_collect": lambda: None,
    "max_memory_cached": lambda device=None: device_module().max_memory_reserved(),
    "memory_cached": lambda device=None: device_module().memory_reserved(),
    "reset_max_memory_allocated": lambda device=None: device_module().reset_peak_memory_stats(),
    "get_device_name": lambda device=None: device_module().get_device_properties(0).name,
    # Asked to choose bfloat16 and fused attention, which every PJRT chip takes; 8.0 is the first that has both.
    "get_device_capability": lambda device=None: (8, 0),
    "get_arch_list": list,
    "can_device_access_peer": lambda device, peer: False,
    "set_per_process_memory_fraction": lambda fraction, device=None: None,
    "utilization": lambda device=None: 0,
}

NVTX: dict[str, Callable[..., Any]] = {
    "range_push": lambda message: 0,
    "range_pop": lambda: 0,
    "mark": lambda message: None,
    "range": lambda message, *args, **kwargs: contextlib.nullcontext(),
}


def install(patches: Patches) -> None:
    """Replace them in torch.cuda."""
    ours = device_module()
    for name in SAME:
        found = getattr(ours, name, None)
        if found is not None:
            patches.set(torch.cuda, name, _counted(patches, f"torch.cuda.{name}", found))
    for name, function in OTHERS.items():
        patches.set(torch.cuda, name, _counted(patches, f"torch.cuda.{name}", function))
    for name, function in NVTX.items():
        patches.set(torch.cuda.nvtx, name, _counted(patches, f"torch.cuda.nvtx.{name}", function))
    patches.set(torch, "Generator", _counted(patches, "torch.Generator", torch.Generator))
    patches.set(torch.cuda, "device", _counted(patches, "torch.cuda.device", _device_context))
    patches.set(torch.cuda.random, "manual_seed_all", torch.cuda.manual_seed_all)  # torch.manual_seed goes through it
    patches.set(torch.cuda, "_is_in_bad_fork", lambda: False)


def _counted(patches: Patches, name: str, function: Any) -> Any:
    """The function, counting its calls and mapping its arguments; a class stays a class, for isinstance."""
    if isinstance(function, type):
        return _counted_class(patches, name, function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        patches.counts.note(name)
        kwargs = {key: patches.device(value) for key, value in kwargs.items()}
        return function(*map(patches.device, args), **kwargs)

    return call


def _counted_class(patches: Patches, name: str, cls: type) -> type:
    def new(_: type, *args: Any, **kwargs: Any) -> Any:
        patches.counts.note(name)
        kwargs = {key: patches.device(value) for key, value in kwargs.items()}
        return cls(*map(patches.device, args), **kwargs)

    class Meta(type):
        def __instancecheck__(self, value: object) -> bool:
            return isinstance(value, cls)

    return Meta(cls.__name__, (), {"__new__": new, "__doc__": cls.__doc__, "__module__": cls.__module__})


def _device_context(device: Any = None) -> Any:
    """`with torch.cuda.device(0):` there is one device, and it is always the current one."""
    return contextlib.nullcontext()
