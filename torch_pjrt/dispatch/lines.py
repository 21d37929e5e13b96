"""Finds the line of the user's code that called an operator: the innermost frame outside torch and this package.

Cheap enough for every op: a file is judged once, and the line number is worked out only when asked.
"""

from __future__ import annotations

import enum
import sys
from types import CodeType
from typing import Any

_OURS = ("torch_pjrt", "torch", "jax", "jaxlib", "contextlib.py", "functools.py", "runpy.py", "threading.py")
_inside: dict[str, bool] = {}  # of files: code itself may have no hash, when it holds slices

Line = tuple[CodeType, int] | str | None  # text: a line that is known already, of a graph's node


class Unknown(enum.Enum):
    """A line that nobody has looked for yet."""

    LINE = enum.auto()


UNKNOWN = Unknown.LINE


def user_file(name: str) -> bool:
    """Whether a file is the user's: outside torch, JAX and this package."""
    return not _is_inside(name)


def _is_inside(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    if name.startswith("<") and not name.startswith(("<stdin", "<string", "<ipython")):
        return True
    if "site-packages" in parts:
        package = parts[len(parts) - parts[::-1].index("site-packages")]
        return package in _OURS
    return parts[-1] in _OURS or ("torch_pjrt" in parts and "tests" not in parts and "examples" not in parts)


def user_line(depth: int = 2) -> Line:
    """The calling line outside torch, or None (backward passes run in a thread without user frames)."""
    try:
        frame: Any = sys._getframe(depth)
    except ValueError:  # a kernel that autograd's own thread calls has no callers in Python
        return None
    while frame is not None:
        code = frame.f_code
        inside = _inside.get(code.co_filename)
        if inside is None:
            inside = _inside[code.co_filename] = _is_inside(code.co_filename)
        if not inside:
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def show(line: Line) -> str | None:
    """ "file.py:12 in train" """
    if line is None or isinstance(line, str):
        return line
    code, lasti = line
    number = code.co_firstlineno
    for start, end, at in code.co_lines():
        if start <= lasti < end and at is not None:
            number = at
    return f"{code.co_filename}:{number} in {code.co_name}"
