"""What to write instead of each name of torch.cuda, as a table. Data only; transform.py applies it.

On a machine without an accelerator most calls of torch.accelerator raise, where those of torch.cuda do nothing or raise
too. `absent` says what such a machine does: skip the statement, or take a value.
"""

from __future__ import annotations

__all__ = ["CALLS", "NAMES", "Call"]

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call with the same arguments under another name. `absent` is its value without an accelerator."""

    name: str
    absent: str | None = None
    skip: bool = False
    positional: tuple[str, ...] | None = None


_A = "torch.accelerator."

# A call of the key becomes a call of the name. `positional` names arguments that must become keywords.
CALLS: dict[str, Call] = {
    "torch.cuda.device_count": Call(_A + "device_count"),
    "torch.cuda.current_device": Call(_A + "current_device_index", absent="0"),
    "torch.cuda.set_device": Call(_A + "set_device_index", skip=True),
    "torch.cuda.synchronize": Call(_A + "synchronize", skip=True),
    "torch.cuda.empty_cache": Call(_A + "empty_cache", skip=True),
    "torch.cuda.reset_peak_memory_stats": Call(_A + "reset_peak_memory_stats", skip=True),
    "torch.cuda.reset_max_memory_allocated": Call(_A + "reset_peak_memory_stats", skip=True),
    "torch.cuda.reset_max_memory_cached": Call(_A + "reset_peak_memory_stats", skip=True),
    "torch.cuda.reset_accumulated_memory_stats": Call(_A + "reset_accumulated_memory_stats", skip=True),
    "torch.cuda.memory_allocated": Call(_A + "memory_allocated", absent="0"),
    "torch.cuda.max_memory_allocated": Call(_A + "max_memory_allocated", absent="0"),
    "torch.cuda.memory_reserved": Call(_A + "memory_reserved", absent="0"),
    "torch.cuda.max_memory_reserved": Call(_A + "max_memory_reserved", absent="0"),
    "torch.cuda.memory_cached": Call(_A + "memory_reserved", absent="0"),
    "torch.cuda.max_memory_cached": Call(_A + "max_memory_reserved", absent="0"),
    "torch.cuda.memory_stats": Call(_A + "memory_stats", absent="{}"),
    "torch.cuda.mem_get_info": Call(_A + "get_memory_info", absent="(0, 0)"),
    "torch.cuda.current_stream": Call(_A + "current_stream"),
    "torch.cuda.Event": Call("torch.Event", positional=("enable_timing", "blocking", "interprocess")),
    "torch.cuda.Stream": Call("torch.Stream"),
}

# A name that becomes another wherever it stands, called or not.
NAMES: dict[str, str] = {"torch.cuda.is_available": _A + "is_available"}
