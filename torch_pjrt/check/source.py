"""One Python text, parsed, and the questions that detectors ask of it: names, parents, loops, the branch it is in.

Detectors (detect_*.py) register with `detector(node type)` and yield hits; `examine` turns hits into findings. No torch
is imported: the text is read, never run.
"""

from __future__ import annotations

__all__ = ["Detector", "Hit", "Source", "call_name", "constant", "detector", "examine", "finding_of", "hits", "keyword"]

import ast
import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .findings import Finding, Severity
from .guards import CUDA_TESTS, Guards
from .names import Names
from .rules import RULES

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclasses.dataclass(frozen=True, slots=True)
class Hit:
    """A rule at a node. `severity` replaces the rule's own."""

    node: ast.AST
    rule: str
    what: str
    severity: Severity | None = None


Detector = Callable[["Source", Any], Iterator[Hit]]
DETECTORS: dict[type[ast.AST], list[Detector]] = {}


def detector(*kinds: type[ast.AST]) -> Callable[[Detector], Detector]:
    """Register a detector for kinds of nodes."""

    def register(function: Detector) -> Detector:
        for kind in kinds:
            DETECTORS.setdefault(kind, []).append(function)
        return function

    return register


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument, or None."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def constant(node: ast.AST | None) -> Any:
    """The value of a literal, or None."""
    return node.value if isinstance(node, ast.Constant) else None


def call_name(node: ast.AST) -> str:
    """The last word of what is called: `to` in `x.y.to(...)`, or the empty text."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


class Source:
    """A parsed text."""

    def __init__(self, text: str, path: str = "<text>"):
        self.path = path
        self.text = text
        self.lines = [*re.split(r"\r\n|\r|\n", text), ""]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tree = ast.parse(text)
        self.names = Names(self.tree)
        self.parents = self.names.parents
        self.guards = Guards(self.names, path)
        self.through_gates = False  # port asks for the devices that a gate chooses, too

    def name(self, node: ast.AST | None) -> str | None:
        """The dotted name of an expression; of a call, that of what is called."""
        return self.names.of(node.func if isinstance(node, ast.Call) else node)

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around it."""
        return self.parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around it, innermost first."""
        at = self.parents.get(node)
        while at is not None:
            yield at
            at = self.parents.get(at)

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The function that it is in, or None."""
        for at in self.ancestors(node):
            if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef):
                return at
        return None

    def code(self, node: ast.AST) -> str:
        """The text of a node, shortened to one line."""
        text = " ".join(ast.unparse(node).split())
        return text if len(text) <= 60 else text[:57] + "..."

    def span(self, node: Any) -> tuple[int, int, int, int]:
        """First line, column, last line, end column; lines from 1, columns from 0, in characters."""
        start, end = node.lineno, node.end_lineno
        columns = _column(self.lines[start - 1], node.col_offset), _column(self.lines[end - 1], node.end_col_offset)
        return start, columns[0], end, columns[1]

    def in_annotation(self, node: ast.AST) -> bool:
        """Whether it is part of a type, which is not run."""
        inner = node
        for at in self.ancestors(node):
            if isinstance(at, ast.arg) and at.annotation is inner:
                return True
            if isinstance(at, ast.AnnAssign) and at.annotation is inner:
                return True
            if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef):
                return at.returns is inner
            if isinstance(at, ast.stmt):
                return False
            inner = at
        return False

    def gated(self, test: ast.expr) -> bool:
        """Whether a test asks for CUDA, itself or through a name that was assigned such a test."""
        return any(
            self.name(one) in CUDA_TESTS
            or (isinstance(one, ast.Name | ast.Attribute) and ast.unparse(one) in self._gate_names)
            for one in ast.walk(test)
        )

    @functools.cached_property
    def _gate_names(self) -> set[str]:
        """What is assigned a test for CUDA: `use_cuda`, `args.cuda`."""
        found: set[str] = set()
        for node in self.names.nodes:
            if isinstance(node, ast.Assign) and not isinstance(node.value, ast.IfExp):
                if any(isinstance(one, ast.Call) and self.name(one) in CUDA_TESTS for one in ast.walk(node.value)):
                    found.update(ast.unparse(one) for one in node.targets)
        return found

    @functools.cached_property
    def training_loops(self) -> set[ast.AST]:
        """The innermost loop around each `.backward()`."""
        found: set[ast.AST] = set()
        for node in self.names.nodes:
            if isinstance(node, ast.Call) and call_name(node) == "backward" and isinstance(node.func, ast.Attribute):
                for at in self.ancestors(node):
                    if isinstance(at, LOOPS):
                        found.add(at)
                    if isinstance(at, (*LOOPS, *FUNCTIONS)):
                        break
        return found

    @functools.cached_property
    def losses(self) -> set[str]:
        """Names that `.backward()` is called on: tensors for certain."""
        calls = (node for node in self.names.nodes if isinstance(node, ast.Call) and call_name(node) == "backward")
        owners = (call.func.value for call in calls if isinstance(call.func, ast.Attribute))
        return {owner.id for owner in owners if isinstance(owner, ast.Name)}

    def each_step(self, node: ast.AST) -> bool:
        """Whether it runs in every step of training: in the loop of a backward, under no `if step % n`."""
        inner = node
        for at in self.ancestors(node):
            if isinstance(at, ast.If) and inner is not at.test and self._sometimes(at.test):
                return False
            if isinstance(at, ast.ExceptHandler | ast.Raise | ast.Assert):
                return False
            if at in self.training_loops:
                return inner not in getattr(at, "orelse", ()) and inner is not getattr(at, "iter", None)
            if isinstance(at, FUNCTIONS):
                return False
            inner = at
        return False

    @staticmethod
    def _sometimes(test: ast.expr) -> bool:
        return any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod) for one in ast.walk(test))

    def in_forward(self, node: ast.AST) -> bool:
        """Whether it is in the `forward` of a torch module or autograd function."""
        function = self.function(node)
        if function is None or function.name != "forward":
            return False
        owner = self.parents.get(function)
        return isinstance(owner, ast.ClassDef) and any(
            "Module" in (self.name(one) or ast.unparse(one)) or "Model" in ast.unparse(one) for one in owner.bases
        )


def examine(source: Source, path: str | None = None, cell: int | None = None) -> list[Finding]:
    """All findings of a source, in order, without repeats."""
    found: dict[tuple[object, ...], Finding] = {}
    for hit in hits(source):
        finding = finding_of(source, hit, path or source.path, cell)
        found.setdefault((finding.rule.id, finding.line, finding.column, finding.what), finding)
    return sorted(found.values(), key=lambda one: one.order)


def hits(source: Source) -> Iterator[Hit]:
    """What the detectors find, in the order of the text."""
    for node in source.names.nodes:
        for detect in DETECTORS.get(type(node), ()):
            yield from detect(source, node)


def finding_of(source: Source, hit: Hit, path: str, cell: int | None = None) -> Finding:
    """The finding of a hit: severity by the branch that it is in, columns in characters."""
    rule = RULES[hit.rule]
    node: Any = hit.node
    guarded = source.guards.cuda_only(node)
    severity = hit.severity or (rule.guarded if guarded and rule.guarded else rule.severity)
    line, column, end_line, end_column = source.span(node)
    return Finding(
        rule=rule,
        path=path,
        line=line,
        column=column + 1,
        end_line=end_line,
        end_column=end_column + 1,
        what=hit.what,
        severity=severity,
        text=source.lines[line - 1].strip(),
        cell=cell,
        guarded=guarded,
    )


def _column(line: str, offset: int) -> int:
    """ast counts UTF-8 bytes; people count characters."""
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))
