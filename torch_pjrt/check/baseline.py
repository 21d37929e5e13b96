"""The baseline: findings that are known, so that only new ones count.

A JSON file of fingerprints with their number. A fingerprint holds the text of the line, not its number: code that moves
stays known, code that changes is looked at again.
"""

from __future__ import annotations

__all__ = ["BaselineError", "read", "subtract", "write"]

import collections
import json
import pathlib
from collections.abc import Iterable

from .findings import Finding

_VERSION = 1


class BaselineError(Exception):
    """A file that is not a baseline."""


def write(findings: Iterable[Finding], path: pathlib.Path) -> int:
    """Write a baseline; gives the number of findings in it. The file is replaced whole or not at all."""
    counts: dict[str, dict[str, object]] = {}
    total = 0
    for one in findings:
        entry = counts.setdefault(one.fingerprint, {"id": one.rule.id, "path": one.path, "what": one.what, "times": 0})
        entry["times"] = int(str(entry["times"])) + 1
        total += 1
    text = json.dumps({"version": _VERSION, "findings": counts}, indent=1, sort_keys=True) + "\n"
    half = path.with_name(path.name + ".part")
    half.write_text(text, encoding="utf-8")
    half.replace(path)
    return total


def read(path: pathlib.Path) -> collections.Counter[str]:
    """How often each fingerprint is known. BaselineError says what is wrong with the file."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if table["version"] != _VERSION:
            raise BaselineError(f"{path}: version {table['version']}, and this program writes {_VERSION}")
        return collections.Counter({key: int(entry["times"]) for key, entry in table["findings"].items()})
    except OSError as error:
        raise BaselineError(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BaselineError(
            f"{path}: not a baseline of `torch-pjrt check` ({type(error).__name__}: {error})"
        ) from error


def subtract(findings: Iterable[Finding], known: collections.Counter[str]) -> list[Finding]:
    """The findings that are not in the baseline."""
    left = known.copy()
    new = []
    for one in findings:
        if left[one.fingerprint] > 0:
            left[one.fingerprint] -= 1
        else:
            new.append(one)
    return new
