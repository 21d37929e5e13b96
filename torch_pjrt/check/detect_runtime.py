"""Mixed precision, numbers, memory and profiling where torch.cuda is not named: GradScaler(), float64, masks, pinning.

What is written as `torch.cuda.*` is found by detect_device.py through its table.
"""

from __future__ import annotations

__all__: list[str] = []

import ast
import re
from collections.abc import Iterator

from .source import Hit, Source, call_name, constant, detector, keyword

_HALF = {"torch.float16", "torch.half"}
_DOUBLE = {"torch.float64", "torch.double"}
_COMPLEX = {"torch.complex128", "torch.cdouble"}
# Functions of NumPy that make float64 unless told otherwise.
_NUMPY = {
    f"numpy.{name}"
    for name in "zeros ones empty linspace logspace eye identity random.rand random.randn random.random random.normal "
    "random.uniform random.standard_normal random.random_sample sin cos sqrt exp log mean".split()
}
# Columns of the profiler's table, and tests that say when to pin.
_COLUMN = re.compile(r"(self_)?cuda_(time|memory_usage)(_total)?")
_ASKED = re.compile(r"cuda|gpu|accelerator|pin", re.I)
_FROM_NUMPY = {"torch.from_numpy", "torch.tensor", "torch.as_tensor", "torch.asarray"}


