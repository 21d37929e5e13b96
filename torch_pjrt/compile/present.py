"""What is being compiled in this thread: the lines and names of Dynamo's graph, and what torch.compile was asked for last.

Traces that come from the disk take lines and names from here, since the source may have moved since they were written.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch


class _Present(threading.local):
    """lines: of the graph that is being compiled, None while none is; asked: mode and options of the last torch.compile."""

    lines: Sequence[str | None] | None = None
    names: Sequence[str] | None = None
    asked: tuple[Any, Any] | None = None


present = _Present()


@contextlib.contextmanager
def compiling(graph: torch.fx.GraphModule) -> Iterator[Sequence[str]]:
    """While this graph of Dynamo is compiled. Gives what the user calls its inputs."""
    from torch_pjrt.compile.facts import line_of
    from torch_pjrt.compile.source_lines import names_of

    before = present.lines, present.names
    present.lines = [line_of(node) for node in graph.graph.nodes]
    present.names = names_of(graph)
    try:
        yield present.names
    finally:
        present.lines, present.names = before
