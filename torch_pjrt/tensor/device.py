"""The module `torch.pjrt`, and the registration of the device with torch.

Owns what frameworks read off a device module and the order in which torch is told about the device. Streams,
generators and memory figures are in their own modules; running and counting is behind runtime.py. Importing this
creates no client: the chip is first touched by the first tensor, `init()`, or a question that only the chip can
answer.
"""

from __future__ import annotations

import types
from contextlib import AbstractContextManager, ContextDecorator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from torch_pjrt.tensor import memory, random, runtime, streams
from torch_pjrt.tensor.guard import Guard
from torch_pjrt.tensor.streams import check_device

Device: TypeAlias = torch.device | str | int | None


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What `get_device_properties` gives. total_memory in bytes; major and minor are CUDA's notion and 0 here."""

    name: str
    type: str
    platform: str
    total_memory: int
    major: int = 0
    minor: int = 0
    multi_processor_count: int = 1


class device(ContextDecorator):
    """`with torch.pjrt.device(0):` checks the index; the process's one device stays current."""

    def __init__(self, device: Any = None):
        check_device(None if isinstance(device, int) and device < 0 else device)
        self.idx = 0

    def __enter__(self) -> device:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None


class device_of(device):
    """`with torch.pjrt.device_of(tensor):` as torch.cuda.device_of."""

    def __init__(self, obj: Any):
        super().__init__(None)


class eager_mode(ContextDecorator):
    """`with torch.pjrt.eager_mode("debug"):` runs the block in that mode: "debug", "strict" or "fused"."""

    def __init__(self, mode: str):
        self.mode = mode
        self._before: str | None = None

    def __enter__(self) -> eager_mode:
        if self._before is None:
            self._before = get_eager_mode()
            runtime.runtime().set_eager_mode(self.mode)
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self._before is not None
        runtime.runtime().set_eager_mode(self._before)
        self._before = None


def is_available() -> bool:
    """True: without an accelerator the CPU client in jaxlib runs everything. Creates no client."""
    return not runtime.in_bad_fork()


def device_count() -> int:
    """1: a process drives one device. Creates no client."""
    return 1


def current_device() -> int:
    """0, the one device."""
    return 0


def set_device(device: Device) -> None:
    """Checks the index; there is one device to choose."""
    check_device(device)


def is_initialized() -> bool:
    """True: the device is ready whenever it is used."""
    return True


def init() -> None:
    """Create the client now, rather than at the first tensor."""
    runtime.runtime()


def _lazy_init() -> None:
    """torch calls this before it makes a tensor here. Only forked children are refused; kernels load the runtime."""
    runtime.check_fork()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had used the device."""
    return runtime.in_bad_fork()


def get_device_name(device: Device = None) -> str:
    """The chip's own name for itself."""
    check_device(device)
    return runtime.runtime().device_kind()


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Name, platform and memory of the chip."""
    check_device(device)
    running = runtime.runtime()
    return DeviceProperties(running.device_kind(), runtime.device().type, running.platform(), running.memory_limit())


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """(0, 0): compute capability is CUDA's notion."""
    check_device(device)
    return (0, 0)


