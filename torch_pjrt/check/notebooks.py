"""Notebooks: the code cells are read as one program, since names live on from cell to cell.

A line of magic becomes a statement that does nothing and carries the line with it (`restored` gives it back); of
`%time STATEMENT` the statement is read. `!pip install` is read as requirements, `%%writefile x.py` as a program of its
own; a cell that is no Python (`%%bash`) is left out. Cells are numbered as code cells, from 1. port rewrites the same
programs.
"""

from __future__ import annotations

__all__ = ["Program", "check", "code_cells", "programs", "restored"]

import ast
import dataclasses
import json
import re
from collections.abc import Sequence

from . import requirements
from .findings import Finding
from .ignores import Ignores
from .source import Source, examine

_MARK = "#pjrt-magic:"
_LINE_MAGIC = re.compile(r"^(?P<before>\s*(?:[\w.]+\s*=(?!=)\s*)?)(?P<magic>[%!?].*|[\w.]+\s*\?{1,2}\s*)$")
_TIMED = re.compile(
    r"^(?P<before>\s*)(?P<magic>%(?:time|timeit|prun|memit)\s+(?:-\w+\s+(?:\d+\s+)?)*)(?P<code>[^-\s].*)$"
)
_CELL_OF_CODE = re.compile(r"%%(time|timeit|capture|prun|memit)\b")
_CELL_OF_FILE = re.compile(r"%%(writefile|file)\b.*\.py\s*$")
_INSTALL = re.compile(r"^\s*[%!]\s*(?:\S*pip3?|uv pip|\S*python3? -m pip)\s+install\s+(?P<what>.*)")
_TIMED_BACK = re.compile(r'^(\s*)"(%(?:time|timeit|prun|memit)\s[^"]*)";', re.M)
_MAGIC_BACK = re.compile(rf"(?:(?:pass|None) )?{_MARK}")
# What quotes and a semicolon around `%time ` add to the columns behind it.
_TIMED_SHIFT = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """Cells as one text. `cells` has number and lines of each; a line `__pjrt_cell_N__` stands before each."""

    text: str
    cells: tuple[tuple[int, tuple[str, ...]], ...]
    head: str = ""

    def place(self, line: int) -> tuple[int, int]:
        """Cell and line in it, of a line of the text."""
        for number, lines in self.cells:
            if line <= len(lines) + 1:
                return number, line - 1 + bool(self.head)
            line -= len(lines) + 1
        raise IndexError(line)


def check(text: str, path: str) -> list[Finding]:
    """Findings, each with its cell. ValueError for a file that is no notebook."""
    cells = code_cells(text)
    found = [one for number, code in enumerate(cells, 1) for one in _installs(code, path, number)]
    for program in programs(cells):
        source = Source(program.text, path)
        for one in Ignores(program.text, path).apply(examine(source)):
            cell, line = program.place(one.line)
            shift = _TIMED_SHIFT if _TIMED_BACK.match(source.lines[one.line - 1]) else 0
            found.append(
                dataclasses.replace(
                    one,
                    cell=cell,
                    line=line,
                    column=one.column - shift,
                    end_line=program.place(one.end_line)[1],
                    end_column=one.end_column - (shift if one.end_line == one.line else 0),
                    text=restored(one.text),
                )
            )
    return found


def code_cells(text: str) -> list[str]:
    """The code of each code cell; none for a notebook in another language. ValueError for what is no notebook."""
    notebook = json.loads(text)
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("not a notebook of format 4")
    if not _is_python(notebook.get("metadata")):
        return []
    cells = [one for one in notebook["cells"] if isinstance(one, dict) and one.get("cell_type") == "code"]
    return ["".join(one.get("source", "")) for one in cells]


def _is_python(metadata: object) -> bool:
    known = metadata if isinstance(metadata, dict) else {}
    for key, word in (("language_info", "name"), ("kernelspec", "language")):
        section = known.get(key)
        if isinstance(section, dict) and section.get(word):
            return "python" in str(section[word]).lower()
    return True


def programs(cells: Sequence[str]) -> list[Program]:
    """The program of a notebook, and one for each cell that is written to a Python file."""
    main: list[tuple[int, tuple[str, ...]]] = []
    found: list[Program] = []
    for number, code in enumerate(cells, 1):
        lines = code.split("\n")
        if _CELL_OF_FILE.match(lines[0]) and _parses(lines[1:]):
            own = ((number, tuple(lines[1:])),)
            found.append(Program(_joined(own), own, head=lines[0]))
        elif (plain := _plain(lines)) is not None:
            main.append((number, tuple(plain)))
    return [Program(_joined(main), tuple(main)), *found]


def restored(text: str) -> str:
    """The text with its lines of magic."""
    return _MAGIC_BACK.sub("", _TIMED_BACK.sub(r"\1\2", text))


def _joined(cells: Sequence[tuple[int, Sequence[str]]]) -> str:
    return "".join("\n".join((f"__pjrt_cell_{number}__", *lines, "")) for number, lines in cells)


def _plain(lines: list[str]) -> list[str] | None:
    """The lines with magic turned into statements, or None for a cell that is no Python."""
    if lines[0].startswith("%%") and not _CELL_OF_CODE.match(lines[0]):
        return None
    if _parses(lines):
        return lines  # so `%d` in a long text stays
    for timed in (True, False):
        plain = _without_magic(lines, timed=timed)
        if _parses(plain):
            return plain
    return None


def _without_magic(lines: list[str], *, timed: bool) -> list[str]:
    plain: list[str] = []
    goes_on = False
    for line in lines:
        statement = _TIMED.match(line) if timed else None
        magic = _LINE_MAGIC.match(line)
        if goes_on:
            plain.append(_MARK + line)
        elif statement and not re.search(r"[\"\\]", statement["magic"]):
            plain.append(f'{statement["before"]}"{statement["magic"]}";{statement["code"]}')
            continue
        elif magic:
            word = "None" if magic["before"].strip() else "pass"
            plain.append(f"{magic['before']}{word} {_MARK}{magic['magic']}")
        else:
            plain.append(line)
            continue
        goes_on = line.rstrip().endswith("\\")
    return plain


def _parses(lines: list[str]) -> bool:
    try:
        ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _installs(code: str, path: str, cell: int) -> list[Finding]:
    """PJ602, PJ603 of `!pip install ...`, which may go on over several lines."""
    found = []
    lines = code.split("\n")
    for number, line in enumerate(lines, 1):
        match = _INSTALL.match(line)
        if match:
            what, last = match["what"], number
            while what.rstrip().endswith("\\") and last < len(lines):
                what, last = what.rstrip()[:-1] + " " + lines[last], last + 1
            for one in requirements.check_command(what, path, number):
                found.append(dataclasses.replace(one, cell=cell))
    return found
