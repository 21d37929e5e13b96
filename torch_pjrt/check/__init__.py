"""What ties a program to one chip: static findings in Python, notebooks and requirements, and measured ones.

Reads text and runs nothing, so it needs neither torch nor a device; `measured.py` reads the report of `torch-pjrt run`.
`torch-pjrt check` and torch_pjrt/port use it.
"""

from __future__ import annotations

__all__ = ["Finding", "Rule", "RULES", "Severity", "Source", "check_paths", "check_text", "examine"]

from . import (
    detect_device,
    detect_distributed,
    detect_gates,
    detect_libraries,
    detect_program,
    detect_runtime,
    detect_vendors,
)
from .files import check_paths, check_text
from .findings import Finding, Rule, Severity
from .rules import RULES
from .source import Source, examine

_DETECTORS = (
    detect_device,
    detect_distributed,
    detect_gates,
    detect_libraries,
    detect_program,
    detect_runtime,
    detect_vendors,
)
