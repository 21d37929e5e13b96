"""_foreach_* operators: one recorded step per tensor, without going through the dispatcher for each.

The steps of one call are marked as lanes, so that program/cut.py may put all steps of one tensor together.
"""

from __future__ import annotations


def register(library: object) -> None:
    """Register the foreach kernels."""
