"""Memory figures of the device, in the forms that torch.cuda and torch.accelerator made usual.

Allocated is what live tensors hold; PJRT's clients tell of no pool that can be handed back, so reserved equals allocated
unless the client's allocator says otherwise (on the CPU, what is free is the C library's: pjrt/host_memory.py). Nothing
here loads the runtime except the questions that need the chip (its total).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeAlias

import torch

from torch_pjrt.pjrt import host_memory
from torch_pjrt.tensor import runtime
from torch_pjrt.tensor.streams import check_device

Device: TypeAlias = torch.device | str | int | None

_POOLS = ("all", "large_pool", "small_pool")
_GIB = 1 << 30


def memory_allocated(device: Device = None) -> int:
    """Bytes that live tensors hold; 0 before the device is used."""
    check_device(device)
    return runtime.runtime().memory_allocated() if _usable() else 0


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes that live tensors held since the start or the last reset."""
    check_device(device)
    return runtime.runtime().max_memory_allocated() if _usable() else 0


def memory_reserved(device: Device = None) -> int:
    """Bytes that the client's allocator holds: at least what tensors hold."""
    return max(memory_allocated(device), _client_figure("bytes_reserved"))


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes that the client's allocator held."""
    return max(max_memory_allocated(device), _client_figure("peak_bytes_reserved"))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Start the peak anew from what is held now."""
    check_device(device)
    if _usable():
        runtime.runtime().reset_peak_memory_stats()


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Start the sums of allocated and freed bytes anew. They are not kept per reset: nothing to do."""
    check_device(device)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes of the device."""
    check_device(device)
    total = runtime.runtime().memory_limit()
    used = max(memory_allocated(), _client_figure("bytes_in_use"))
    return max(total - used, 0), total


def empty_cache() -> None:
    """Start pending work, so that what only it holds is released when it is done, and give the host its free memory."""
    if _usable():
        runtime.runtime().flush("empty_cache")
        host_memory.give_back()


def nested_stats() -> dict[str, dict[str, dict[str, int]]]:
    """The figures as torch._C's allocators report them: kind, pool, metric."""
    now, peak = memory_allocated(), max_memory_allocated()
    reserved, peak_reserved = memory_reserved(), max_memory_reserved()
    zero = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
    held = {"current": now, "peak": peak, "allocated": peak, "freed": max(peak - now, 0)}
    kept = {"current": reserved, "peak": peak_reserved, "allocated": peak_reserved, "freed": 0}
    kinds = {"allocated_bytes": held, "active_bytes": held, "requested_bytes": held, "reserved_bytes": kept}
    table = {kind: {pool: dict(found if pool == "all" else zero) for pool in _POOLS} for kind, found in kinds.items()}
    for kind in ("allocation", "segment", "active", "inactive_split", "inactive_split_bytes"):
        table[kind] = {pool: dict(zero) for pool in _POOLS}
    return table


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Flat figures under torch.cuda's names ("allocated_bytes.all.current"), and the client's own under "pjrt."."""
    check_device(device)
    flat: dict[str, Any] = {"num_alloc_retries": 0, "num_ooms": 0}
    for kind, pools in nested_stats().items():
        for pool, metrics in pools.items():
            for metric, value in metrics.items():
                flat[f"{kind}.{pool}.{metric}"] = value
    for name, value in _client_stats().items():
        flat[f"pjrt.{name}"] = value
    return OrderedDict(sorted(flat.items()))


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The figures as a table to print."""
    check_device(device)
    rows = [
        ("allocated", memory_allocated(), max_memory_allocated()),
        ("reserved", memory_reserved(), max_memory_reserved()),
    ]
    lines = [f"{runtime.device()} memory{'now':>24}{'peak':>16}"]
    lines += [f"{name:<20}{_size(now):>15}{_size(peak):>16}" for name, now, peak in rows]
    if not abbreviated:
        lines += [f"{name:<20}{value:>15}" for name, value in sorted(_client_stats().items())]
    return "\n".join(lines)


def host_memory_stats() -> OrderedDict[str, Any]:
    """Pinned host memory is ordinary memory here: no figures."""
    return OrderedDict()


def _usable() -> bool:
    return runtime.started() and not runtime.in_bad_fork()


def _client_stats() -> dict[str, int]:
    return runtime.runtime().memory_stats() if _usable() else {}


def _client_figure(name: str) -> int:
    return int(_client_stats().get(name, 0))


def _size(nbytes: int) -> str:
    for unit, size in (("GiB", _GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"
