"""Every exception and warning that torch-pjrt raises, one class per mistake.

Each message has three parts: what happened (shapes, dtypes, devices), where in the user's code, and what to do.
Callers pass those parts; this module owns how they are laid out. Text from XLA, when there is some, comes last.
"""

from __future__ import annotations

__all__ = [
    "BadSettingError",
    "CacheEntryWarning",
    "CompileError",
    "DeviceMismatchError",
    "FallbackError",
    "FallbackWarning",
    "ForkedProcessError",
    "HostReadError",
    "HostReadWarning",
    "IgnoredOptionWarning",
    "IndexOutOfRangeError",
    "InvalidOperandError",
    "LoweringMismatchError",
    "MissingPluginError",
    "OutOfMemoryError",
    "OverlappingWriteError",
    "PjrtError",
    "PjrtWarning",
    "RecompileError",
    "RecompileWarning",
    "RuntimeFailedError",
    "SlotTakenWarning",
    "UnknownSettingWarning",
    "UnsupportedDtypeError",
    "UnsupportedOpError",
]

import torch


def compose(what: str, *, where: str | None = None, todo: str | None = None, detail: str | None = None) -> str:
    """Lay out an error message: what happened, where, what to do, and the runtime's own text last."""
    parts = [what]
    if where:
        parts.append(f"  at {where}")
    if todo:
        parts.append(f"  {todo}")
    if detail:
        parts.append(f"  The runtime said: {detail.strip()}")
    return "\n".join(parts)


class PjrtError(RuntimeError):
    """Base of all errors of this package. A RuntimeError, as PyTorch's own device errors are."""

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None, detail: str | None = None):
        super().__init__(compose(what, where=where, todo=todo, detail=detail))
        self.where = where


class UnsupportedOpError(PjrtError, NotImplementedError):
    """An operator has no row, no decomposition, and may not run on the CPU."""


class UnsupportedDtypeError(PjrtError):
    """A dtype that the device (or XLA) does not have. Not a TypeError: torch's operators (`x * y`) hide those."""


class DeviceMismatchError(PjrtError):
    """Operands on different devices where PyTorch wants one."""


class InvalidOperandError(PjrtError):
    """Shapes, dtypes or values of operands that the operator does not accept."""


class OverlappingWriteError(PjrtError):
    """A write to a tensor in which several elements share one memory location."""


class IndexOutOfRangeError(PjrtError, IndexError):
    """An index outside its dimension, found on the device."""


class OutOfMemoryError(PjrtError, torch.OutOfMemoryError):
    """The device has no room for a program's buffers."""


class CompileError(PjrtError):
    """The device's compiler refused a program."""


class RuntimeFailedError(PjrtError):
    """The device's runtime failed while it ran a program."""


class LoweringMismatchError(PjrtError):
    """A row gave another shape or dtype than torch says: a bug in this package."""


class MissingPluginError(PjrtError):
    """The chip asked for has no PJRT plugin in this environment."""


class ForkedProcessError(PjrtError):
    """The device was used in a child made by fork after the parent had used it."""


class BadSettingError(PjrtError, ValueError):
    """A setting with a value it cannot take."""


class FallbackError(PjrtError, NotImplementedError):
    """An operator would have run on the CPU while that is forbidden."""


class RecompileError(PjrtError):
    """A program had to be compiled while that is forbidden."""


class HostReadError(PjrtError):
    """A device value was read on the host while that is forbidden."""


class PjrtWarning(UserWarning):
    """Base of all warnings of this package."""


class FallbackWarning(PjrtWarning):
    """An operator ran on the CPU (said once per operator)."""


class CacheEntryWarning(PjrtWarning):
    """An entry of the disk cache was corrupt or foreign and was compiled anew."""


class RecompileWarning(PjrtWarning):
    """One line of the user's code has caused many compiles (setting recompile_limit)."""


class HostReadWarning(PjrtWarning):
    """A graph of torch.compile reads a value on the host, so its operators run one by one as in eager."""


class IgnoredOptionWarning(PjrtWarning):
    """torch.compile was given options of Inductor for a graph on the device."""


class SlotTakenWarning(PjrtWarning):
    """Another package already holds PyTorch's one slot for out-of-tree devices."""


class UnknownSettingWarning(PjrtWarning):
    """A TORCH_PJRT_* variable that no setting has."""
