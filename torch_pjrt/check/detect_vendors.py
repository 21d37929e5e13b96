"""Other vendors than NVIDIA: `torch.mps`, `torch.xpu`, `torch.npu`, ... and "mps", "xpu", ... where a device is meant.

Nothing is found in code that is for that vendor: behind any test that names it, in a class, function or file that does.
"""

from __future__ import annotations

__all__: list[str] = []

import ast
import re
from collections.abc import Iterator

from .detect_device import device_rule
from .source import Hit, Source, call_name, constant, detector

_VENDORS = frozenset("mps xpu npu hpu mlu musa mtia maia".split())
_DEVICE = re.compile(r"(mps|xpu|npu|hpu|mlu|musa|mtia|maia|xla)(:\d+)?")
# Questions, which every build of torch with the module answers.
_ASKS = frozenset("is_available is_built is_initialized device_count is_bf16_supported is_in_bad_fork".split())


@detector(ast.Attribute)
def vendor_module(source: Source, node: ast.Attribute) -> Iterator[Hit]:
    """PJ113: a call of another vendor's module of torch."""
    name = source.name(node)
    call = source.parent(node)
    if name is None or not isinstance(call, ast.Call) or call.func is not node:
        return
    words = name.split(".")
    if len(words) > 2 and words[0] == "torch" and words[1] in _VENDORS and words[-1] not in _ASKS:
        if not _for_vendor(source, node, words[1]):
            yield Hit(node, "PJ113", name)


@detector(ast.Constant)
def vendor_device(source: Source, node: ast.Constant) -> Iterator[Hit]:
    """PJ114."""
    match = _DEVICE.fullmatch(node.value) if isinstance(node.value, str) else None
    if match is None or device_rule(source, node) is None:
        return
    if not _for_vendor(source, node, match[1]):
        yield Hit(node, "PJ114", source.code(node))


def _for_vendor(source: Source, node: ast.AST, word: str) -> bool:
    """Whether it is only reached where that vendor's chip is, or was asked for."""
    named = re.compile(rf"(?<![a-z]){word}(?![a-z])", re.I)
    if named.search(source.path.rsplit("/", 1)[-1]):
        return True
    inner = node
    for at in source.ancestors(node):
        if (
            isinstance(at, ast.If | ast.While | ast.IfExp)
            and inner is not at.test
            and named.search(ast.unparse(at.test))
        ):
            return True
        if isinstance(at, ast.BoolOp) and any(named.search(ast.unparse(one)) for one in _before(at, inner)):
            return True
        if isinstance(at, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if named.search(at.name) or any(named.search(ast.unparse(one)) for one in at.decorator_list):
                return True
        if isinstance(at, ast.Dict) and any(named.search(str(constant(key))) for key in at.keys):
            return True
        if isinstance(at, ast.Try) and inner in at.body and at.handlers:
            return True
        if isinstance(at, ast.Call) and inner is not at.func and call_name(at) in ("isinstance", "hasattr", "skipIf"):
            return True
        if isinstance(inner, ast.stmt) and any(named.search(ast.unparse(one.test)) for one in _earlier(inner, at)):
            return True
        inner = at
    return False


def _before(at: ast.BoolOp, inner: ast.AST) -> list[ast.expr]:
    return at.values[: at.values.index(inner)] if inner in at.values else []  # type: ignore[arg-type]


def _earlier(inner: ast.stmt, at: ast.AST) -> Iterator[ast.If]:
    """The tests before a statement, in its block, that leave it."""
    for block in (getattr(at, "body", None), getattr(at, "orelse", None)):
        if isinstance(block, list) and inner in block:
            for one in block[: block.index(inner)]:
                if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Return | ast.Raise | ast.Continue):
                    yield one
