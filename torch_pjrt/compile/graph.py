"""A graph of AOTAutograd as torch.compile calls it: captured once for each way its arguments lie, then run.

Owns the captures of one graph, how many of them are kept, and what happens to a graph that cannot be captured.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from torch_pjrt.compile import artifacts, explain, observe
from torch_pjrt.compile.ahead import Ahead
from torch_pjrt.compile.capture import Captured, Steps, capture
from torch_pjrt.compile.captured import Signature, bind
from torch_pjrt.compile.facts import line_of, settle
from torch_pjrt.compile.options import Options
from torch_pjrt.compile.positions import Numbers, names_positions
from torch_pjrt.compile.recent import Recent
from torch_pjrt.compile.source_lines import first_line, names_in
from torch_pjrt.compile.split import Env, Split
from torch_pjrt.compile.tuning import Tuning
from torch_pjrt.config import settings
from torch_pjrt.counters import counters, forbidden
from torch_pjrt.dispatch.fused import recorder
from torch_pjrt.errors import HostReadError, HostReadWarning
from torch_pjrt.logs import logger
from torch_pjrt.tensor.storage import Cell

_log = logger("compile")


class CompiledGraph:
    """One graph. kind: "forward", "backward" or "inference"; names: what the user calls the arguments."""

    def __init__(self, graph: torch.fx.GraphModule, kind: str, names: Sequence[str], options: Options):
        self.graph = graph
        self.options = options
        for node in graph.graph.nodes:
            settle(node)
        self.split = Split(graph)
        self.captures: OrderedDict[Signature, Captured] = OrderedDict()
        self.recent: Recent | None = None
        self.last: tuple[Signature, tuple[int, ...]] | None = None
        self.absolute = names_positions(graph)
        count = min(options.sizes_ahead, self._limit() - 1)  # the present size keeps its place
        self.ahead = Ahead(count) if count > 0 else None
        self.uncaptured = False
        self.names = names_in(graph, names)
        line = first_line(graph)
        self.title = f"the {kind} graph" + (f" at {line}" if line else "")
        self.observed = observe.Graph(graph, kind, self.title)
        self._before: list[Any] | None = None
        self._said = False
        self.__name__ = "pjrt_compiled_graph"

    def __call__(self, args: list[Any]) -> Any:
        """AOTAutograd's boxed convention: the list is emptied, so that arguments die as early as they can."""
        given = tuple(args)
        args.clear()
        with torch.no_grad():
            if self.split.trivial:
                return self._run(given, given, {})
            if self.split.after:
                self._say_what_reads()
            if not self.split.sound:
                return torch.fx.Interpreter(self.graph).run(*given)
            env, device_args = self.split.early(given)
            return self.split.late(env, self._run(given, device_args, env))

    def _run(self, given: Sequence[Any], args: Sequence[Any], env: Env) -> Any:
        """The device's part on its arguments. given: those of the graph."""
        engine = recorder()
        with engine.lock:
            if self.uncaptured:
                return self._interpret(given, env)
            key, cells, starts, captured, numbers = self._bound(args)
            try:
                if captured is None:
                    engine.flush("capture")  # what is pending is not this graph's
                    captured = self._capture(key, args, env)
                elif len(self.captures) > 1:
                    self.captures.move_to_end(key)
                if captured.overwrites(cells):
                    key, captured, numbers = self._together(key, starts, cells, args, env)
            except HostReadError as error:
                self._give_up(str(error).split("\n\nWhile executing")[0], error)  # what follows is the interpreter's
                return self._interpret(given, env)
            results = captured(args, cells, numbers)
            if self.ahead is not None:
                self._look_ahead(self.ahead, key, captured, args, env)
            return results

    def _bound(
        self, args: Sequence[Any]
    ) -> tuple[Signature, list[Cell], tuple[int, ...], Captured | None, Numbers | None]:
        """How arguments lie, their Cells, where they start, the capture for them, and its numbers."""
        if self.recent is not None:
            known = self.recent.cells(args)
            if known is not None:
                key, starts, captured, numbers = self.recent.found
                return key, known, starts, captured, numbers
        bound, cells, starts = bind(args)
        key, found, numbers = self._find(bound, starts)
        if found is not None and (bound, starts) == self.last:  # the second time: worth a look at the third
            self.recent = Recent(args, cells, key, starts, found, numbers)
        self.last = bound, starts
        return key, cells, starts, found, numbers

    def _find(self, key: Signature, starts: tuple[int, ...]) -> tuple[Signature, Captured | None, Numbers | None]:
        """The capture for arguments that lie so and start there, under its key, and its numbers."""
        if not starts:
            return key, self.captures.get(key), None
        if self.absolute:
            key = (*key, starts)
            return key, self.captures.get(key), None
        while True:
            captured = self.captures.get(key)
            if captured is None:
                return key, None, None
            numbers = captured.positions.numbers_at(starts)
            if numbers is not None:
                return key, captured, numbers
            key = (*key, "elsewhere")

    def _together(
        self, key: Signature, starts: tuple[int, ...], cells: list[Cell], args: Sequence[Any], env: Env
    ) -> tuple[Signature, Captured, None]:
        """The capture for arguments that are written and lie in one storage, under its key."""
        first: dict[Cell, int] = {}
        key = (*key, starts, *(first.setdefault(cell, i) for i, cell in enumerate(cells)))
        captured = self.captures.get(key)
        return key, captured or self._capture(key, args, env, together=True), None

    def _look_ahead(self, ahead: Ahead, key: Signature, captured: Captured, args: Sequence[Any], env: Env) -> None:
        """Capture the sizes that are likely to come, and start their compiles in other threads."""
        if forbidden.recompile or not captured.plans:
            return
        try:
            for guess in ahead.guesses(key, args):
                bound, _, starts = bind(guess)
                bound, known, _ = self._find(bound, starts)
                if known is None:
                    with self.observed.compiling():
                        self._capture(bound, guess, env, ahead=True).prepare(captured)
        except Exception as error:  # noqa: BLE001 - nobody has asked for these sizes
            _log.warning("no sizes are compiled ahead any more for %s: %s", self.title, error)
            self.ahead = None
        if key in self.captures:
            self.captures.move_to_end(key)

    def _capture(
        self, key: Signature, args: Sequence[Any], env: Env, *, ahead: bool = False, together: bool = False
    ) -> Captured:
        """Record the graph for arguments that lie as these do; the longest unused capture makes room."""
        steps = Steps()
        with self.observed.compiling():
            captured = capture(lambda *stand_ins: self._record(steps, stand_ins, env), args, steps, together=together)
        captured.compiling = functools.partial(self._compiling, key)
        captured.policy = self.options.policy
        captured.tuning = Tuning() if self.options.tune else None
        while len(self.captures) >= self._limit():
            self.captures.popitem(last=False)
            self.recent = self.last = None
            counters.captures_dropped += 1
        self.captures[key] = captured
        self._note(args, ahead)
        return captured

    def _limit(self) -> int:
        return self.options.compiled_sizes or settings.compiled_sizes

    @contextlib.contextmanager
    def _compiling(self, key: Signature) -> Iterator[None]:
        """Around a run that compiles: who looks is shown it, and torch can save it."""
        with self.observed.compiling():
            yield
        artifacts.record(self.captures[key])

    def _note(self, args: Sequence[Any], ahead: bool) -> None:
        known = dict(zip(self.split.placeholders, self.names, strict=True))
        names = [known.get(n, n.name) for n in (*self.split.arguments, *self.split.crossing)]
        facts = explain.facts_of(args)
        text = explain.cause(self.title, names, facts, self._before, "ahead" if ahead else "again")
        if not ahead:
            self._before = facts
        counters.captures += 1
        counters.captures_ahead += ahead
        counters.causes.append(text)
        _log.info("%s", text)
        self.observed.cause(text)

    def _record(self, steps: Steps, stand_ins: Sequence[Any], env: Env) -> Any:
        """Run the device's part on stand-ins; results of the other parts are left out."""
        with torch.utils._python_dispatch._disable_current_modes():
            run = _Recording(self.graph, steps, keep=self.split.wanted)
            if self.split.trivial:
                return run.run(*stand_ins)
            results = list(run.run(initial_env=self.split.device_env(env, stand_ins)))
            for position, _ in self.split.results:
                results[position] = None
            return results + run.kept()

    def _say_what_reads(self) -> None:
        """Once: which operators run as in eager, because they depend on a value that is read on the host."""
        if self._said:
            return
        self._said = True
        line = next(filter(None, map(line_of, self.split.after)), None)
        if not self.split.sound:
            self._warn(f"{self.title} runs uncompiled, because it reads a value on the host that it also writes", line)
        elif self.split.runs_eagerly:
            self._warn(f"the end of {self.title} runs uncompiled, because {self.split.reason}", line)

    def _give_up(self, why: str, error: HostReadError | None = None) -> None:
        """From now on run the device's part as in eager."""
        if forbidden.host_read and error is not None:
            raise error
        self.uncaptured = True
        self._warn(f"{self.title} runs uncompiled: {why}", None)

    def _warn(self, what: str, line: str | None) -> None:
        warnings.warn(what + (f"\n  at {line}" if line else ""), HostReadWarning, stacklevel=5)

    def _interpret(self, given: Sequence[Any], env: Env) -> Any:
        """The device's part as in eager."""
        with torch.utils._python_dispatch._disable_current_modes():
            run = _Recording(self.graph, Steps(), keep=self.split.wanted)
            if self.split.trivial:
                return run.run(*given)
            full = dict.fromkeys(self.split.after) | env | dict(zip(self.split.placeholders, given, strict=True))
            return list(run.run(initial_env=full)) + run.kept()


class _Recording(torch.fx.Interpreter):
    """Runs a graph, tells the record which line each node is from, and keeps the values of some nodes."""

    def __init__(self, graph: torch.fx.GraphModule, steps: Steps, keep: Sequence[torch.fx.Node]):
        super().__init__(graph, garbage_collect_values=not keep)
        self.steps = steps
        self.keep = keep

    def kept(self) -> list[Any]:
        """The values of the nodes to keep."""
        return [self.env[n] for n in self.keep]

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one node."""
        self.steps.line = line_of(n)
        return super().run_node(n)
