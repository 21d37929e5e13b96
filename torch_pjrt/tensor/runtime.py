"""The seam between torch's side of the device and the part that runs work: a protocol, and the one running instance.

`tensor/` may not import `dispatch/`, and JAX must not be imported before the device is used. So the code that
installs the kernels hands over a loader (`set_loader`), the first real use calls it, and what it installs
(`set_runtime`) is what `torch.pjrt` talks to afterwards. Figures that have an answer before that (no memory is in
use, nothing to wait for) check `started()` and never load anything.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, Protocol

import torch

from torch_pjrt.errors import ForkedProcessError, PjrtError


class Runtime(Protocol):
    """What the device module asks of the running dispatcher."""

    def flush(self, reason: str) -> None:
        """Start the pending work; returns before it is done."""

    def synchronize(self) -> None:
        """Start the pending work, wait for the device, raise what went wrong on it (index errors included)."""

    def stats(self) -> dict[str, Any]:
        """Counters: compiles, cache hits, flushes by reason, host reads, fallbacks."""

    def reset_stats(self) -> None:
        """Set every counter of `stats` to zero."""

    def explain_recompiles(self) -> str:
        """Text that says what compiled, how often, and why."""

    def set_eager_mode(self, mode: str) -> None:
        """Choose "debug", "strict" or "fused"."""

    def get_eager_mode(self) -> str:
        """The mode in force."""

    def fail_on(
        self, *, recompile: bool = False, fallback: bool = False, host_read: bool = False
    ) -> AbstractContextManager[None]:
        """Make the events asked for raise inside the context."""

    def memory_allocated(self) -> int:
        """Bytes of device memory that live tensors hold."""

    def max_memory_allocated(self) -> int:
        """The largest `memory_allocated` since the start or the last reset."""

    def reset_peak_memory_stats(self) -> None:
        """Start the peak anew from the present figure."""

    def memory_stats(self) -> dict[str, int]:
        """What the client's allocator reports, by its own names; may be empty."""

    def memory_limit(self) -> int:
        """Bytes of memory that the device has."""

    def array_of(self, value: Any, reason: str) -> Any:
        """The jax.Array of a Value; starts the pending work that makes it."""

    def platform(self) -> str:
        """The PJRT platform: "cpu", "tpu", "cuda", ..."""

    def device_kind(self) -> str:
        """The chip's own name for itself."""


_lock = threading.RLock()
_runtime: Runtime | None = None
_loader: Callable[[], object] | None = None
_in_bad_fork = False


def set_loader(loader: Callable[[], object]) -> None:
    """Say what loads the runtime on first use; it must call `set_runtime`, or return the runtime."""
    global _loader
    _loader = loader


def set_runtime(instance: Runtime | None) -> None:
    """Install the running instance."""
    global _runtime
    _runtime = instance


def runtime() -> Runtime:
    """The running instance, loaded on first use. Raises ForkedProcessError in a child of a process that used it."""
    if _runtime is not None and not _in_bad_fork:
        return _runtime
    return _load()


def started() -> bool:
    """Whether the runtime is loaded: false until the device is used."""
    return _runtime is not None


def in_bad_fork() -> bool:
    """Whether this process was forked from one that had used the device."""
    return _in_bad_fork


def device() -> torch.device:
    """Our one device, pjrt:0 under whatever name it has."""
    return torch.device(torch._C._get_privateuse1_backend_name(), 0)


def is_ours(device_type: str) -> bool:
    """Whether a device type (a string such as "pjrt") is ours."""
    return device_type == torch._C._get_privateuse1_backend_name()


def check_fork() -> None:
    """Raise ForkedProcessError in a child of a process that had used the device."""
    if _in_bad_fork:
        raise ForkedProcessError(
            "The pjrt device was used before this process was forked; its client cannot be used in the child.",
            todo="Start workers with torch.multiprocessing.set_start_method('spawn'), or touch the device only after "
            "the fork. CPU tensors work in forked children, DataLoader workers included.",
        )


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the block is done: kernels and JAX that are half loaded cannot be loaded again.

    Only the main thread is ever interrupted, and only its handler can be replaced.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *given: held.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[0])


def _load() -> Runtime:
    check_fork()
    with _lock, _uninterrupted():
        if _runtime is None:
            if _loader is None:
                raise PjrtError(
                    "The pjrt device has no runtime to load.",
                    todo="Unset TORCH_DEVICE_BACKEND_AUTOLOAD, or call torch_pjrt._autoload.autoload().",
                )
            loaded = _loader()
            if _runtime is None:
                set_runtime(loaded)  # type: ignore[arg-type]
            # JAX warns at every fork, DataLoader's included; here a child that uses the device gets an error instead.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
    if _runtime is None:
        raise PjrtError("The pjrt device's loader installed no runtime.")
    return _runtime


def _after_fork_in_child() -> None:
    global _in_bad_fork, _lock
    _lock = threading.RLock()
    if _runtime is not None:
        _in_bad_fork = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
