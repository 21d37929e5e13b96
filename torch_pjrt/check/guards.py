"""Says which branch code is in: one that runs only with CUDA, or only where a library was found.

Code behind `if torch.cuda.is_available():` does not break elsewhere, it is skipped, so its findings have another
severity. Reads tests literally, names of flags (`use_cuda`, `args.gpu`) by their words. Used by source.py and port.
"""

from __future__ import annotations

__all__ = ["CUDA_TESTS", "Guards"]

import ast
import re
from collections.abc import Iterator

from .names import Names

CUDA_TESTS = frozenset(
    "torch.cuda.is_available torch.cuda.device_count torch.cuda.is_initialized torch.cuda.is_bf16_supported "
    "torch.version.cuda torch.backends.cuda.is_built torch.backends.cudnn.is_available torch.cuda.is_built".split()
)
_FLAG = re.compile(
    r"(^|_)(use|on|is|has|have|enable|with)?_?(cuda|gpu|gpus|nvidia)(_available|_enabled|_device)?$", re.I
)
_NO_FLAG = re.compile(r"(^|_)(no|disable|without)_?(cuda|gpu)$|^(cpu|use_cpu|on_cpu|cpu_only)$", re.I)
_LIBRARY_FLAG = re.compile(r"(^|_)(is|has|have|import)_\w+|\w+_(available|installed|found|enabled)$", re.I)
_SKIP = re.compile(r"(skip|require|need|mark)\w*(cuda|gpu|nccl|triton|flash|bitsandbytes|multi_accelerator)", re.I)
_FOR_CUDA = re.compile(r"cuda|cudnn|nccl|tensorrt|nvidia|(^|_)trt(_|\.)", re.I)
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


