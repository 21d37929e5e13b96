"""Starts the device: fills the kernel table and hands torch.pjrt its runtime. Called on first use."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from torch_pjrt import logs
from torch_pjrt.config import settings
from torch_pjrt.counters import counters, forbidden
from torch_pjrt.dispatch import launch, special, table, views
from torch_pjrt.dispatch.fused import recorder
from torch_pjrt.errors import BadSettingError
from torch_pjrt.pjrt import buffers
from torch_pjrt.pjrt.client import chip
from torch_pjrt.tensor.memory_ledger import ledger
from torch_pjrt.tensor.runtime import set_runtime

_lock = threading.Lock()
_libraries: list[torch.library.Library] = []


class DeviceRuntime:
    """What torch.pjrt asks of the dispatcher (tensor/runtime.py says what each method owes)."""

    def flush(self, reason: str) -> None:
        recorder().flush(reason)

    def synchronize(self) -> None:
        recorder().wait()

    def array_of(self, value: Any, reason: str) -> Any:
        return recorder().array_of(value, reason)

    def stats(self) -> dict[str, Any]:
        return counters.as_dict()

    def reset_stats(self) -> None:
        counters.reset()

    def explain_recompiles(self) -> str:
        causes = list(counters.causes)
        head = f"{counters.compiles} programs compiled in {counters.compile_seconds:.2f} s"
        if counters.captures:
            head += f", {counters.captures} graphs of torch.compile captured"
        if counters.captures_ahead:
            head += f" ({counters.captures_ahead} of them ahead, {counters.captures_ahead_used} of which were called)"
        return "\n".join([head, *(f"  {i + 1}. {cause}" for i, cause in enumerate(causes))])

    def set_eager_mode(self, mode: str) -> None:
        if mode not in ("debug", "strict", "fused"):
            raise BadSettingError(f"no eager mode {mode!r}", todo='Choose "debug", "strict" or "fused".')
        engine = recorder()
        engine.flush("mode change", whole=True)
        settings.eager_mode = mode
        engine.mode, engine.fused = mode, mode == "fused"

    def get_eager_mode(self) -> str:
        return recorder().mode

    @contextlib.contextmanager
    def fail_on(self, *, recompile: bool = False, fallback: bool = False, host_read: bool = False) -> Iterator[None]:
        recorder().flush("fail_on")
        before = (forbidden.recompile, forbidden.fallback, forbidden.host_read)
        forbidden.recompile |= recompile
        forbidden.fallback |= fallback
        forbidden.host_read |= host_read
        try:
            yield
            recorder().flush("fail_on")
        finally:
            forbidden.recompile, forbidden.fallback, forbidden.host_read = before

    def memory_allocated(self) -> int:
        return ledger.allocated

    def max_memory_allocated(self) -> int:
        return ledger.peak

    def reset_peak_memory_stats(self) -> None:
        ledger.reset_peak()

    def memory_stats(self) -> dict[str, int]:
        return buffers.memory_stats()

    def memory_limit(self) -> int:
        return buffers.memory_limit()

    def platform(self) -> str:
        return chip().platform

    def device_kind(self) -> str:
        return chip().kind


def install() -> DeviceRuntime:
    """Fill the table and start. Safe to call twice."""
    from torch_pjrt.tensor import runtime as seam

    with _lock:
        if seam._runtime is not None:
            return seam._runtime  # type: ignore[return-value]
        logs.apply_setting()
        library = torch.library.Library("aten", "IMPL")  # noqa: TOR901 - lives as long as the process
        _libraries.append(library)
        with _quiet_reregistration():
            special.register(library)
            views.register(library)
            table.fill()
        _flush_around_optimizer_steps()
        _redirect_compile()
        instance = DeviceRuntime()
        set_runtime(instance)
        return instance


@contextlib.contextmanager
def _quiet_reregistration() -> Iterator[None]:
    """boot.py's loading kernels are replaced on purpose; torch would warn about each."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*verrid")
        yield


def _redirect_compile() -> None:
    """torch.compile without a backend name uses ours for graphs on the device."""
    import importlib

    importlib.import_module("torch_pjrt.compile.redirect").apply()


def _flush_around_optimizer_steps() -> None:
    """A training loop that reads nothing back still runs the same programs at each step, cut at the same places."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(_flush_before_step)
    register_optimizer_step_post_hook(_flush_after_step)


def _flush_before_step(*_: object) -> None:
    """The gradients are whole: the device can compute them while the update is recorded."""
    recorder().flush_long("optimizer step begins")


def forget_programs() -> None:
    """Drop all compiled programs of this process."""
    from torch_pjrt.pjrt import compiler
    from torch_pjrt.program import fingerprint

    recorder().flush("forget", whole=True)
    fingerprint.forget()
    launch.forget()
    compiler.forget()


def _flush_after_step(*_: object) -> None:
    """A training step is a natural end of a program. Nothing runs inside a capture."""
    if not recorder().capturing:
        recorder().flush("optimizer step")
