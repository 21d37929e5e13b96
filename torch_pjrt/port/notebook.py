"""Notebooks: the code of the cells that change is replaced in the file's text; all other bytes stay as they are.

The cells are ported as one program (torch_pjrt/check/notebooks.py joins them), so a name of one cell is known in the
next. Lines of magic, outputs, metadata, the layout of the JSON and the way its texts are escaped stay.
"""

from __future__ import annotations

__all__ = ["notebook_rewritten"]

import json
import json.decoder
import re
from collections.abc import Iterator, Mapping

from torch_pjrt.check.notebooks import Program, code_cells, programs, restored

from .rewrite import rewritten

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_MARK = re.compile(r"^__pjrt_cell_(\d+)__\n", re.M)


def notebook_rewritten(text: str, path: str) -> tuple[str, int, Mapping[int, tuple[str, str]]]:
    """The new text, the number of rewritten places, and the cells that changed. ValueError for what is no notebook."""
    before = code_cells(text)
    after: dict[int, tuple[str, str]] = {}
    changes = 0
    for program in programs(before):
        new, places = rewritten(program.text, path)
        changes += places
        if places:
            for number, code in _cells(program, new).items():
                if code != before[number - 1]:
                    after[number] = before[number - 1], code
    if not after:
        return text, 0, {}
    return _replaced(text, {number: code for number, (_, code) in after.items()}), changes, after


def _cells(program: Program, new: str) -> dict[int, str]:
    """The code of each cell of a rewritten program."""
    nothing, *parts = _MARK.split(new)
    numbers, codes = parts[::2], parts[1::2]
    assert not nothing and [int(one) for one in numbers] == [number for number, _ in program.cells], "lost a cell"
    heads = f"{program.head}\n" if program.head else ""
    found = {}
    for number, code, (_, lines) in zip(numbers, codes, program.cells):
        assert code.count("#pjrt-magic:") == "\n".join(lines).count("#pjrt-magic:"), "lost a line of magic"
        found[int(number)] = heads + restored(code.removesuffix("\n"))
    return found


# -- the text of the file --------------------------------------------------------------------------------------------


def _replaced(text: str, codes: Mapping[int, str]) -> str:
    """The text of a notebook with the sources of some cells replaced."""
    parts, done = [], 0
    for number, at in enumerate(_sources(text), 1):
        if number in codes:
            _, end = _DECODER.raw_decode(text, at)
            parts += [text[done:at], _literal(text, at, end, codes[number])]
            done = end
    new = "".join([*parts, text[done:]])
    assert all(code_cells(new)[number - 1] == code for number, code in codes.items()), "a cell was written wrongly"
    return new


def _sources(text: str) -> Iterator[int]:
    """Where the value of `source` of each code cell begins."""
    notebook = dict(_members(text, _SPACE.match(text).end()))  # type: ignore[union-attr]
    for at in _elements(text, notebook["cells"]):
        if text[at] == "{":
            cell = dict(_members(text, at))
            if "cell_type" in cell and _DECODER.raw_decode(text, cell["cell_type"])[0] == "code":
                yield cell.get("source", at)


def _literal(text: str, at: int, end: int, code: str) -> str:
    """The code in the form of the value that it replaces: a text, or a list of lines that keep their own spelling."""
    ascii_only = text.isascii()
    if text[at] != "[":
        return json.dumps(code, ensure_ascii=ascii_only)
    spans = [(one, _DECODER.raw_decode(text, one)[1]) for one in _elements(text, at)]
    spellings = {json.loads(text[slice(*span)]): text[slice(*span)] for span in spans}
    lines = re.findall(r"[^\n]*\n|[^\n]+", code)
    written = [spellings.get(line) or json.dumps(line, ensure_ascii=ascii_only) for line in lines]
    if not spans:
        return f"[{', '.join(written)}]"
    opening, closing = text[at + 1 : spans[0][0]], text[spans[-1][1] : end - 1]
    between = text[spans[0][1] : spans[1][0]] if len(spans) > 1 else "," + (opening or " ")
    return f"[{opening}{between.join(written)}{closing}]"


def _members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """The keys of the object at a place, and where their values begin."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = json.decoder.scanstring(text, at + 1)  # type: ignore[attr-defined]
        at = _skip(text, _skip(text, at) + 1)
        yield key, at
        at = _after(text, at)


def _elements(text: str, at: int) -> Iterator[int]:
    """Where the elements of the array at a place begin."""
    at = _skip(text, at + 1)
    while text[at] != "]":
        yield at
        at = _after(text, at)


def _after(text: str, at: int) -> int:
    """Behind the value at a place, and the comma behind it."""
    at = _skip(text, _DECODER.raw_decode(text, at)[1])
    return _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]
