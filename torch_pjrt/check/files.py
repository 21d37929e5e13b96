"""From paths to findings: files, folders, importable packages, notebooks, requirements and pyproject files.

A folder is read recursively, without what is hidden, installed or built. A file that cannot be parsed is a finding, never
an exception. Used by the command and by port.
"""

from __future__ import annotations

__all__ = ["PathError", "check_file", "check_paths", "check_text", "collect", "worth_reading"]

import fnmatch
import importlib.util
import os
import pathlib
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator

from . import notebooks, requirements
from .findings import Finding
from .ignores import Ignores
from .rules import RULES
from .source import Source, examine

_SKIPPED = frozenset(
    "__pycache__ build dist node_modules site-packages venv .venv env .tox .nox .git .mypy_cache .ruff_cache".split()
)
# Without one of these words no detector can find anything, so most files need no parsing.
_WORDS = re.compile(
    r"torch|cuda|CUDA|nccl|NCCL|triton|flash_att|load_in_|bitsandbytes|apex|xformers|device_map|padding|\bgpu|numba|tensorrt|cupy|nvtx|pynvml"
)


class PathError(Exception):
    """A path that is neither a file, a folder nor a package that can be found."""


def collect(paths: Iterable[str], exclude: Iterable[str] = ()) -> list[pathlib.Path]:
    """The files to check, in order, each once. PathError for a path that is not there."""
    found: dict[pathlib.Path, None] = {}
    patterns = tuple(exclude)
    for text in paths:
        for path in _expand(text):
            if not any(fnmatch.fnmatch(path.as_posix(), one) or fnmatch.fnmatch(path.name, one) for one in patterns):
                found.setdefault(path)
    return list(found)


def _expand(text: str) -> Iterator[pathlib.Path]:
    path = pathlib.Path(text)
    if path.is_file():
        yield path
    elif path.is_dir():
        yield from _walk(path)
    else:
        yield from _package(text)


def _package(text: str) -> Iterator[pathlib.Path]:
    """The files of an importable package, which is found without running it."""
    spec = importlib.util.find_spec(text) if text.isidentifier() else None
    if spec is None or (not spec.origin and not spec.submodule_search_locations):
        raise PathError(f"{text}: no such file or folder, and no package of this name is installed")
    if spec.submodule_search_locations:
        for folder in spec.submodule_search_locations:
            yield from _walk(pathlib.Path(folder))
    elif spec.origin and spec.origin.endswith(".py"):
        yield pathlib.Path(spec.origin)


def _walk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in _SKIPPED and not one.startswith("."))
        for name in sorted(files):
            if name.endswith((".py", ".ipynb")) or requirements.is_requirements(name):
                yield pathlib.Path(root, name)


def check_paths(
    paths: Iterable[str], *, exclude: Iterable[str] = (), progress: Callable[[int, int], None] | None = None
) -> list[Finding]:
    """Findings of everything below some paths. `progress` is called with (done, all) after each file."""
    files = collect(paths, exclude)
    found: list[Finding] = []
    for done, path in enumerate(files, 1):
        found += check_file(path)
        if progress is not None:
            progress(done, len(files))
    return sorted(found, key=lambda one: one.order)


def check_file(path: pathlib.Path) -> list[Finding]:
    """Findings of one file."""
    try:
        text = read(path)
    except (OSError, UnicodeDecodeError, SyntaxError, LookupError) as error:
        return [_unreadable(path.as_posix(), error)]
    return check_text(text, path.as_posix())


def read(path: pathlib.Path) -> str:
    """The text, by the encoding that it declares."""
    if path.suffix != ".py":
        return path.read_text(encoding="utf-8")
    with tokenize.open(path) as file:
        return file.read()


def check_text(text: str, path: str = "<text>") -> list[Finding]:
    """Findings of a text; the name says what it is (`.py`, `.ipynb`, requirements, pyproject.toml)."""
    name = path.rsplit("/", 1)[-1]
    try:
        if name.endswith(".ipynb"):
            return notebooks.check(text, path)
        if requirements.is_requirements(name):
            found = requirements.check(text, path)
        elif worth_reading(text):
            found = examine(Source(text, path))
        else:
            found = []
        return Ignores(text, path).apply(found)
    except (SyntaxError, ValueError, RecursionError) as error:
        return [_unreadable(path, error)]


def worth_reading(text: str) -> bool:
    """Whether a Python text has a word that any detector looks for."""
    return _WORDS.search(text) is not None


def _unreadable(path: str, error: Exception) -> Finding:
    rule = RULES["PJ001"]
    line = max(getattr(error, "lineno", None) or 1, 1)
    what = f"{type(error).__name__}: {getattr(error, 'msg', None) or error}"
    return Finding(
        rule=rule, path=path, line=line, column=1, end_line=line, end_column=1, what=what, severity=rule.severity
    )
