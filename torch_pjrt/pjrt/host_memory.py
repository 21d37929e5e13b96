"""What the C library does with memory that XLA's client of the host's CPU frees.

Owns the two calls of glibc's allocator that say so; elsewhere nothing is done. pjrt/client.py keeps the memory when the
device is the CPU, tensor/memory.py gives it back for torch.accelerator.empty_cache().
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

from torch_pjrt.config import settings

# glibc's parameters (malloc.h). By its own rules it returns what is free at the end of its heaps to the system: at the end
# of every training step, whose next one then asks for the same pages, and waits until they are cleared.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEEP = (
    (_TRIM_THRESHOLD, 1 << 30),  # bytes that may be free at the end of a heap
    (_TOP_PAD, 1 << 26),  # a heap that is free as a whole stays: no heap is larger
    (_MMAP_THRESHOLD, 1 << 25),  # from here on an allocation is the system's own business; the largest that glibc takes
)


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return None
    return ctypes.CDLL(None)


def keep_freed() -> None:
    """Let freed memory stay with the process for its next use, as the allocators of other devices do."""
    library = _glibc() if settings.keep_memory else None
    if library is not None:
        for parameter, value in _KEEP:
            library.mallopt(parameter, value)


def give_back() -> None:
    """Return what is free to the system."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)
