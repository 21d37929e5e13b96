"""The shape of the program: host reads in the step, branches on values, sizes that depend on values, checkpoints.

Only where it costs in each step: the innermost loop around `.backward()`, and the `forward` of a module. Under
`if step % n` it is rare, hence no finding.
"""

from __future__ import annotations

__all__: list[str] = []

import ast
from collections.abc import Iterator

from .source import Hit, Source, call_name, constant, detector, keyword

_READS = frozenset({"item", "tolist", "cpu", "numpy"})
_VALUE_TESTS = {f"torch.{name}" for name in "isnan isinf isfinite any all equal allclose is_nonzero".split()}
_MADE = {f"torch.{name}" for name in "rand randn randint randperm empty zeros ones tensor arange linspace".split()}
_BY_VALUE = {f"torch.{name}" for name in "nonzero argwhere masked_select unique unique_consecutive bincount".split()}


@detector(ast.Call)
def host_read(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ801: `.item()`, `.cpu()`, `float(loss)`, `print(loss)`."""
    reading = isinstance(call.func, ast.Attribute) and call.func.attr in _READS and not call.args
    if reading and isinstance(call.func, ast.Attribute) and source.name(call.func) is None:
        above = source.parent(call)
        outer = isinstance(above, ast.Attribute) and above.attr in _READS
        if (
            not outer
            and not _made_on_host(source, call.func.value)
            and (source.each_step(call) or source.in_forward(call))
        ):
            yield Hit(call, "PJ801", source.code(call))
        return
    plain = isinstance(call.func, ast.Name) and call.func.id in ("float", "int", "print", "str")
    if plain and call.args and source.each_step(call):
        if any(_is_loss(source, one) for one in call.args):
            yield Hit(call, "PJ801", source.code(call))


def _made_on_host(source: Source, node: ast.AST) -> bool:
    """Whether it is computed from `torch.randint(...)` and the like without a device: such a tensor is on the host."""
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    made = [one for one in calls if source.name(one) in _MADE]
    return bool(made) and all(keyword(one, "device") is None for one in made)


def _is_loss(source: Source, node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(one, ast.FormattedValue) and _is_loss(source, one.value) for one in node.values)
    return isinstance(node, ast.Name) and node.id in source.losses


@detector(ast.If, ast.While)
def branch_on_value(source: Source, node: ast.If | ast.While) -> Iterator[Hit]:
    """PJ802."""
    if not (source.each_step(node) or source.in_forward(node)):
        return
    test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
    if isinstance(test, ast.Call):
        method = (
            isinstance(test.func, ast.Attribute) and test.func.attr in ("any", "all") and not source.name(test.func)
        )
        if source.name(test) in _VALUE_TESTS or method:
            yield Hit(node.test, "PJ802", source.code(node.test))
    elif isinstance(test, ast.Compare) and any(_is_loss(source, one) for one in (test.left, *test.comparators)):
        if not isinstance(test.ops[0], ast.Is | ast.IsNot):
            yield Hit(node.test, "PJ802", source.code(node.test))


@detector(ast.Call)
def size_by_value(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ803 for functions."""
    if not (source.each_step(call) or source.in_forward(call)):
        return
    name, last = source.name(call) or "", call_name(call)
    if name in _BY_VALUE or (name == "torch.where" and len(call.args) == 1 and not call.keywords):
        yield Hit(call, "PJ803", source.code(call))
    elif not name and isinstance(call.func, ast.Attribute) and last in ("nonzero", "masked_select", "unique"):
        yield Hit(call, "PJ803", source.code(call))


@detector(ast.Subscript)
def boolean_index(source: Source, node: ast.Subscript) -> Iterator[Hit]:
    """PJ803 for `x[x > 0]`; writing through such an index keeps the size."""
    if isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Compare):
        written = isinstance(source.parent(node), ast.AugAssign)
        if not written and (source.each_step(node) or source.in_forward(node)):
            yield Hit(node, "PJ803", source.code(node))


@detector(ast.Call)
def batches(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ804, PJ805."""
    if source.name(call) == "torch.utils.data.DataLoader" and constant(keyword(call, "shuffle")) is True:
        fixed = any(one.arg in ("drop_last", "batch_sampler", None) for one in call.keywords)
        if not fixed and (keyword(call, "batch_size") is not None or len(call.args) > 1):
            yield Hit(call, "PJ804", source.code(call))
    padding = constant(keyword(call, "padding"))
    function = ast.unparse(call.func).lower()
    if (padding is True or padding == "longest") and ("tokenizer" in function or "processor" in function):
        if keyword(call, "pad_to_multiple_of") is None and not _stays_on_host(source, call):
            yield Hit(keyword(call, "padding") or call, "PJ805", source.code(call))


def _stays_on_host(source: Source, call: ast.AST) -> bool:
    """Whether a result is only looked at: no `.to(...)`, and given to nothing but comparisons and decoders."""
    at: ast.AST = call
    while isinstance(above := source.parent(at), ast.Attribute | ast.Subscript):
        at = above
    if not isinstance(above, ast.Assign) or not isinstance(above.targets[0], ast.Name):
        return False
    name, scope = above.targets[0].id, source.names.scope(above)
    uses = [one for one in source.names.nodes if isinstance(one, ast.Name) and one.id == name]
    uses = [one for one in uses if isinstance(one.ctx, ast.Load) and source.names.scope(one) is scope]
    return bool(uses) and not any(_goes_on(source, one) for one in uses)


def _goes_on(source: Source, use: ast.AST) -> bool:
    above = source.parent(use)
    while isinstance(above, ast.Attribute | ast.Subscript):
        if isinstance(above, ast.Attribute) and above.attr in ("shape", "size", "ndim"):
            return False
        above = source.parent(above)
    if isinstance(above, ast.Call):
        return call_name(above) not in ("equal", "batch_decode", "decode", "len", "size", "tolist", "numel")
    return isinstance(above, ast.keyword | ast.Return | ast.Starred | ast.Dict | ast.Assign | ast.List | ast.Tuple)


@detector(ast.Call)
def load(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ701."""
    if source.name(call) == "torch.load" and len(call.args) < 2:
        if not any(one.arg in ("map_location", None) for one in call.keywords):
            yield Hit(call, "PJ701", source.code(call))
