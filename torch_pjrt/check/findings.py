"""What a finding is: a rule that applies at a place. Severity says what happens on another chip, worst first.

Values only; rules.py has the table of rules, source.py makes findings, report_*.py print them.
"""

from __future__ import annotations

__all__ = ["Finding", "Rule", "Severity", "near"]

import dataclasses
import enum
import hashlib
import os
from typing import Any


def near(path: str) -> str:
    """A path below the current folder as it is seen from there, any other as it is."""
    if not os.path.isabs(path):
        return os.path.normpath(path).replace(os.sep, "/")
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative.replace(os.sep, "/")


class Severity(enum.StrEnum):
    """What the code does on a chip that it was not written for."""

    BREAKS = "breaks"
    CHANGES = "silently-changes"
    SLOWS = "slows"
    STYLE = "style"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One habit. `guarded` is its severity inside a branch that only runs with CUDA."""

    id: str
    name: str
    severity: Severity
    consequence: str
    fix: str
    guarded: Severity | None = None

    @property
    def doc(self) -> str:
        """Where the rule is explained, below the root of the repository."""
        return f"docs/findings/index.md#{self.id.lower()}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule at a place. Lines and columns count from 1; `cell` is the cell of a notebook, from 1."""

    rule: Rule
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    what: str
    severity: Severity
    text: str = ""
    cell: int | None = None
    times: int | None = None
    guarded: bool = False

    @property
    def place(self) -> str:
        """ "train.py:12", or "notes.ipynb:cell 3:12"."""
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{self.path}:{cell}{self.line}"

    @property
    def fingerprint(self) -> str:
        """The same for the same text in the same file, wherever the line moves to and however the path is given."""
        words = "\0".join((self.rule.id, near(self.path), " ".join(self.text.split()), self.what))
        return hashlib.sha256(words.encode()).hexdigest()[:20]

    @property
    def order(self) -> tuple[str, int, int, int, str]:
        """By file, then by place."""
        return (self.path, self.cell or 0, self.line, self.column, self.rule.id)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {
            "id": self.rule.id,
            "name": self.rule.name,
            "severity": str(self.severity),
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "end_line": self.end_line,
            "end_column": self.end_column,
            "what": self.what,
            "text": self.text,
            "consequence": self.rule.consequence,
            "fix": self.rule.fix,
            "doc": self.rule.doc,
            "fingerprint": self.fingerprint,
        }
        if self.cell is not None:
            found["cell"] = self.cell
        if self.times is not None:
            found["times"] = self.times
        if self.guarded:
            found["guarded"] = True
        return found
