"""How mode compile calls an operator: the samples of a batch as one graph, and one by one where that graph cannot be made.

Dynamo takes longer for a graph than for what is in it, so a graph for each sample would take most of the suite's time. A
sample that raises, or breaks the graph, is told from the others by a graph of its own.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch._dynamo.utils import counters

from conformance.operands import DEVICE, Arguments, is_factory


class Compiled:
    """One operator under torch.compile. Every call compiles anew, so that no sample meets the recompile limit."""

    def __init__(self, info: Any) -> None:
        self.op = info.op

    def alone(self, *args: Any, **kwargs: Any) -> Any:
        """The result of one call."""
        torch._dynamo.reset()
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            return torch.compile(lambda *a, **k: self.op(*a, **k), backend="pjrt", dynamic=False)(*args, **kwargs)

    def together(self, calls: list[Arguments]) -> list[Any]:
        """The results of several calls from one graph, which raises if any of them cannot be in it."""
        torch._dynamo.reset()
        kinds = {is_factory(call) for call in calls}
        if len(kinds) > 1:
            raise ValueError("some of these calls make tensors on the default device, others do not")
        op, breaks = self.op, counters["graph_break"].copy()

        def run(calls: list[Arguments]) -> list[Any]:
            return [op(*args, **kwargs) for args, kwargs in calls]

        try:
            with torch.device(DEVICE) if kinds == {True} else contextlib.nullcontext():
                return list(torch.compile(run, backend="pjrt", dynamic=False, fullgraph=True)(calls))
        except Exception:
            counters["graph_break"].clear()
            counters["graph_break"].update(breaks)
            raise
