"""Which step of a program a compiler refuses, when its error names no line: each kind of step is tried alone.

Owns the search. Called by aot/build.py after a refusal, so that a report has the user's line and not only the compiler's words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch_pjrt.aot.lowering import lower_step
from torch_pjrt.export.trace import Traced


def kinds_of_steps(traced: Traced) -> Iterator[int]:
    """The number of the first step of each kind."""
    seen: set[int] = set()
    for number, (template, _) in enumerate(traced.program.steps):
        if template.id not in seen:
            seen.add(template.id)
            yield number


def refused_step(
    traced: Traced,
    device: Any,
    precision: str,
    *,
    platform: str | None = None,
    compiles: bool = True,
    options: dict[str, Any] | None = None,
) -> int | None:
    """The number of the first step that is refused by itself; None when each is taken.

    compiles: whether lowering went well for the whole program, so that the compiler must be asked. platform: lower for that
    one instead of the device's.
    """
    for number in kinds_of_steps(traced):
        try:
            stage = lower_step(traced, number, device, precision, platform=platform)
            if compiles:
                stage.compile(options)
        except Exception:  # noqa: BLE001 - compilers raise their own types, and which it is was asked
            return number
    return None