class Guards:
    """The branches of one module."""

    def __init__(self, names: Names, path: str = ""):
        self.names = names
        self.for_cuda = _FOR_CUDA.search(path.rsplit("/", 1)[-1]) is not None  # cuda.py, tensorrt_backend.py
        self._tests: dict[ast.AST, int] = {}

    def cuda_only(self, node: ast.AST) -> bool:
        """Whether it is only reached with CUDA. A file, class or table entry that is named for CUDA is for it."""
        return self.for_cuda or any(self._branch(inner, at) for inner, at in self._path(node))

    def named_cuda(self, node: ast.AST) -> bool:
        """Whether a test that names CUDA leads to it (`device.type == "cuda"`), not one that asks whether it is there."""
        return any(
            isinstance(at, ast.If | ast.While | ast.IfExp) and self._branch(inner, at) and _says_cuda(at.test)
            for inner, at in self._path(node)
        )

    def optional(self, node: ast.AST) -> bool:
        """Whether it may fail or be skipped: in try/except, or behind a test for a library."""
        for inner, at in self._path(node):
            if isinstance(at, ast.Try) and inner in at.body and at.handlers:
                return True
            if isinstance(at, ast.ExceptHandler):
                return True
            if isinstance(at, ast.With) and any("suppress" in ast.unparse(one.context_expr) for one in at.items):
                return True
            if isinstance(at, ast.If) and inner is not at.test and self._library(at.test):
                return True
            if any(self._library(one.test) for one in _left_earlier(inner, at, _LEAVES)):
                return True
        return False

    def test(self, test: ast.AST) -> int:
        """1 for a test that CUDA passes and others fail, -1 for the opposite, 0 for any other."""
        if test not in self._tests:
            self._tests[test] = 0  # a name that stands for itself
            self._tests[test] = self._judge(test)
        return self._tests[test]

    def region(self, gate: ast.AST) -> ast.AST:
        """The largest test that a gate is part of, as `a and torch.cuda.is_available()`."""
        at = gate
        while isinstance(self.names.parents.get(at), ast.BoolOp | ast.UnaryOp | ast.Compare):
            at = self.names.parents[at]
        return at

    def _path(self, node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
        found = []
        inner, at = node, self.names.parents.get(node)
        while at is not None:
            found.append((inner, at))
            inner, at = at, self.names.parents.get(at)
        return found

    def _branch(self, inner: ast.AST, at: ast.AST) -> bool:
        """Whether `inner`, a child of `at`, is its branch for CUDA."""
        if isinstance(at, ast.If | ast.While):
            if inner in at.body and self.test(at.test) > 0:
                return True
            if inner in at.orelse and self.test(at.test) < 0:
                return True
        if isinstance(at, ast.ClassDef) and "cuda" in at.name.lower():
            return True
        if isinstance(at, ast.Dict) and inner in at.values:
            key = at.keys[at.values.index(inner)]  # type: ignore[arg-type]
            return isinstance(key, ast.Constant) and key.value == "cuda"
        if isinstance(at, ast.IfExp) and inner is not at.test:
            return self.test(at.test) == (1 if inner is at.body else -1)
        if isinstance(at, ast.BoolOp) and isinstance(at.op, ast.And):
            return any(self.test(one) > 0 for one in at.values[: at.values.index(inner)])  # type: ignore[arg-type]
        if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and inner in at.body:
            if any(self._skips(one) for one in at.decorator_list):
                return True
        return isinstance(inner, ast.stmt) and self._left_before(inner, at)

    def _left_before(self, inner: ast.stmt, at: ast.AST) -> bool:
        """Whether an earlier `if not cuda: return` leaves the block that `inner` is in."""
        return any(self.test(one.test) < 0 for one in _left_earlier(inner, at, _LEAVES[:3]))

    def _skips(self, decorator: ast.expr) -> bool:
        text = ast.unparse(decorator)
        return bool(_SKIP.search(text)) or ("skip" in text.lower() and "cuda" in text.lower())

    def _judge(self, test: ast.AST) -> int:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return -self.test(test.operand)
        if isinstance(test, ast.BoolOp):
            parts = [self.test(one) for one in test.values]
            if isinstance(test.op, ast.And):
                return 1 if 1 in parts else (-1 if all(one == -1 for one in parts) else 0)
            return -1 if -1 in parts else (1 if all(one == 1 for one in parts) else 0)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._compare(test.left, test.ops[0], test.comparators[0])
        if isinstance(test, ast.Call):
            return self._call(test)
        return self._flag(test)

    def _call(self, test: ast.Call) -> int:
        name = self.names.of(test.func)
        if name in CUDA_TESTS:
            return 1
        last = test.func.attr if isinstance(test.func, ast.Attribute) else getattr(test.func, "id", "")
        if last == "startswith" and test.args and getattr(test.args[0], "value", None) in ("cuda", "cuda:"):
            return 1
        if last in ("bool", "any", "all") and len(test.args) == 1:
            return self.test(test.args[0])
        if last in ("is_cuda_available", "is_torch_cuda_available", "is_cuda", "is_flash_attn_available"):
            return 1
        return 0

    def _flag(self, test: ast.AST) -> int:
        if self.names.of(test) in CUDA_TESTS:
            return 1
        word = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
        if (
            isinstance(test, ast.Name)
            and (value := self.names.bound_to(test)) is not None
            and (found := self.test(value))
        ):
            return found
        if word == "is_cuda" or _FLAG.search(word):
            return 1
        return -1 if _NO_FLAG.search(word) else 0

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> int:
        sign = -1 if isinstance(op, ast.NotEq | ast.NotIn | ast.IsNot) else 1
        for one, other in ((left, right), (right, left)):
            value = getattr(one, "value", None) if isinstance(one, ast.Constant) else None
            if isinstance(value, str) and re.fullmatch(r"cuda(:\d+)?|nccl", value):
                return sign if isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn | ast.Is | ast.IsNot) else 0
            if isinstance(one, ast.Attribute) and one.attr in ("CUDA", "NCCL"):  # a member of an enum
                return sign if isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot) else 0
            if isinstance(op, ast.Eq) and isinstance(one, ast.Constant) and self.names.of(other) in CUDA_TESTS:
                return 1 if one.value is True else 0
        if self.names.of(left) in CUDA_TESTS and isinstance(op, ast.IsNot):
            return 1
        if isinstance(left, ast.Call) and self.names.of(left.func) == "torch.cuda.device_count":
            return 1 if isinstance(op, ast.Gt | ast.GtE | ast.NotEq) else -1
        return 0

    def _library(self, test: ast.expr) -> bool:
        for one in ast.walk(test):
            word = one.attr if isinstance(one, ast.Attribute) else one.id if isinstance(one, ast.Name) else ""
            if word in ("TYPE_CHECKING", "find_spec") or _LIBRARY_FLAG.search(word) or _FLAG.search(word):
                return True
        return False


def _says_cuda(test: ast.expr) -> bool:
    texts = (one.value for one in ast.walk(test) if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return any(re.fullmatch(r"cuda(:\d*)?|nccl", text) for text in texts) or any(
        isinstance(one, ast.Attribute) and one.attr in ("CUDA", "NCCL") for one in ast.walk(test)
    )


def _left_earlier(inner: ast.AST, at: ast.AST, leaves: tuple[type[ast.stmt], ...]) -> Iterator[ast.If]:
    """The `if ...: return` before `inner` in the block of `at` that it is in."""
    for block in (getattr(at, "body", None), getattr(at, "orelse", None)):
        if isinstance(block, list) and inner in block:
            for one in block[: block.index(inner)]:
                if isinstance(one, ast.If) and isinstance(one.body[-1], leaves):
                    yield one
