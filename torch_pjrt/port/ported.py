"""What the package offers: a text in, the ported text out, with what is left to a person."""

from __future__ import annotations

__all__ = ["Ported", "port_text"]

import dataclasses
from collections.abc import Mapping

from torch_pjrt.check import Finding, check_text

from .notebook import notebook_rewritten
from .rewrite import rewritten


@dataclasses.dataclass(frozen=True, slots=True)
class Ported:
    """The result: `left` are findings in the new text, `changes` the number of rewritten places.

    Of a notebook, `cells` has the code before and after of each cell that changed.
    """

    text: str
    changes: int
    left: list[Finding]
    cells: Mapping[int, tuple[str, str]] = dataclasses.field(default_factory=dict)


def port_text(text: str, path: str = "<text>") -> Ported:
    """Port one text, of Python or, when the path says so, of a notebook. What cannot be parsed comes back as it is."""
    if not path.endswith(".ipynb"):
        new, changes = rewritten(text, path)
        return Ported(new, changes, check_text(new, path))
    try:
        new, changes, cells = notebook_rewritten(text, path)
    except ValueError:
        return Ported(text, 0, check_text(text, path))
    return Ported(new, changes, check_text(new, path), cells)
