"""op_db on the device: one node per (test, op, dtype, mode), each of which runs all samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from conformance import checks
from conformance.judging import verdict
from conformance.nodes import TESTS, Node, entries, nodes

__all__ = ["nodes"]


def _compiled(info: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(lambda *args, **kwargs: info.op(*args, **kwargs), backend="pjrt", dynamic=False)


def _run(node: Node, record: Any) -> None:
    check = getattr(checks, node.test)
    info, dtype = entries()[node.op], getattr(torch, node.dtype)
    options = {"wrap": _compiled} if node.mode == "compile" else {}
    verdict(node.test, node.op, node.dtype, node.mode, lambda: check(info, dtype, **options), record)


def _make(test: str) -> Any:
    def run(node: Node, record_property: Any) -> None:
        _run(node, record_property)

    run.__name__, run.__doc__ = f"test_{test}", getattr(checks, test).__doc__
    return run


for _test in TESTS:  # conftest.py gives each its nodes
    globals()[f"test_{_test}"] = _make(_test)