@detector(ast.Call)
def scaler_without_device(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ203."""
    if source.name(call) == "torch.amp.GradScaler" and not call.args and keyword(call, "device") is None:
        if not any(one.arg is None for one in call.keywords):
            yield Hit(call, "PJ203", source.code(call))


@detector(ast.Call)
def float16_autocast(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ205."""
    if source.name(call) in ("torch.amp.autocast", "torch.cuda.amp.autocast"):
        dtype = keyword(call, "dtype") or (call.args[1] if len(call.args) > 1 else None)
        if source.name(dtype) in _HALF and not isinstance(dtype, ast.Call):
            yield Hit(dtype or call, "PJ205", source.code(call))


@detector(ast.Call)
def wide_dtypes(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ301, PJ303: a dtype that many chips lack, given to something that makes a tensor of it."""
    name, last = source.name(call) or "", call_name(call)
    method = isinstance(call.func, ast.Attribute) and not name
    if method and last in ("double", "cdouble") and not call.args and not call.keywords:
        if _on_host(source, call):
            return
        yield Hit(call, "PJ301" if last == "double" else "PJ303", source.code(call))
        return
    # Without a device a tensor is made on the host, where float64 costs nothing.
    given = [keyword(call, "dtype")] if method or (name.startswith("torch.") and keyword(call, "device")) else []
    if (method and last in ("to", "type")) or name == "torch.set_default_dtype":
        given += call.args
    for one in given:
        if one is None or isinstance(one, ast.Call):
            continue
        dtype = source.name(one)
        if dtype in _DOUBLE and not _on_host(source, call):
            yield Hit(one, "PJ301", source.code(call))
        elif dtype in _COMPLEX and not _on_host(source, call):
            yield Hit(one, "PJ303", source.code(call))


def _on_host(source: Source, call: ast.Call) -> bool:
    """Whether the tensor is said to be on the CPU: `device="cpu"`, or `.cpu()` before or after it."""
    if constant(keyword(call, "device")) == "cpu" or any(constant(one) == "cpu" for one in call.args):
        return True
    at: ast.AST | None = call.func.value if isinstance(call.func, ast.Attribute) else None
    while isinstance(at, ast.Call | ast.Attribute):
        if isinstance(at, ast.Call) and call_name(at) in ("cpu", "numpy", "from_numpy"):
            return True
        at = at.func if isinstance(at, ast.Call) else at.value
    for above in source.ancestors(call):
        if isinstance(above, ast.Call) and call_name(above) in ("cpu", "numpy", "item", "tolist"):
            return True
        if not isinstance(above, ast.Attribute | ast.Call):
            return False
    return False


@detector(ast.Call)
def numpy_float64(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ302: an array that is float64 by NumPy's default, taken over as it is."""
    if source.name(call) not in _FROM_NUMPY or not call.args or keyword(call, "dtype") is not None:
        return
    array: ast.expr | None = call.args[0]
    if isinstance(array, ast.Name):
        array = source.names.bound_to(array)
    if isinstance(array, ast.Call) and source.name(array) in _NUMPY and not _numpy_dtype(array):
        parent = source.parent(call)
        cast = isinstance(parent, ast.Attribute) and parent.attr in (
            "float",
            "half",
            "bfloat16",
            "to",
            "type",
            "long",
            "int",
        )
        if not cast:
            yield Hit(call, "PJ302", source.code(call))


def _numpy_dtype(array: ast.Call) -> bool:
    if keyword(array, "dtype") is not None:
        return True
    return call_name(array) in ("zeros", "ones", "empty") and len(array.args) > 1


@detector(ast.Attribute)
def mask_of_float32(source: Source, node: ast.Attribute) -> Iterator[Hit]:
    """PJ305: `torch.finfo(torch.float32).min`."""
    call = node.value
    if node.attr == "min" and isinstance(call, ast.Call) and source.name(call) == "torch.finfo" and call.args:
        if source.name(call.args[0]) in ("torch.float32", "torch.float") and not isinstance(call.args[0], ast.Call):
            yield Hit(node, "PJ305", source.code(node))


@detector(ast.Call)
def pinned(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ406, and PJ102 for `pin_memory_device="cuda"`."""
    device = keyword(call, "pin_memory_device")
    if str(constant(device)).startswith("cuda"):
        yield Hit(device or call, "PJ102", "pin_memory_device")
    elif call_name(call).endswith("DataLoader") and constant(keyword(call, "pin_memory")) is True:
        yield Hit(keyword(call, "pin_memory") or call, "PJ406", "pin_memory=True")
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "pin_memory" and source.name(call) is None:
        asked = any(
            _ASKED.search(ast.unparse(at.test)) for at in source.ancestors(call) if isinstance(at, ast.If | ast.IfExp)
        )
        if not call.args and not call.keywords and not asked and not source.guards.cuda_only(call):
            yield Hit(call, "PJ406", source.code(call))


@detector(ast.Call)
def host_copy_that_does_not_block(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ408."""
    if constant(keyword(call, "non_blocking")) is True and isinstance(call.func, ast.Attribute):
        to_host = [constant(one) for one in call.args[:1]] == ["cpu"] or constant(keyword(call, "device")) == "cpu"
        if call.func.attr == "cpu" or (call.func.attr == "to" and to_host):
            yield Hit(call, "PJ408", source.code(call))


@detector(ast.Attribute)
def profiler_activity(source: Source, node: ast.Attribute) -> Iterator[Hit]:
    """PJ407: `ProfilerActivity.CUDA`."""
    if source.name(node) in ("torch.profiler.ProfilerActivity.CUDA", "torch._C._profiler.ProfilerActivity.CUDA"):
        yield Hit(node, "PJ407", "ProfilerActivity.CUDA")


@detector(ast.Call)
def profiler_options(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ407: `use_cuda=True`."""
    if (source.name(call) or "").startswith("torch.autograd.profiler.") and constant(keyword(call, "use_cuda")) is True:
        yield Hit(call, "PJ407", "use_cuda=True")


@detector(ast.Constant)
def profiler_column(source: Source, node: ast.Constant) -> Iterator[Hit]:
    """PJ407: `sort_by="cuda_time_total"`, and such a name as a default."""
    if isinstance(node.value, str) and _COLUMN.fullmatch(node.value):
        if isinstance(source.parent(node), ast.keyword | ast.arguments | ast.Call | ast.Assign):
            yield Hit(node, "PJ407", source.code(node))


@detector(ast.Call)
def tf32_argument(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ611, PJ205: arguments of a Trainer."""
    if call_name(call).endswith(("TrainingArguments", "Config")) and constant(keyword(call, "tf32")) is True:
        yield Hit(call, "PJ611", "tf32=True")
