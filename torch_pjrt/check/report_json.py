"""Findings as JSON."""

from __future__ import annotations

__all__ = ["as_json"]

import collections
import json
from collections.abc import Sequence

from torch_pjrt._version import __version__

from .findings import Finding, Severity


def as_json(findings: Sequence[Finding], num_files: int) -> str:
    """One object: version, summary, findings."""
    counts = collections.Counter(str(one.severity) for one in findings)
    summary = {"files": num_files, "findings": len(findings), **{str(one): counts[str(one)] for one in Severity}}
    table = {"version": 1, "tool": f"torch-pjrt {__version__}", "summary": summary}
    return json.dumps({**table, "findings": [one.as_dict() for one in findings]}, indent=1)
