"""Every patch of torch, each small, each naming the upstream interface it stands in for.

torch's Python route for out-of-tree devices lets a backend give a hook object, a guard and kernels, but no allocator,
generator, stream or pinned memory; those reach torch through C++ only. Each row of `PATCHES` closes one such gap for
our device and passes every other device on to what was there before. A row is skipped where `already` finds that
torch does it itself. Kernels of ours are not patches and are not here.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torch_pjrt.tensor import dlpack, guard, memory, pinned, random, runtime, storage_methods, streams


@dataclass(frozen=True, slots=True)
class Patch:
    """One patch. `stands_for` names the upstream interface that would make it needless."""

    name: str
    stands_for: str
    install: Callable[[], None]
    already: Callable[[], bool] = lambda: False


_torch: Any = torch
_applied: list[str] = []


def apply() -> list[str]:
    """Install all patches that this torch needs; gives their names. A patch that fails is reported and left out."""
    if not _applied:
        for patch in PATCHES:
            try:
                if patch.already():
                    continue
                patch.install()
            except Exception as error:
                warnings.warn(f"torch-pjrt: {patch.name} is not available: {error}", stacklevel=2)
                continue
            _applied.append(patch.name)
    return list(_applied)


def _ours(tensor_or_storage: Any) -> bool:
    return runtime.is_ours(tensor_or_storage.device.type)


def _names_ours(device: Any) -> bool:
    """Whether a device argument means our device; None and plain indices mean the current accelerator."""
    if device is None or isinstance(device, int):
        current = torch._C._accelerator_getAccelerator()
        return current is not None and runtime.is_ours(current.type)
    return runtime.is_ours(torch.device(device).type)


# -- classes that torch makes in C++ ---------------------------------------------------------------------------------


def _face(native: type, ours: Callable[..., Any], wanted: Callable[..., bool]) -> type:
    """A class that stands before a C++ one: makes ours when `wanted`, else the native; checks see the native."""

    class Face(type(native)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is face:
                return ours(*args, **kwargs) if wanted(*args, **kwargs) else native(*args, **kwargs)
            return super().__call__(*args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, native) if cls is face else super().__instancecheck__(instance)

        def __subclasscheck__(cls, sub: type) -> bool:
            return issubclass(sub, native) if cls is face else super().__subclasscheck__(sub)

    face = Face(native.__name__, (native,), {"__module__": "torch", "__doc__": native.__doc__})
    return face


def _stream_wanted(*args: Any, **kwargs: Any) -> bool:
    if "device_type" in kwargs:
        return int(kwargs["device_type"]) == streams._PRIVATEUSE1
    return _names_ours(args[0] if args else kwargs.get("device"))


def _stream() -> None:
    _torch.Stream = _face(streams.NativeStream, streams.PjrtStream, _stream_wanted)


def _event() -> None:
    def wanted(*args: Any, **kwargs: Any) -> bool:
        return _names_ours(args[0] if args else kwargs.get("device"))

    _torch.Event = _face(streams.NativeEvent, streams.PjrtEvent, wanted)


def _generator() -> None:
    native: Any = torch.Generator

    def wanted(*args: Any, **kwargs: Any) -> bool:
        device = args[0] if args else kwargs.get("device")
        return device is not None and _names_ours(device)

    def ours(device: Any = None) -> random.PjrtGenerator:
        streams.check_device(device)
        return random.PjrtGenerator()

    metaclass: Any = type(native)
    if metaclass is type:
        _torch.Generator = _face(native, ours, wanted)
        return
    before = metaclass.__call__

    def call(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is native and (args or kwargs) and wanted(*args, **kwargs):
            return ours(*args, **kwargs)
        return before(cls, *args, **kwargs)

    metaclass.__call__ = call


def _generator_is_native() -> bool:
    try:
        torch.Generator(device=runtime.device().type)
    except Exception:
        return False
    return True


# -- torch.accelerator -----------------------------------------------------------------------------------------------


def _accelerator() -> None:
    table: dict[str, Callable[..., Any]] = {
        "synchronizeDevice": lambda index: streams.synchronize(index),
        "setDeviceIndex": lambda index: streams.check_device(index),
        "exchangeDevice": _exchange,
        "maybeExchangeDevice": _exchange,
        "getStream": lambda index: streams.current_stream(),
        "setStream": lambda stream: streams.set_stream(stream),
        "isAllocatorInitialized": lambda: True,
        "emptyCache": lambda: memory.empty_cache(),
        "emptyHostCache": lambda: None,
        "getDeviceStats": lambda index: memory.nested_stats(),
        "resetAccumulatedStats": lambda index: memory.reset_accumulated_memory_stats(index),
        "resetPeakStats": lambda index: memory.reset_peak_memory_stats(index),
        "getMemoryInfo": lambda index: memory.mem_get_info(index),
        "getDeviceCapability": lambda index: {"supported_dtypes": _supported_dtypes()},
    }
    for suffix, ours in table.items():
        name = f"_accelerator_{suffix}"
        native = getattr(torch._C, name, None)
        if native is not None:
            setattr(torch._C, name, _for_current(ours, native))


def _exchange(index: int) -> int:
    streams.check_device(index if index >= 0 else None)
    return 0


def _supported_dtypes() -> set[torch.dtype]:
    from torch_pjrt.tensor.device import supported_dtypes

    return supported_dtypes()


def _for_current(ours: Callable[..., Any], native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def chosen(*args: Any) -> Any:
        return ours(*args) if _names_ours(None) else native(*args)

    return chosen


# -- storages --------------------------------------------------------------------------------------------------------


def _storage_new() -> None:
    native = torch.UntypedStorage.__new__

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None and _names_ours(device):
            return storage_methods.make(*args)
        return native(cls, *args, **kwargs)

    _torch.UntypedStorage.__new__ = staticmethod(new)


def _storage_resize() -> None:
    native = torch.UntypedStorage.resize_

    def resize_(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        return storage_methods.resize(self, size) if _ours(self) else native(self, size)

    _torch.UntypedStorage.resize_ = functools.wraps(native)(resize_)
    resizable = torch.UntypedStorage.resizable
    _torch.UntypedStorage.resizable = lambda self: _ours(self) or resizable(self)


def _storage_files() -> None:
    native_write, native_read = torch.UntypedStorage._write_file, torch.UntypedStorage._set_from_file

    def _write_file(self: torch.UntypedStorage, *args: Any) -> Any:
        return storage_methods.write_file(self, *args) if _ours(self) else native_write(self, *args)

    def _set_from_file(self: torch.UntypedStorage, *args: Any) -> Any:
        return storage_methods.set_from_file(self, *args) if _ours(self) else native_read(self, *args)

    _torch.UntypedStorage._write_file = functools.wraps(native_write)(_write_file)
    _torch.UntypedStorage._set_from_file = functools.wraps(native_read)(_set_from_file)


def _storage_to() -> None:
    native = _torch.storage._to

    def to(self: Any, device: torch.device, non_blocking: bool = False) -> Any:
        return native(self, device, non_blocking and not _ours(self))

    _torch.storage._to = functools.wraps(native)(to)


def _between_processes() -> None:
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    native = reductions.reduce_storage

    def reduce_storage(storage: torch.UntypedStorage) -> Any:
        return storage_methods.reduce(storage) if _ours(storage) else native(storage)

    reductions.reduce_storage = functools.wraps(native)(reduce_storage)
    ForkingPickler.register(torch.UntypedStorage, reductions.reduce_storage)


# -- autocast --------------------------------------------------------------------------------------------------------


def _autocast_cache() -> None:
    from torch_pjrt.tensor.autocast import clear_cache

    native = torch.clear_autocast_cache

    @functools.wraps(native)
    def clear_autocast_cache() -> None:
        clear_cache()
        native()

    _torch.clear_autocast_cache = clear_autocast_cache


def _autocast_dtype() -> None:
    chosen = threading.local()
    native_get, native_set = torch.get_autocast_dtype, torch.set_autocast_dtype

    @functools.wraps(native_get)
    def get_autocast_dtype(device_type: str) -> torch.dtype:
        if runtime.is_ours(device_type) and not hasattr(chosen, "once"):
            set_autocast_dtype(device_type, torch.bfloat16)
        return native_get(device_type)

    @functools.wraps(native_set)
    def set_autocast_dtype(device_type: str, dtype: torch.dtype) -> None:
        native_set(device_type, dtype)
        if runtime.is_ours(device_type):
            chosen.once = True

    _torch.get_autocast_dtype, _torch.set_autocast_dtype = get_autocast_dtype, set_autocast_dtype


# -- DLPack, printing ------------------------------------------------------------------------------------------------


def _dlpack() -> None:
    native_capsule, native_device = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__

    @functools.wraps(native_capsule)
    def __dlpack__(self: torch.Tensor, **kwargs: Any) -> Any:
        return dlpack.export(self, **kwargs) if _ours(self) else native_capsule(self, **kwargs)

    @functools.wraps(native_device)
    def __dlpack_device__(self: torch.Tensor) -> Any:
        return dlpack.device_of(self) if _ours(self) else native_device(self)

    _torch.Tensor.__dlpack__ = __dlpack__
    _torch.Tensor.__dlpack_device__ = __dlpack_device__

    module: Any = torch.utils.dlpack
    native_take, native_give = module.from_dlpack, module.to_dlpack

    @functools.wraps(native_take)
    def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> torch.Tensor:
        if dlpack.wants_ours(ext_tensor, device):
            return dlpack.take(ext_tensor, device, copy, native_take)
        return native_take(ext_tensor, device=device, copy=copy)

    @functools.wraps(native_give)
    def to_dlpack(tensor: torch.Tensor) -> Any:
        return dlpack.export(tensor) if _ours(tensor) else native_give(tensor)

    module.from_dlpack = _torch.from_dlpack = from_dlpack
    module.to_dlpack = to_dlpack
    if hasattr(torch, "to_dlpack"):
        _torch.to_dlpack = to_dlpack


def _printing() -> None:
    module: Any = torch._tensor_str
    native = module._tensor_str

    @functools.wraps(native)
    def _tensor_str(self: torch.Tensor, indent: int) -> str:
        return native(self.detach().cpu() if _ours(self) else self, indent)

    module._tensor_str = _tensor_str


def _flex_attention() -> None:
    import torch.nn.attention.flex_attention as flex

    module: Any = flex
    native = module._validate_device
    ours = torch._C._get_privateuse1_backend_name()

    @functools.wraps(native)
    def _validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != ours:  # Dynamo traces this function (compile/redirect.py), so it calls nothing of ours
            native(query, key, value)

    module._validate_device = _validate_device


def _jagged_attention() -> None:
    import torch.nested._internal.sdpa as sdpa

    module: Any = sdpa
    native = module._select_sdp_backend

    @functools.wraps(native)
    def _select_sdp_backend(query: torch.Tensor, *rest: Any) -> Any:
        return sdpa.SDPBackend.EFFICIENT_ATTENTION if _ours(query) else native(query, *rest)

    module._select_sdp_backend = _select_sdp_backend


PATCHES = (
    Patch("torch.Generator", "PrivateUse1HooksInterface::getNewGenerator", _generator, _generator_is_native),
    Patch("torch.Stream", "DeviceGuardImplInterface::getNewStream, synchronizeStream, queryStream", _stream),
    Patch("torch.Event", "DeviceGuardImplInterface::record, synchronizeEvent, elapsedTime", _event),
    Patch("torch.accelerator", "c10::DeviceAllocator, at::HostAllocator, getDeviceCapability", _accelerator),
    Patch("torch.UntypedStorage(device=)", "the allocator of PrivateUse1 (c10::SetAllocator)", _storage_new),
    Patch("torch.UntypedStorage.resize_", "PrivateUse1HooksInterface::resizePrivateUse1Bytes", _storage_resize),
    Patch("torch.UntypedStorage to and from files", "at::from_blob on PrivateUse1 with a true address", _storage_files),
    Patch("UntypedStorage.to(non_blocking=True)", "PrivateUse1HooksInterface::getPinnedMemoryAllocator", _storage_to),
    Patch("Tensor.pin_memory", "PrivateUse1HooksInterface::getPinnedMemoryAllocator, isPinnedPtr", pinned.register),
    Patch("tensors sent between processes", "a registry in torch.multiprocessing.reductions", _between_processes),
    Patch("errors inside backward", "a C++ PythonDeviceGuard::type that calls no Python", guard.install_engine),
    Patch("torch.clear_autocast_cache", "at::autocast::cached_cast from Python", _autocast_cache),
    Patch("torch.get_autocast_dtype", "a default dtype of PrivateUse1 for all threads", _autocast_dtype),
    Patch("DLPack", "torch.Tensor.__dlpack_device__ for a renamed PrivateUse1", _dlpack),
    Patch("flex_attention", "a registry of devices in torch.nn.attention.flex_attention", _flex_attention),
    Patch("attention over jagged tensors", "DispatchStub _fused_sdp_choice for nested tensors", _jagged_attention),
    Patch("printing", "the list of devices in torch._tensor_str that are printed from a CPU copy", _printing),
)
