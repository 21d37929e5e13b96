"""Comments that hide findings: `# pjrt: ignore[PJ101, PJ102]` on a line, `# pjrt: ignore`, `# pjrt: ignore-file`.

A comment on its own line speaks of the next line. One that names rules and hides nothing is a finding itself (PJ002).
"""

from __future__ import annotations

__all__ = ["Ignores"]

import re

from .findings import Finding
from .rules import RULES

_COMMENT = re.compile(r"#\s*pjrt:\s*ignore(?P<file>-file)?\s*(\[(?P<ids>[^\]]*)\])?")


class Ignores:
    """The comments of one text."""

    def __init__(self, text: str, path: str):
        self.path = path
        self.whole = False
        self.lines: dict[int, tuple[frozenset[str], int]] = {}
        self.texts: dict[int, str] = {}
        if "pjrt:" in text:
            self._read(text)

    def _read(self, text: str) -> None:
        for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
            match = _COMMENT.search(line)
            if match is None:
                continue
            if match["file"]:
                self.whole = True
            ids = frozenset(one.strip().upper() for one in (match["ids"] or "").split(",") if one.strip())
            target = number + 1 if line.lstrip().startswith("#") else number
            self.lines[target] = (ids, number)
            self.texts[number] = line.strip()

    def apply(self, findings: list[Finding]) -> list[Finding]:
        """The findings that are not hidden, and PJ002 for comments that name rules in vain."""
        if self.whole:
            return []
        if not self.lines:
            return findings
        kept: list[Finding] = []
        used: set[int] = set()
        for one in findings:
            hiding = [line for line in range(one.line, one.end_line + 1) if self._hides(line, one.rule.id)]
            used.update(self.lines[line][1] for line in hiding)
            if not hiding:
                kept.append(one)
        idle = [(ids, number) for ids, number in self.lines.values() if ids and number not in used]
        return kept + [self._idle(ids, number) for ids, number in idle]

    def _hides(self, line: int, id_: str) -> bool:
        return line in self.lines and (not self.lines[line][0] or id_ in self.lines[line][0])

    def _idle(self, ids: frozenset[str], line: int) -> Finding:
        rule = RULES["PJ002"]
        return Finding(
            rule=rule,
            path=self.path,
            line=line,
            column=1,
            end_line=line,
            end_column=1,
            what=", ".join(sorted(ids)),
            severity=rule.severity,
            text=self.texts[line],
        )
