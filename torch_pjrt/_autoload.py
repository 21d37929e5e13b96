"""What `import torch` calls (entry-point group `torch.backends`): registers the device and nothing more.

Never raises, imports no JAX, creates no client. torch has one slot for out-of-tree devices; when another package
holds it, one warning says so and nothing is registered.
"""

from __future__ import annotations

import contextlib
import warnings

# Packages that take torch's PrivateUse1 slot when torch is imported.
_SLOT_PACKAGES = frozenset(
    {"torch_npu", "torch_tpu", "torch_musa", "torch_mlu", "torch_gcu", "torch_sdaa", "torch_neuronx", "torch_openreg"}
    | {"torch_spyre", "torch_txda", "torch_vacc", "torch_fl"}
)

_registered: str | None = None


def autoload(*, force: bool = False) -> None:
    """Register the device with torch. `force` does it although another package that wants the slot is installed.

    Without `force` (as torch calls it) problems become warnings.
    """
    try:
        _autoload(force)
    except Exception as error:
        if force:
            raise
        warnings.warn(f"torch-pjrt could not register its device: {type(error).__name__}: {error}", stacklevel=2)


def registered() -> str | None:
    """The device's name in torch, or None while it is not registered."""
    return _registered


def _autoload(force: bool) -> None:
    global _registered
    if _registered is not None:
        return
    holder = _slot_holder(force)
    if holder is not None:
        from torch_pjrt.errors import SlotTakenWarning

        warnings.warn(
            f"torch-pjrt: {holder} takes PyTorch's one slot for out-of-tree devices, so pjrt is not registered. "
            "Uninstall it, or import torch with TORCH_DEVICE_BACKEND_AUTOLOAD=0 and call "
            "torch_pjrt._autoload.autoload(force=True).",
            SlotTakenWarning,
            stacklevel=4,
        )
        return

    from torch_pjrt.config import settings
    from torch_pjrt.tensor import autocast, device, patches, runtime

    name = settings.device_name
    runtime.set_loader(_load_runtime)
    device.register(name)
    _registered = name
    patches.apply()
    autocast.register(name)
    _register_artifacts()
    _register_first_use()


def _load_runtime() -> object:
    import importlib

    return importlib.import_module("torch_pjrt.dispatch.install").install()


def _register_artifacts() -> None:
    """Let torch.compiler.load_cache_artifacts know our type; a torch without it does without."""
    import importlib

    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("torch_pjrt.compile.artifacts").register()


def _register_first_use() -> None:
    """Register the few kernels that load the rest when the device is first used."""
    try:
        from torch_pjrt.dispatch import boot
    except ModuleNotFoundError as error:
        if error.name != "torch_pjrt.dispatch.boot":
            raise
        return
    boot.register()


def _slot_holder(force: bool) -> str | None:
    """Who holds the slot, or will when torch loads it; None if nobody."""
    import torch

    name = torch._C._get_privateuse1_backend_name()
    if name != "privateuseone":
        return f'another package (as "{name}")'
    if hasattr(torch, name) or torch._C._get_accelerator().type == name:
        return "another package (unnamed)"
    if force:
        return None
    from importlib.util import find_spec

    return next((package for package in sorted(_SLOT_PACKAGES) if find_spec(package) is not None), None)