def supported_dtypes() -> set[torch.dtype]:
    """dtypes of which tensors can be made and converted on the device."""
    from torch_pjrt.ops.dtypes import TO_NUMPY

    return set(TO_NUMPY)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True on every platform: XLA widens where the chip has no bfloat16 units."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """dtypes that torch.autocast may use here; the first is the default."""
    return [torch.bfloat16, torch.float16, torch.float32]


def stats() -> dict[str, Any]:
    """Counters: compiles, cache hits, flushes by reason, host reads, fallbacks. Loads the runtime."""
    return runtime.runtime().stats()


def reset_stats() -> None:
    """Set every counter to zero."""
    runtime.runtime().reset_stats()


def cache_stats() -> dict[str, Any]:
    """Those counters that are about compiled programs."""
    names = ("compiles", "cache_hits", "disk_hits", "compile_seconds", "programs_launched")
    found = stats()
    return {name: found[name] for name in names if name in found}


def explain_recompiles() -> str:
    """Text that says what compiled, how often, and why."""
    return runtime.runtime().explain_recompiles()


def set_eager_mode(mode: str) -> eager_mode:
    """Choose "debug", "strict" or "fused" from now on; `with torch.pjrt.set_eager_mode("debug"):` for a block."""
    chosen = eager_mode(mode)
    chosen._before = get_eager_mode()
    runtime.runtime().set_eager_mode(mode)
    return chosen


def get_eager_mode() -> str:
    """The mode in force."""
    return runtime.runtime().get_eager_mode()


def fail_on(
    *, recompile: bool = False, fallback: bool = False, host_read: bool = False
) -> AbstractContextManager[None]:
    """Make compiles, CPU fallbacks or host reads raise inside a `with` block."""
    return runtime.runtime().fail_on(recompile=recompile, fallback=fallback, host_read=host_read)


def ipc_collect() -> None:
    """Device memory is not shared between processes: nothing to collect."""


_NAMESPACES: dict[str, tuple[types.ModuleType, tuple[str, ...]]] = {
    "random": (
        random,
        tuple("manual_seed seed initial_seed get_rng_state set_rng_state get_rng_state_all set_rng_state_all".split()),
    ),
    "memory": (
        memory,
        (
            "memory_allocated",
            "max_memory_allocated",
            "memory_reserved",
            "max_memory_reserved",
            "reset_peak_memory_stats",
            "reset_accumulated_memory_stats",
            "memory_stats",
            "memory_summary",
            "host_memory_stats",
            "mem_get_info",
            "empty_cache",
        ),
    ),
    "streams": (streams, ("StreamContext", "stream", "default_stream", "current_stream", "set_stream", "synchronize")),
}

_OWN: tuple[Any, ...] = (
    DeviceProperties,
    device,
    device_of,
    eager_mode,
    is_available,
    device_count,
    current_device,
    set_device,
    is_initialized,
    init,
    _lazy_init,
    _is_in_bad_fork,
    get_device_name,
    get_device_properties,
    get_device_capability,
    is_bf16_supported,
    get_amp_supported_dtype,
    stats,
    reset_stats,
    cache_stats,
    explain_recompiles,
    set_eager_mode,
    get_eager_mode,
    fail_on,
    ipc_collect,
)


class DeviceModule(types.ModuleType):
    """The module object. `default_generators` is made when it is first asked for."""

    _initialized = True  # torch.utils.checkpoint saves this device's RNG only if it sees a truthy one

    @property
    def default_generators(self) -> tuple[random.PjrtGenerator]:
        """One generator for the one device."""
        return (random.default_generator(),)


def device_module(name: str) -> DeviceModule:
    """Build `torch.<name>` from the tables above."""
    module = DeviceModule(f"torch.{name}", f"The {name} device: the PJRT chip of this process. See torch_pjrt.")
    for entry in _OWN:
        setattr(module, entry.__name__, entry)
    for title, (source, names) in _NAMESPACES.items():
        for each in names:
            setattr(module, each, getattr(source, each))
        if title != "streams":
            setattr(module, title, source)
    module.manual_seed_all = random.manual_seed  # type: ignore[attr-defined]
    module.seed_all = random.seed  # type: ignore[attr-defined]
    module.Stream = streams.PjrtStream  # type: ignore[attr-defined]
    module.Event = streams.PjrtEvent  # type: ignore[attr-defined]
    module.amp = _amp_namespace(name)  # type: ignore[attr-defined]
    module.__all__ = sorted(each for each in vars(module) if not each.startswith("_"))  # type: ignore[attr-defined]
    return module


def _amp_namespace(name: str) -> types.ModuleType:
    amp = types.ModuleType(f"torch.{name}.amp", "Autocast and GradScaler with the device's type filled in.")

    class autocast(torch.amp.autocast_mode.autocast):
        """torch.autocast of this device."""

        def __init__(self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True):
            super().__init__(name, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    class GradScaler(torch.amp.GradScaler):
        """torch.amp.GradScaler of this device."""

        def __init__(self, *args: Any, **kwargs: Any):
            super().__init__(name, *args, **kwargs)

    amp.autocast, amp.GradScaler = autocast, GradScaler  # type: ignore[attr-defined]
    return amp


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    """What torch's C++ side asks about the device."""

    def is_available(self) -> bool:
        return True

    def has_primary_context(self, dev_id: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


_library: torch.library.Library | None = None


def register(name: str) -> DeviceModule:
    """Tell torch about the device: name, methods, module, hooks, guard. Once for a process."""
    global _library
    import torch.utils.backend_registration as backend_registration

    module = device_module(name)
    backend_registration._setup_privateuseone_for_python_backend(
        name, backend_module=module, hook=_Hooks(), device_guard=Guard()
    )
    backend_registration.generate_methods_for_privateuse1_backend(
        for_tensor=False, for_module=False, for_packed_sequence=False, for_storage=True
    )
    _library = torch.library.Library("aten", "IMPL")
    _library.impl("_has_compatible_shallow_copy_type", _same_kind_of_tensor, "PrivateUse1")
    _library.impl("record_stream", _record_stream, "PrivateUse1")
    return module


def _same_kind_of_tensor(self: torch.Tensor, from_: torch.Tensor) -> bool:
    """Whether a tensor may take over the other's data while it stays the same object (`module.to`, `.data =`).

    torch's own answer leaves out-of-tree devices aside; two strided tensors always may.
    """
    return self.layout == torch.strided and from_.layout == torch.strided


def _record_stream(self: torch.Tensor, s: Any) -> None:
    """Nothing to do: memory is released in the order of the one queue."""
