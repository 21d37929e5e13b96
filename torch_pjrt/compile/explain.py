"""Why a graph was captured again: what differs between the arguments of this call and those of the last one.

The texts go where those of compiled programs go: torch.pjrt.explain_recompiles(), the log, and tlparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_SHOWN = 4


def cause(
    what: str, names: Sequence[str], args: Sequence[Any], before: Sequence[Any] | None, again: str = "again"
) -> str:
    """One line. what: the graph; args, before: the arguments of this capture and of the one before, as facts_of gives them."""
    if before is None:
        return f"captured {what}: first time"
    found = [_change(name, old, new) for name, old, new in zip(names, before, args, strict=True) if not _same(old, new)]
    sizes = [text for text in found if " size " in text]  # numbers that change with a size say the same again
    shown = sizes or found
    if not shown:
        return f"captured {what} {again}: arguments that are written lie in one storage"
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"captured {what} {again}: {'; '.join(shown[:_SHOWN])}{more}"


def facts_of(args: Sequence[Any]) -> list[Any]:
    """What is remembered of arguments for the next explanation: no tensors."""
    return [
        (tuple(a.shape), tuple(a.stride()), int(a.storage_offset()), a.dtype) if isinstance(a, torch.Tensor) else a
        for a in args
    ]


def _same(old: Any, new: Any) -> bool:
    return type(old) is type(new) and bool(old == new)


def _change(name: str, old: Any, new: Any) -> str:
    if not isinstance(old, tuple) or not isinstance(new, tuple) or len(old) != 4 or len(new) != 4:
        return f"{name} is {new!r}, before {old!r}"
    if old[3] is not new[3]:
        return f"{name} has dtype {new[3]}, before {old[3]}"
    if old[0] != new[0]:
        dims = [d for d, (a, b) in enumerate(zip(old[0], new[0])) if a != b]  # noqa: B905 - ranks may differ
        where = f" (dimension {', '.join(map(str, dims))})" if len(old[0]) == len(new[0]) else ""
        return f"{name} has size {list(new[0])}, before {list(old[0])}{where}"
    if old[1] != new[1]:
        return f"{name} has strides {list(new[1])}, before {list(old[1])}"
    return f"{name} starts at element {new[2]} of its storage, before {old[2]}"
