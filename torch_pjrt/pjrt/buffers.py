"""Moves values between host and device, and packs the 0-d operands of a launch.

All copies here are real ones: neither side may see a later write of the other.
"""

from __future__ import annotations

import struct
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from torch_pjrt.pjrt.client import chip

_FORMATS = {"i": "q", "f": "d", "c": "dd", "b": "q", "s": "QQ"}
_NO_WORDS = np.zeros(0, np.uint32)


def to_device(array: np.ndarray[Any, Any]) -> Any:
    """A host array as a device array. The caller gives up the array: it may be aliased on CPU, so it must be private."""
    with jax.enable_x64(True):
        return jax.device_put(array, chip().device)


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """A device array's value as a NumPy array that may alias it: copy before writing. Waits for the device."""
    return np.asarray(array)


def words_for(kinds: str, narrow: bool = False) -> Callable[[Sequence[Any]], np.ndarray[Any, Any]]:
    """A function that packs numbers of these kinds as the uint32 vector that program/evaluate.py decodes."""
    if not kinds:
        return lambda numbers: _NO_WORDS
    formats = {**_FORMATS, "f": "f4x", "c": "ff8x"} if narrow else _FORMATS
    pack = struct.Struct("=" + "".join(formats[k] for k in kinds)).pack
    if "c" in kinds or "s" in kinds:

        def flat(numbers: Sequence[Any]) -> np.ndarray[Any, Any]:
            out: list[Any] = []
            for kind, number in zip(kinds, numbers, strict=True):
                if kind == "c":
                    out += (complex(number).real, complex(number).imag)
                elif kind == "s":
                    out += number
                else:
                    out.append(number)
            return np.frombuffer(pack(*out), np.uint32)

        return flat
    return lambda numbers: np.frombuffer(pack(*numbers), np.uint32)


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """A device array of zeros."""
    return to_device(np.zeros(shape, dtype))


_launched: deque[weakref.ref[Any]] = deque(maxlen=64)


def remember(result: Any) -> None:
    """Note a result of a launch, so that barrier() can wait for it."""
    _launched.append(weakref.ref(result))


def barrier() -> None:
    """Wait until what was launched so far is done: the latest launches whose results somebody still holds."""
    while _launched:
        array = _launched.pop()()
        if array is not None and not array.is_deleted():
            array.block_until_ready()


def memory_stats() -> dict[str, int]:
    """The allocator's own figures, by its own names; empty where the plugin gives none."""
    return {k: int(v) for k, v in (chip().device.memory_stats() or {}).items()}


def memory_limit() -> int:
    """Bytes of device memory; on the CPU client, the host's."""
    stats = memory_stats()
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
