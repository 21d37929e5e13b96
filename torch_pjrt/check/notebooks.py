"""Notebooks: the code cells are read as one program, since names live on from cell to cell.

Lines of magic (`%time`, `!pip`) become `pass`; `!pip install` is read as requirements. A cell that is no Python (`%%bash`)
is left out.
"""

from __future__ import annotations

__all__ = ["check"]

import ast
import dataclasses
import json
import re

from . import requirements
from .findings import Finding
from .source import Source, examine

_MAGIC = re.compile(r"^(\s*)([%!?]|.*\?\s*$)")
_INSTALL = re.compile(r"^\s*[%!]\s*(?:\S*pip3?|uv pip)\s+install\s+(?P<what>.*)")


def check(text: str, path: str) -> list[Finding]:
    """Findings, each with its cell. ValueError for a file that is no notebook."""
    found: list[Finding] = []
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    for number, cell in enumerate(_cells(text), 1):
        code = "".join(cell["source"]).splitlines()
        found += _installs(code, path, number)
        if code and code[0].startswith("%%") and not re.match(r"%%(time|timeit|capture|prun)\b", code[0]):
            continue
        plain = [_MAGIC.sub(r"\1pass #", line) if _MAGIC.match(line) else line for line in code]
        if _parses(plain):
            lines += plain
            places += [(number, line) for line in range(1, len(plain) + 1)]
    for one in examine(Source("\n".join(lines) + "\n", path)):
        (cell_number, line), (_, end) = places[one.line - 1], places[one.end_line - 1]
        found.append(dataclasses.replace(one, cell=cell_number, line=line, end_line=end))
    return found


def _cells(text: str) -> list[dict]:
    notebook = json.loads(text)
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("not a notebook of format 4")
    return [cell for cell in notebook["cells"] if cell.get("cell_type") == "code"]


def _parses(lines: list[str]) -> bool:
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:
        return False
    return True


def _installs(code: list[str], path: str, cell: int) -> list[Finding]:
    found = []
    for number, line in enumerate(code, 1):
        match = _INSTALL.match(line)
        if match:
            for one in requirements.check_command(match["what"], path, number):
                found.append(dataclasses.replace(one, cell=cell))
    return found
