"""Shows what torch.compile did where PyTorch's own tools look: TORCH_TRACE and tlparse, and the folder of TORCH_PJRT_DUMP.

Owns the connection from a program, which is compiled at a graph's first call and in another thread, back to the frame that
Dynamo compiled. Logging needs nothing here: TORCH_LOGS="+torch_pjrt" sets the level of our loggers by their names.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch._guards import CompileContext, compile_context
from torch._logging._internal import trace_log, trace_structured

from torch_pjrt.config import settings
from torch_pjrt.pjrt import compiler
from torch_pjrt.pjrt.compiler import Compiled

_numbers = itertools.count()


class Graph:
    """One graph of torch.compile, as it is shown."""

    def __init__(self, graph: torch.fx.GraphModule, kind: str, title: str):
        self.name = f"{kind}_{next(_numbers)}"
        self.title = title
        self.compile_id = CompileContext.current_compile_id()
        self.programs: list[str] = []
        self.text = ""
        if settings.dump or trace_log.handlers:
            self.text = graph.print_readable(print_output=False)
            self._write()

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Programs that are compiled meanwhile are this graph's."""
        _watch()
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def cause(self, text: str) -> None:
        """Show why the graph was captured."""
        self._show("cause", lambda: text)

    def program(self, compiled: Compiled) -> None:
        """Show a program that was compiled for this graph."""
        self.programs.append(compiled.disk_key[:16])
        name = compiled.disk_key[:16]
        self._show(f"{name}_stablehlo", lambda: compiled.stablehlo)
        if compiled.hlo:
            self._show(f"{name}_hlo", lambda: compiled.hlo)
        facts = {
            "graph": self.title,
            "program": name,
            "ops": len(compiled.program.steps),
            "from_disk": compiled.seconds is None,
            "seconds": compiled.seconds,
            "lines": sorted({w for w in compiled.where if w}),
        }
        self._show(f"{name}_facts", lambda: json.dumps(facts, indent=1), "json")
        self._write()

    def _show(self, what: str, payload: Callable[[], str], encoding: str = "string") -> None:
        if not trace_log.handlers:
            return
        with compile_context(CompileContext(self.compile_id)):
            trace_structured(
                "artifact",
                metadata_fn=lambda: {"name": f"torch_pjrt_{self.name}_{what}", "encoding": encoding},
                payload_fn=payload,
                expect_trace_id=False,
            )

    def _write(self) -> None:
        if not settings.dump or not self.text:
            return
        folder = Path(settings.dump).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        head = f"# {self.title}\n# programs: {', '.join(self.programs) or 'none compiled yet'}\n"
        (folder / f"graph_{self.name}.fx.txt").write_text(head + self.text, encoding="utf-8")


_current: contextvars.ContextVar[Graph | None] = contextvars.ContextVar("torch_pjrt_graph", default=None)


def _watch() -> None:
    """Ask to be told of programs, while somebody looks."""
    wanted = bool(settings.dump or trace_log.handlers)
    if wanted != (_told in compiler.watchers):
        (compiler.watchers.append if wanted else compiler.watchers.remove)(_told)


def _told(compiled: Compiled) -> None:
    graph = _current.get()
    if graph is not None:
        graph.program(compiled)
