"""Findings as JSON, and as SARIF 2.1.0 for code scanning."""

from __future__ import annotations

__all__ = ["as_json", "as_sarif"]

import collections
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from torch_pjrt._version import __version__

from .findings import Finding, Rule, Severity
from .rules import RULES

_LEVELS = {
    Severity.BREAKS: "error",
    Severity.CHANGES: "warning",
    Severity.SLOWS: "note",
    Severity.STYLE: "note",
}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(findings: Sequence[Finding], num_files: int) -> str:
    """One object: version, summary, findings."""
    counts = collections.Counter(str(one.severity) for one in findings)
    summary = {"files": num_files, "findings": len(findings), **{str(one): counts[str(one)] for one in Severity}}
    table = {"version": 1, "tool": f"torch-pjrt {__version__}", "summary": summary}
    return json.dumps({**table, "findings": [one.as_dict() for one in findings]}, indent=1)


def as_sarif(findings: Sequence[Finding]) -> str:
    """A SARIF log with one run. Paths are relative to where the command ran."""
    ids = sorted({one.rule.id for one in findings})
    driver = {
        "name": "torch-pjrt check",
        "semanticVersion": __version__,
        "rules": [_rule(RULES[id_]) for id_ in ids],
    }
    results = [_result(one, ids.index(one.rule.id)) for one in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.consequence},
        "help": {"text": f"{rule.fix} See {rule.doc}."},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"severity": str(rule.severity)},
    }


def _result(one: Finding, index: int) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": one.line, "startColumn": one.column, "endLine": one.end_line}
    if one.end_line > one.line or one.end_column > one.column:
        region["endColumn"] = one.end_column
    path = pathlib.PurePath(one.path)
    artifact: dict[str, Any] = {"uri": path.as_uri() if path.is_absolute() else path.as_posix()}
    return {
        "ruleId": one.rule.id,
        "ruleIndex": index,
        "level": _LEVELS[one.severity],
        "message": {"text": f"{one.what}: {one.rule.consequence} {one.rule.fix}"},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
        "partialFingerprints": {"torchPjrtCheck/v1": one.fingerprint},
        "properties": {"severity": str(one.severity), **({"cell": one.cell} if one.cell else {})},
    }
