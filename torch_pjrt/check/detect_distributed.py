"""Several devices: NCCL by name, DDP's device_ids, DataParallel, tests for NCCL, and what the pjrt device lacks."""

from __future__ import annotations

__all__ = ["HAS_PROCESS_GROUPS"]

import ast
import re
from collections.abc import Iterator

from .source import Hit, Source, call_name, constant, detector, keyword

# Whether torch knows a default backend of process groups for the pjrt device; a test compares it with what is so.
HAS_PROCESS_GROUPS = False


@detector(ast.Call)
def nccl(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ501: the backend of a process group, and the default of a `--backend` option."""
    backend = keyword(call, "backend")
    if source.name(call) == "torch.distributed.init_process_group" and call.args:
        backend = call.args[0]
    if call_name(call) in ("add_argument", "option") and any("backend" in str(constant(one)) for one in call.args):
        backend = keyword(call, "default")
    yield from _nccl(backend, source)


def _nccl(backend: ast.AST | None, source: Source) -> Iterator[Hit]:
    if isinstance(backend, ast.IfExp):
        yield from _nccl(backend.body, source)
        yield from _nccl(backend.orelse, source)
    elif isinstance(backend, ast.BoolOp):
        for one in backend.values:
            yield from _nccl(one, source)
    value = "nccl" if source.name(backend) == "torch.distributed.Backend.NCCL" else constant(backend)
    if isinstance(value, str) and re.search(r"\bnccl\b", value) and backend is not None:
        yield Hit(backend, "PJ501", source.code(backend))


@detector(ast.Assign, ast.arguments)
def nccl_by_name(source: Source, node: ast.Assign | ast.arguments) -> Iterator[Hit]:
    """PJ501: `backend = "nccl"`, `def init(backend="nccl")`."""
    if isinstance(node, ast.Assign):
        words = " ".join(ast.unparse(one) for one in node.targets)
        if "backend" in words.lower():
            yield from _nccl(node.value, source)
        return
    names = [one.arg for one in (*node.posonlyargs, *node.args)][-len(node.defaults) :] if node.defaults else []
    pairs = [*zip(names, node.defaults), *zip((one.arg for one in node.kwonlyargs), node.kw_defaults)]
    for name, default in pairs:
        if "backend" in name:
            yield from _nccl(default, source)


@detector(ast.Call)
def wrappers(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ502, PJ503."""
    name = source.name(call)
    if name in ("torch.nn.parallel.DistributedDataParallel", "torch.distributed.barrier"):
        second = call.args[1] if len(call.args) > 1 and not name.endswith("barrier") else None
        ids = keyword(call, "device_ids") or second
        if ids is not None and isinstance(ids, ast.List) and ids.elts:
            yield Hit(ids, "PJ502", f"device_ids={source.code(ids)}")
    elif name in ("torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel"):
        yield Hit(call, "PJ503", source.code(call))


@detector(ast.Compare)
def nccl_comparison(source: Source, node: ast.Compare) -> Iterator[Hit]:
    """PJ504: `backend == "nccl"`."""
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Is):
        for one, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
            nccl = constant(one) == "nccl" or source.name(one) == "torch.distributed.Backend.NCCL"
            if nccl and "backend" in ast.unparse(other).lower():
                yield Hit(node, "PJ504", source.code(node))
                return


@detector(ast.Call)
def nccl_available(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ504: `dist.is_nccl_available()`."""
    if source.name(call) == "torch.distributed.is_nccl_available":
        yield Hit(call, "PJ504", source.code(call))


@detector(ast.Attribute, ast.Name)
def nccl_class(source: Source, node: ast.Attribute | ast.Name) -> Iterator[Hit]:
    """PJ501: `ProcessGroupNCCL` used by name."""
    if source.name(node) == "torch.distributed.ProcessGroupNCCL" and isinstance(node.ctx, ast.Load):
        parent = source.parent(node)
        inside = isinstance(parent, ast.Call) and call_name(parent) == "isinstance"
        if not inside and not source.in_annotation(node):
            yield Hit(node, "PJ501", "ProcessGroupNCCL")


@detector(ast.Call)
def default_backend(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ506: code that runs wherever torch knows a default backend, which the pjrt device has none of yet."""
    if HAS_PROCESS_GROUPS:
        return
    name = source.name(call)
    if name == "torch.distributed.get_default_backend_for_device":
        device = call.args[0] if call.args else keyword(call, "device")
        if constant(device) not in ("cpu", "cuda", "mps", "xpu"):
            yield Hit(call, "PJ506", source.code(call))
    elif name == "torch.distributed.init_process_group" and not call.args:
        given = keyword(call, "backend")
        chosen = given is not None and not (isinstance(given, ast.Constant) and given.value is None)
        if not chosen and not any(one.arg is None for one in call.keywords):
            yield Hit(call, "PJ506", source.code(call))
