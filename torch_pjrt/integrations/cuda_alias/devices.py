"""Every public function of torch that takes a device: they are given the pjrt device where CUDA was asked for."""

from __future__ import annotations

__all__ = ["install"]

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._device  # where `with torch.device(...)` gets its context from

from torch_pjrt.config import settings

from .patching import Patches, device_module

# Functions of `torch` that take `device=` by keyword.
FACTORIES = """
    arange as_tensor asarray bartlett_window blackman_window empty empty_like empty_permuted empty_strided eye full
    full_like hamming_window hann_window kaiser_window linspace logspace normal ones ones_like rand rand_like randint
    randint_like randn randn_like randperm range scalar_tensor sparse_compressed_tensor sparse_coo_tensor
    sparse_csr_tensor tensor tril_indices triu_indices zeros zeros_like
""".split()
METHODS = "new_empty new_empty_strided new_full new_ones new_tensor new_zeros".split()
AUTOCAST_QUERIES = """
    get_autocast_dtype is_autocast_enabled set_autocast_dtype set_autocast_enabled
""".split()
FFT = "fftfreq rfftfreq".split()


def install(patches: Patches) -> None:
    """Wrap them all."""
    torch.utils._device._device_constructors()  # torch remembers its own functions here, so before they are wrapped
    for owner, names in ((torch, FACTORIES), (torch.Tensor, METHODS), (torch.fft, FFT)):
        for name in names:
            patches.wrap(owner, name, _keyword(patches))
    for name in AUTOCAST_QUERIES:
        patches.wrap(torch, name, _anywhere(patches))
    patches.wrap(torch.Tensor, "to", _anywhere(patches))
    patches.wrap(torch.nn.Module, "to", _anywhere(patches))
    patches.wrap(torch.nn.Module, "to_empty", _anywhere(patches))
    patches.wrap(torch, "set_default_device", _anywhere(patches))
    patches.wrap(torch.utils._device.DeviceContext, "__init__", _anywhere(patches))
    patches.wrap(torch.autocast, "__init__", _anywhere(patches))
    patches.wrap(torch.amp.GradScaler, "__init__", _grad_scaler(patches))
    for name in ("custom_fwd", "custom_bwd"):
        patches.wrap(torch.amp, name, _anywhere(patches))
    patches.wrap(torch, "load", _load(patches))
    for cls in (torch.Tensor, torch.nn.Module):
        patches.wrap(cls, "cuda", _to_device(patches))
    patches.wrap(torch.Tensor, "type", _tensor_type(patches))
    patches.wrap(torch, "set_default_tensor_type", _default_tensor_type(patches))
    patches.wrap(torch.nn.DataParallel, "__init__", _data_parallel(patches))
    patches.set(torch.Tensor, "is_cuda", property(_is_cuda))


def _keyword(patches: Patches) -> Callable[..., Any]:
    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("device") is not None:
                kwargs["device"] = patches.device(kwargs["device"])
            return function(*args, **kwargs)

        return call

    return make


def _anywhere(patches: Patches) -> Callable[..., Any]:
    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs = {name: patches.device(value) for name, value in kwargs.items()}
            return function(*map(patches.device, args), **kwargs)

        return call

    return make


def _grad_scaler(patches: Patches) -> Callable[..., Any]:
    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
            function(self, patches.device(device), *args, **kwargs)

        return call

    return make


def _load(patches: Patches) -> Callable[..., Any]:
    """`torch.load`: a checkpoint that was saved from CUDA goes to the pjrt device unless it is sent elsewhere."""

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            if map_location is None:
                map_location = {"cuda:0": f"{settings.device_name}:0"}
            elif isinstance(map_location, dict):
                map_location = {key: patches.device(value) for key, value in map_location.items()}
            elif callable(map_location):
                map_location = _mapped_result(patches, map_location)
            return function(f, patches.device(map_location), *args, **kwargs)

        return call

    return make


def _mapped_result(patches: Patches, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: patches.device(function(*args))


def _to_device(patches: Patches) -> Callable[..., Any]:
    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def cuda(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
            patches.counts.note(".cuda()")
            index = device if isinstance(device, int) else 0
            target = torch.device(settings.device_name, index) if device is None or index == device else device
            return self.to(patches.device(target), **({"non_blocking": True} if non_blocking else {}))

        return cuda

    return make


def _legacy_dtype(kind: Any) -> torch.dtype | None:
    """The dtype of `torch.cuda.FloatTensor`, given as a class or as its name; None for anything else."""
    name = kind if isinstance(kind, str) else f"{getattr(kind, '__module__', '')}.{getattr(kind, '__name__', '')}"
    module, _, kind_name = name.rpartition(".")
    found = getattr(torch, kind_name, None) if module == "torch.cuda" else None
    return getattr(found, "dtype", None)


def _tensor_type(patches: Patches) -> Callable[..., Any]:
    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
            legacy = _legacy_dtype(dtype)
            if legacy is None:
                return function(self, dtype, *args, **kwargs)
            patches.counts.note("torch.cuda.*Tensor")
            return self.to(settings.device_name, legacy)

        return call

    return make


def _default_tensor_type(patches: Patches) -> Callable[..., Any]:
    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(kind: Any) -> None:
            legacy = _legacy_dtype(kind)
            if legacy is None:
                return function(kind)
            patches.counts.note("torch.cuda.*Tensor")
            torch.set_default_dtype(legacy)
            return torch.set_default_device(settings.device_name)

        return call

    return make


def _data_parallel(patches: Patches) -> Callable[..., Any]:
    """One process drives one chip, so DataParallel becomes a plain wrapper around its module."""

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
            patches.counts.note("torch.nn.DataParallel")
            torch.nn.Module.__init__(self)
            self.module = module.to(device_module().current_device())
            self.dim, self.device_ids, self.output_device = dim, [], output_device

        return call

    return make


def _is_cuda(tensor: torch.Tensor) -> bool:
    """True on the pjrt device when a program asks; torch's own code is told the truth, since it acts on it."""
    asker = sys._getframe(1).f_globals.get("__name__", "")
    return tensor.device.type == settings.device_name and asker.partition(".")[0] != "torch"
