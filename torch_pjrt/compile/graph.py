"""A graph of AOTAutograd as torch.compile calls it: captured once for each way its arguments lie, then run.

Owns the captures of one graph, how many of them are kept, and what happens to a graph that cannot be captured.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from torch_pjrt.compile import artifacts, explain, observe
from torch_pjrt.compile.capture import Captured, Steps, capture
from torch_pjrt.compile.captured import Signature, bind
from torch_pjrt.compile.host_part import HostPart
from torch_pjrt.compile.options import Options
from torch_pjrt.compile.source_lines import first_line, line_of, names_in
from torch_pjrt.compile.tuning import Tuning
from torch_pjrt.config import settings
from torch_pjrt.counters import counters, forbidden
from torch_pjrt.dispatch.fused import recorder
from torch_pjrt.errors import HostReadError, HostReadWarning
from torch_pjrt.logs import logger

_log = logger("compile")


class CompiledGraph:
    """One graph. kind: "forward", "backward" or "inference"; names: what the user calls the arguments."""

    def __init__(self, graph: torch.fx.GraphModule, kind: str, names: Sequence[str], options: Options):
        self.graph = graph
        self.options = options
        self.host = HostPart(graph)
        self.captures: OrderedDict[Signature, Captured] = OrderedDict()
        self.reads_host = False
        self.names = names_in(graph, names)
        line = first_line(graph)
        self.title = f"the {kind} graph" + (f" at {line}" if line else "")
        self.observed = observe.Graph(graph, kind, self.title)
        self._before: list[Any] | None = None
        self.__name__ = "pjrt_compiled_graph"

    def __call__(self, args: list[Any]) -> Any:
        """AOTAutograd's boxed convention: the list is emptied, so that arguments die as early as they can."""
        given = tuple(args)
        args.clear()
        with torch.no_grad():
            if not self.host:
                return self._run(given, given, {})
            env, device_args = self.host.run(given)
            results = self._run(given, device_args, env)
            for position, node in self.host.results:
                results[position] = env[node]
            return results

    def _run(self, given: Sequence[Any], args: Sequence[Any], env: dict[Any, Any]) -> Any:
        """The device's part on its arguments. given: those of the graph."""
        engine = recorder()
        with engine.lock:
            if self.reads_host:
                return self._interpret(given, env)
            key, cells = bind(args)
            captured = self.captures.get(key)
            if captured is None:
                try:
                    captured = self._capture(key, args, env)
                except HostReadError as error:
                    self._give_up(error)
                    return self._interpret(given, env)
            elif len(self.captures) > 1:
                self.captures.move_to_end(key)
            if captured.plans:
                return captured(args, cells)
            with self.observed.compiling():
                results = captured(args, cells)
            artifacts.record(captured)
            return results

    def _capture(self, key: Signature, args: Sequence[Any], env: dict[Any, Any]) -> Captured:
        """Record the graph for arguments that lie as these do; the longest unused capture makes room."""
        steps = Steps()
        with self.observed.compiling():
            captured = capture(lambda *stand_ins: self._record(steps, stand_ins, env), args, steps)
        captured.policy = self.options.policy
        captured.tuning = Tuning() if self.options.tune else None
        limit = self.options.compiled_sizes or settings.compiled_sizes
        while len(self.captures) >= limit:
            self.captures.popitem(last=False)
            counters.captures_dropped += 1
        self.captures[key] = captured
        self._note(args)
        return captured

    def _note(self, args: Sequence[Any]) -> None:
        names = [str(n.target) for n in (*self.host.arguments, *self.host.crossing)] if self.host else self.names
        if self.host:
            known = dict(zip((str(n.target) for n in self.host.placeholders), self.names, strict=True))
            names = [known.get(n, n) for n in names]
        facts = explain.facts_of(args)
        text = explain.cause(self.title, names, facts, self._before)
        self._before = facts
        counters.captures += 1
        counters.causes.append(text)
        _log.info("%s", text)
        self.observed.cause(text)

    def _record(self, steps: Steps, stand_ins: Sequence[Any], env: dict[Any, Any]) -> Any:
        with torch.utils._python_dispatch._disable_current_modes():
            run = _Recording(self.graph, steps)
            if not self.host:
                return run.run(*stand_ins)
            results = list(run.run(initial_env=self.host.environment(env, stand_ins)))
            for position, _ in self.host.results:
                results[position] = None
            return results

    def _give_up(self, error: HostReadError) -> None:
        """From now on run a graph with an operator that reads values on the host as in eager."""
        if forbidden.host_read:
            raise error
        self.reads_host = True
        why = str(error).split("\n\nWhile executing")[0]  # what follows is the interpreter's own account
        warnings.warn(f"a compiled graph runs uncompiled: {why}", HostReadWarning, stacklevel=4)

    def _interpret(self, given: Sequence[Any], env: dict[Any, Any]) -> Any:
        with torch.utils._python_dispatch._disable_current_modes():
            if not self.host:
                return torch.fx.Interpreter(self.graph).run(*given)
            full = {**env, **dict(zip(self.host.placeholders, given, strict=True))}
            return list(torch.fx.Interpreter(self.graph).run(initial_env=full))


class _Recording(torch.fx.Interpreter):
    """Runs a graph while it is captured, and tells the record which line each node is from."""

    def __init__(self, graph: torch.fx.GraphModule, steps: Steps):
        super().__init__(graph)
        self.steps = steps

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node."""
        self.steps.line = line_of(n)
        return super().run_node(n)
