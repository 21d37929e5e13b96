"""Requirements: files of pip, pyproject.toml, setup.cfg, environment.yml. PJ602 and PJ603.

In pyproject.toml only what is always installed counts: a vendor's library in an extra is where it belongs.
"""

from __future__ import annotations

__all__ = ["check", "check_command", "is_requirements"]

import configparser
import re
import shlex
import tomllib
from collections.abc import Iterator

from .findings import Finding
from .rules import RULES
from .vendor_packages import requirement_reason

_FILE = re.compile(
    r"(.*[-_.])?(requirements|constraints)([-_.].*)?\.(txt|in)|pyproject\.toml|setup\.cfg|environment\.ya?ml"
)
_NAME = re.compile(r"^\s*(?:-\s+)?['\"]?([A-Za-z0-9][A-Za-z0-9._-]*)")
_CUDA_INDEX = re.compile(r"whl/(nightly/)?cu\d+|pypi\.nvidia\.com|pypi\.ngc\.nvidia\.com")
_CUDA_VERSION = re.compile(r"^\s*(?:-\s+)?['\"]?(torch\w*)\s*(\[[^\]]*\])?\s*==\s*\S*\+cu\d+", re.I)


def is_requirements(name: str) -> bool:
    """Whether a file of this name lists requirements."""
    return _FILE.fullmatch(name) is not None


def check(text: str, path: str) -> list[Finding]:
    """Findings of a requirements file. ValueError when it cannot be parsed."""
    name = path.rsplit("/", 1)[-1]
    if name == "pyproject.toml":
        wanted = list(_pyproject(text))
    elif name == "setup.cfg":
        wanted = list(_setup_cfg(text))
    else:
        lines = enumerate(text.splitlines(), 1)
        return [one for number, line in lines for one in _line(line.split(" #")[0], path, number)]
    lines_of = text.splitlines()
    found: list[Finding] = []
    for one in wanted:
        place = next((number for number, line in enumerate(lines_of, 1) if one in line), 1)
        found += _line(one, path, place)
    return found


def check_command(text: str, path: str, line: int) -> list[Finding]:
    """Findings of the arguments of `pip install`."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        words = text.split()
    return [one for word in words if not word.startswith("-") or "://" in word for one in _line(word, path, line)]


def _pyproject(text: str) -> Iterator[str]:
    table = tomllib.loads(text)
    yield from table.get("project", {}).get("dependencies", ())
    yield from table.get("build-system", {}).get("requires", ())
    poetry = table.get("tool", {}).get("poetry", {}).get("dependencies", {})
    optional = [name for name, value in poetry.items() if isinstance(value, dict) and value.get("optional")]
    yield from (name for name in poetry if name not in optional)


def _setup_cfg(text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error)) from error
    for key in ("install_requires", "setup_requires"):
        yield from filter(None, parser.get("options", key, fallback="").splitlines())


def _line(line: str, path: str, number: int) -> Iterator[Finding]:
    if line.lstrip().startswith("#"):
        return
    if _CUDA_INDEX.search(line):
        yield _finding("PJ603", line.strip(), line, path, number)
        return
    if _CUDA_VERSION.match(line):
        yield _finding("PJ603", line.strip(), line, path, number)
        return
    match = _NAME.match(line)
    named = re.search(r"github\.com/[\w.-]+/([\w.-]+?)(\.git|@|#|$)", line)
    name = named[1] if named else match[1] if match else ""
    reason = requirement_reason(name)
    if reason is None and match and named:
        reason = requirement_reason(match[1])
    if reason is not None:
        yield _finding("PJ602", f"{name}, which needs {reason}", line, path, number)


def _finding(id_: str, what: str, line: str, path: str, number: int) -> Finding:
    rule = RULES[id_]
    return Finding(
        rule=rule,
        path=path,
        line=number,
        column=1,
        end_line=number,
        end_column=len(line) + 1,
        what=what,
        severity=rule.severity,
        text=line.strip(),
    )
