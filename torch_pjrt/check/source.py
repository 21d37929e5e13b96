"""One Python text, parsed, and the questions that detectors ask of it: names, parents, loops, the branch it is in.

Detectors (detect_*.py) register with `detector(node type)` and yield hits; `examine` turns hits into findings. No torch
is imported: the text is read, never run.
"""

from __future__ import annotations

__all__ = ["Detector", "Hit", "Source", "call_name", "constant", "detector", "examine", "keyword"]

import ast
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .findings import Finding, Severity
from .guards import Guards
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
        self.lines = text.splitlines()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tree = ast.parse(text)
        self.names = Names(self.tree)
        self.parents = self.names.parents
        self.guards = Guards(self.names)

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
    for node in source.names.nodes:
        for detect in DETECTORS.get(type(node), ()):
            for hit in detect(source, node):
                finding = _finding(source, hit, path or source.path, cell)
                found.setdefault((finding.rule.id, finding.line, finding.column, finding.what), finding)
    return sorted(found.values(), key=lambda one: one.order)


def _finding(source: Source, hit: Hit, path: str, cell: int | None) -> Finding:
    rule = RULES[hit.rule]
    node: Any = hit.node
    guarded = source.guards.cuda_only(node)
    severity = hit.severity or (rule.guarded if guarded and rule.guarded else rule.severity)
    line = source.lines[node.lineno - 1] if node.lineno <= len(source.lines) else ""
    return Finding(
        rule=rule,
        path=path,
        line=node.lineno,
        column=_column(line, node.col_offset) + 1,
        end_line=node.end_lineno,
        end_column=_column(source.lines[node.end_lineno - 1], node.end_col_offset) + 1,
        what=hit.what,
        severity=severity,
        text=line.strip(),
        cell=cell,
        guarded=guarded,
    )


def _column(line: str, offset: int) -> int:
    """ast counts UTF-8 bytes; people count characters."""
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))
