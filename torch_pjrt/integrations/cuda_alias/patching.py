"""Attributes replaced for a while, the count of what was asked through them, and the mapping of a device."""

from __future__ import annotations

__all__ = ["Counts", "Patches"]

import collections
import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt.config import settings
from torch_pjrt.dispatch.lines import show, user_line

_ABSENT = object()


class Counts(collections.Counter[str]):
    """What was mapped, by name; `lines` counts the same by name and line of the program."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: collections.Counter[str] = collections.Counter()

    def note(self, name: str) -> None:
        """Count one more."""
        self[name] += 1
        self.lines[f"{name} at {show(user_line()) or 'outside Python'}"] += 1


class Patches:
    """Replaces attributes and puts them back in reverse order."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace one attribute until `undo`."""
        self._undo.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            owner, name, before = self._undo.pop()
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def wrap(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replace a function by `make(function)`, when this torch has it."""
        before = getattr(owner, name, None)
        if before is not None:
            self.set(owner, name, functools.wraps(before)(make(before)))

    def device(self, value: Any) -> Any:
        """The pjrt device for a CUDA device or its name; anything else as it is."""
        if isinstance(value, str):
            if value != "cuda" and not value.startswith("cuda:"):
                return value
            self.counts.note('device="cuda"')
            return settings.device_name + value[len("cuda") :]
        if isinstance(value, torch.device) and value.type == "cuda":
            self.counts.note('device="cuda"')
            return torch.device(settings.device_name, value.index or 0)
        return value


def device_module() -> Any:
    """`torch.pjrt`, or what it is called when the device has another name."""
    return getattr(torch, settings.device_name)
