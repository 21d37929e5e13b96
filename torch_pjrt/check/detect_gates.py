"""Questions for CUDA: `torch.cuda.is_available()` as a gate, devices compared with "cuda", `is_cuda`. PJ105 to PJ107.

A question is harmless when nothing but torch.cuda stands behind it (those calls are the findings), or when the answer is
CUDA's own business: the ids of DDP, the name of a package.
"""

from __future__ import annotations

__all__: list[str] = []

import ast
import re
from collections.abc import Iterator

from .detect_device import OUTPUT, device_text
from .source import Hit, Source, call_name, constant, detector

# Packages of other libraries that come for CUDA and for the CPU: "onnxruntime-gpu".
_VENDOR_NAME = re.compile(r"[a-z]-?(gpu|cu\d\d+|cuda)\b")
_NVIDIA = re.compile(r"cudnn|nvlink|nvml|nvidia|nccl", re.I)
_PREDICATE = re.compile(r"^_*(is|has|have|check|require|supports?|can|use)_?.*(cuda|gpu|nccl|nvidia|cudnn)", re.I)


@detector(ast.Call, ast.Attribute)
def cuda_gate(source: Source, node: ast.Call | ast.Attribute) -> Iterator[Hit]:
    """PJ105: `torch.cuda.is_available()` that chooses the device, or anything besides calls of torch.cuda."""
    if isinstance(node, ast.Call):
        if source.name(node) not in ("torch.cuda.is_available", "torch.cuda.is_built", "torch.backends.cuda.is_built"):
            return
    elif source.name(node) != "torch.version.cuda" or isinstance(source.parent(node), ast.Attribute):
        return
    function = source.function(node)
    if function is not None and _PREDICATE.search(function.name):
        return  # what calls it is the gate
    region = source.guards.region(node)
    above = source.parent(region)
    if isinstance(above, ast.If) and region is above.test:
        if _asks_others(source, above) or _only_cuda_calls(source, above):
            return
        yield Hit(node, "PJ105", f"if {source.code(region)}")
    elif isinstance(above, ast.IfExp) and region is above.test:
        if not _asks_others(source, above) and not _names_cuda(source, above.body):
            yield Hit(above, "PJ105", source.code(above))
    elif isinstance(above, ast.Expr) or (isinstance(above, ast.Call) and call_name(above) in OUTPUT):
        return
    elif isinstance(source.parent(node), ast.FormattedValue):
        return
    elif not (isinstance(region, ast.BoolOp) and "torch.accelerator" in ast.unparse(region)):
        yield Hit(node, "PJ105", source.code(node))


def _asks_others(source: Source, branch: ast.If | ast.IfExp) -> bool:
    """Whether any branch of the same ladder asks torch.accelerator."""
    top: ast.AST = branch
    above = source.parent(top)
    while isinstance(above, ast.If | ast.IfExp) and (top is above.orelse or [top] == above.orelse):
        top, above = above, source.parent(above)
    return any(
        "torch.accelerator" in ast.unparse(one.test) for one in ast.walk(top) if isinstance(one, ast.If | ast.IfExp)
    )


def _only_cuda_calls(source: Source, branch: ast.If) -> bool:
    """Whether the branch holds nothing but torch.cuda, whose calls have findings of their own, and reports of them."""
    if source.guards.test(branch.test) <= 0 or branch.orelse:
        return False
    return all(_names_cuda(source, one) for one in branch.body)


def _names_cuda(source: Source, statement: ast.AST) -> bool:
    if isinstance(statement, ast.Pass):
        return True
    nodes = [one for one in ast.walk(statement) if isinstance(one, ast.Attribute | ast.Name)]
    modules = ("torch.cuda.", "torch.backends.cuda.", "torch.backends.cudnn.")
    cuda = any((source.name(one) or "").startswith(modules) for one in nodes)
    cuda = cuda or any(_NVIDIA.search(call_name(one)) for one in nodes if isinstance(statement, ast.Expr))
    return cuda and not any(isinstance(one, ast.Constant) and device_text(one) for one in ast.walk(statement))


@detector(ast.Compare)
def cuda_comparison(source: Source, node: ast.Compare) -> Iterator[Hit]:
    """PJ106: a device compared with "cuda"."""
    if len(node.ops) != 1 or _harmless(source, node):
        return
    left, right = node.left, node.comparators[0]
    if device_text(left) and isinstance(node.ops[0], ast.In | ast.NotIn) and _about_device(source, right):
        yield Hit(node, "PJ106", source.code(node))
    elif isinstance(node.ops[0], ast.Eq | ast.NotEq):
        for one, other in ((left, right), (right, left)):
            named = device_text(one) or (isinstance(one, ast.Call) and source.name(one) == "torch.device"
                                         and bool(one.args) and device_text(one.args[0]))  # fmt: skip
            if named and _about_device(source, other):
                yield Hit(node, "PJ106", source.code(node))
                return


def _harmless(source: Source, node: ast.expr) -> bool:
    """Whether nothing is lost elsewhere: a branch of nothing but torch.cuda, a choice that is CUDA's to make."""
    if source.guards.cuda_only(node):
        return True
    region = source.guards.region(node)
    above = source.parent(region)
    if isinstance(above, ast.If) and region is above.test:
        return _only_cuda_calls(source, above)
    if isinstance(above, ast.IfExp) and region is above.test:
        outer = source.parent(above)
        if isinstance(outer, ast.keyword) and outer.arg in ("device_ids", "output_device"):
            return True  # DDP takes them for CUDA only
        return any(_VENDOR_NAME.search(str(constant(one))) for one in (above.body, above.orelse))
    return False


@detector(ast.Call)
def cuda_prefix(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ106: `device.startswith("cuda")`."""
    if call_name(call) == "startswith" and call.args and constant(call.args[0]) in ("cuda", "cuda:"):
        about = isinstance(call.func, ast.Attribute) and _about_device(source, call.func.value)
        if about and not _harmless(source, call):
            yield Hit(call, "PJ106", source.code(call))


def _about_device(source: Source, node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict | ast.Constant):
        return False
    return bool(re.search(r"device|\bdev\b|current_accelerator", ast.unparse(node), re.I))


@detector(ast.Attribute)
def is_cuda(source: Source, node: ast.Attribute) -> Iterator[Hit]:
    """PJ107."""
    if node.attr == "is_cuda" and isinstance(node.ctx, ast.Load) and source.names.of(node) is None:
        if _harmless(source, node):
            return
        yield Hit(node, "PJ107", source.code(node))
