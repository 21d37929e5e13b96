"""op_db on the device: one node per (test, op, dtype, mode), each of which runs all samples."""

from __future__ import annotations

from typing import Any

import torch

from conformance import checks
from conformance.compiled import Compiled
from conformance.judging import verdict
from conformance.nodes import TESTS, Node, entries, nodes

__all__ = ["nodes"]


def _run(node: Node, every_sample: bool, record: Any) -> None:
    check = getattr(checks, node.test)
    info, dtype = entries()[node.op], getattr(torch, node.dtype)
    options: dict[str, Any] = {"limit": None if every_sample else node.limit}
    if node.mode == "compile":
        options["compiled"] = Compiled(info)
        breaks = torch._dynamo.utils.counters["graph_break"]
        breaks.clear()
    verdict(node.test, node.op, node.dtype, node.mode, lambda: check(info, dtype, **options), record)
    if node.mode == "compile" and breaks:
        record("graph_breaks", sum(breaks.values()))


def _make(test: str) -> Any:
    def run(node: Node, record_property: Any, pytestconfig: Any) -> None:
        _run(node, pytestconfig.getoption("every_sample"), record_property)

    run.__name__, run.__doc__ = f"test_{test}", getattr(checks, test).__doc__
    return run


for _test in TESTS:  # conftest.py gives each its nodes
    globals()[f"test_{_test}"] = _make(_test)
