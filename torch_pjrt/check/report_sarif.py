"""Findings as SARIF 2.1.0, for code scanning.

Paths are relative to `%SRCROOT%`, the folder in which the command ran, so a log says nothing of the machine it comes from.
A cell of a notebook is a logical location: its lines are not those of the file.
"""

from __future__ import annotations

__all__ = ["as_sarif"]

import collections
import json
import pathlib
import re
import urllib.parse
from collections.abc import Sequence
from typing import Any

from torch_pjrt._version import __version__

from .explain import documentation_url, explanation
from .findings import Finding, Rule, Severity, near
from .rules import RULES

_LEVELS = {
    Severity.BREAKS: "error",
    Severity.CHANGES: "warning",
    Severity.SLOWS: "note",
    Severity.STYLE: "note",
}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "%SRCROOT%"


def as_sarif(findings: Sequence[Finding]) -> str:
    """A SARIF log with one run."""
    ids = sorted({one.rule.id for one in findings})
    driver = {
        "name": "torch-pjrt check",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(RULES[id_]) for id_ in ids],
    }
    seen: collections.Counter[str] = collections.Counter()
    results = []
    for one in findings:
        seen[one.fingerprint] += 1
        results.append(_result(one, ids.index(one.rule.id), seen[one.fingerprint]))
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True}],
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The folder in which torch-pjrt check ran."}}},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _rule(rule: Rule) -> dict[str, Any]:
    address = documentation_url(rule)
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.consequence},
        "fullDescription": {"text": f"{rule.consequence} {rule.fix}"},
        **({"helpUri": address} if address else {}),
        "help": {"text": f"{rule.consequence} {rule.fix}", "markdown": explanation(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"severity": str(rule.severity), "tags": ["portability", *_tags(rule)]},
    }


def _tags(rule: Rule) -> list[str]:
    return {Severity.CHANGES: ["correctness"], Severity.SLOWS: ["performance"]}.get(rule.severity, [])


def _result(one: Finding, index: int, number: int) -> dict[str, Any]:
    """`number` tells findings apart that are on lines with the same text."""
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": _artifact(one.path)}}
    if one.cell:
        words = {
            "name": f"cell {one.cell}",
            "fullyQualifiedName": f"cell {one.cell}, line {one.line}",
            "kind": "module",
        }
        location["logicalLocations"] = [words]
    else:
        location["physicalLocation"]["region"] = _region(one)
        if one.text:
            location["physicalLocation"]["contextRegion"] = {"startLine": one.line, "snippet": {"text": one.text}}
    times = f" ({one.times} times)" if one.times else ""
    return {
        "ruleId": one.rule.id,
        "ruleIndex": index,
        "level": _LEVELS[one.severity],
        "message": {"text": f"{one.what}{times}: {one.rule.consequence} {one.rule.fix}"},
        "locations": [location],
        "partialFingerprints": {"torchPjrtCheck/v1": f"{one.fingerprint}:{number}"},
        "properties": {"severity": str(one.severity), **({"cell": one.cell} if one.cell else {})},
    }


def _region(one: Finding) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": one.line, "startColumn": one.column, "endLine": one.end_line}
    if one.end_line > one.line or one.end_column > one.column:
        region["endColumn"] = one.end_column
    return region


def _artifact(text: str) -> dict[str, str]:
    path = near(text)
    if re.match(r"(\.\.|[A-Za-z]:|/|\\)", path):  # not below the root
        return {"uri": pathlib.Path(path).resolve().as_uri()}
    return {"uri": urllib.parse.quote(path.replace("\\", "/")), "uriBaseId": _ROOT}
