"""Devices named in the program: `.cuda()`, "cuda" and "cuda:0" where a device is meant, torch.cuda, environment variables.

A text is taken for a device by where it stands: the argument of something that takes a device, a name or a key with
`device` in it. A list of choices or a message is not a device.
"""

from __future__ import annotations

__all__ = ["OUTPUT", "device_rule", "device_text"]

import ast
import re
from collections.abc import Iterator

from .cuda_names import cuda_rule, quiet_severity
from .source import Hit, Source, call_name, constant, detector, keyword

_DEVICE = re.compile(r"cuda(:\d+)?")
_DEVICE_WORD = re.compile(r"device(?!s?_ids?$)|^dev$|^map_location$", re.I)
# Called with a device type: which rule "cuda" falls under there.
_TAKES_TYPE = {
    "torch.amp.autocast": "PJ201",
    "torch.amp.GradScaler": "PJ202",
    "torch.amp.custom_fwd": "PJ204",
    "torch.amp.custom_bwd": "PJ204",
    "torch.distributed.init_device_mesh": "PJ505",
    "torch.distributed.DeviceMesh": "PJ505",
    "torch.get_autocast_dtype": "PJ201",
    "torch.is_autocast_enabled": "PJ201",
    "torch.set_autocast_dtype": "PJ201",
    "torch.set_autocast_enabled": "PJ201",
    "torch.amp.is_autocast_available": "PJ201",
}
_TAKES_DEVICE = {
    "torch.device",
    "torch.set_default_device",
    "torch.get_device_module",
    "torch.Generator",
    "torch.Stream",
    "torch.Event",
    "torch.load",
    "torch.utils.benchmark.Timer",
}
_DEVICE_METHODS = frozenset({"to", "to_empty", "move_to", "pin_memory"})
OUTPUT = frozenset(
    "print info debug warning warn error critical log exception write format raise_error fail join append "
    "startswith endswith replace split strip assertEqual assertIn match search".split()
)


def device_text(node: ast.AST) -> str | None:
    """ "cuda", "cuda:0" or "cuda:{...}" as it is written, or None."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _DEVICE.fullmatch(node.value):
        return node.value
    if isinstance(node, ast.JoinedStr) and node.values:
        first = constant(node.values[0])
        if isinstance(first, str) and first == "cuda:" and len(node.values) == 2:
            return "cuda:{...}"
    if isinstance(node, ast.BinOp) and constant(node.left) in ("cuda:", "cuda:%d", "cuda:%s", "cuda:%i"):
        return "cuda:{...}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        if constant(node.func.value) in ("cuda:{}", "cuda:{0}"):
            return "cuda:{...}"
    return None


@detector(ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call)
def device_literal(source: Source, node: ast.expr) -> Iterator[Hit]:
    """PJ102, PJ103, and PJ201 to PJ204, PJ505 where the text is given to something of theirs."""
    text = device_text(node)
    if text is None or isinstance(source.parent(node), ast.JoinedStr | ast.FormattedValue):
        return
    rule = device_rule(source, node)
    if rule == "PJ102" and ":" in text:
        rule = "PJ103"
    if rule is None and ":" in text and _is_kept(source, node, text):
        rule = "PJ103"
    if rule is not None:
        yield Hit(node, rule, source.code(node))


def _is_kept(source: Source, node: ast.expr, text: str) -> bool:
    """Whether "cuda:0" goes on under some name: with an index a text is hardly anything but a device."""
    if text == "cuda:{...}":
        return not _in_output(source, node)
    return isinstance(source.parent(node), ast.Assign | ast.AnnAssign | ast.NamedExpr) and not _gate_in_branch(
        source, node
    )


def _in_output(source: Source, node: ast.AST) -> bool:
    for at in source.ancestors(node):
        if isinstance(at, ast.Raise | ast.Compare):
            return True
        if isinstance(at, ast.Call) and call_name(at) in OUTPUT:
            return True
        if isinstance(at, ast.stmt):
            return False
    return False


def device_rule(source: Source, node: ast.expr) -> str | None:
    """The rule of a device text by what takes it, or None where it is no device."""
    parent = source.parent(node)
    if isinstance(parent, ast.IfExp):
        if node is parent.test or (source.gated(parent.test) and not source.through_gates):
            return None  # the gate is the finding
        return device_rule(source, parent)
    if isinstance(parent, ast.BoolOp):
        return device_rule(source, parent)
    if isinstance(parent, ast.keyword):
        return _keyword_rule(source, parent)
    if isinstance(parent, ast.Call) and node in parent.args:
        return _argument_rule(source, parent, node)
    if isinstance(parent, ast.Assign):
        return _named(parent.targets, source, node)
    if isinstance(parent, ast.AnnAssign):
        return _named([parent.target], source, node)
    if isinstance(parent, ast.NamedExpr):
        return _named([parent.target], source, node)
    if isinstance(parent, ast.Dict):
        return _dict_rule(source, parent, node)
    if isinstance(parent, ast.arguments):
        return "PJ102" if _DEVICE_WORD.search(_parameter(parent, node)) else None
    if isinstance(parent, ast.Return):
        function = source.function(node)
        named = function is not None and "device" in function.name.lower()
        return "PJ102" if named and not _gate_in_branch(source, node) else None
    return None


def _named(targets: list[ast.expr], source: Source, node: ast.expr) -> str | None:
    words = [call_name(one) for one in targets]
    words += [str(constant(one.slice)) for one in targets if isinstance(one, ast.Subscript)]
    if not any(_DEVICE_WORD.search(word) and word != "CUDA_VISIBLE_DEVICES" for word in words):
        return None
    return None if _gate_in_branch(source, node) else "PJ102"


def _gate_in_branch(source: Source, node: ast.expr) -> bool:
    """Whether it is directly in `if torch.cuda.is_available(): device = "cuda"`: the gate is the finding."""
    if source.through_gates:
        return False
    for at in source.ancestors(node):
        if isinstance(at, ast.stmt):
            above = source.parent(at)
            return isinstance(above, ast.If) and at in above.body and source.gated(above.test)
    return False


def _keyword_rule(source: Source, parent: ast.keyword) -> str | None:
    call = source.parent(parent)
    if not isinstance(call, ast.Call) or parent.arg is None:
        return None
    name = source.name(call)
    if name in _TAKES_TYPE and parent.arg in ("device_type", "device"):
        return _TAKES_TYPE[name]
    if parent.arg == "default":
        flags = [str(constant(one)) for one in call.args]
        return "PJ102" if any(_DEVICE_WORD.search(flag.lstrip("-")) for flag in flags) else None
    if name == "torch.random.fork_rng":
        return None  # what is not there is not forked
    if parent.arg == "pin_memory_device":
        return None  # detect_runtime.py has it
    if parent.arg == "device_types" and (name or "").startswith("torch.library."):
        return None  # detect_libraries.py has it
    return "PJ102" if _DEVICE_WORD.search(parent.arg) else None


def _argument_rule(source: Source, call: ast.Call, node: ast.expr) -> str | None:
    name, last = source.name(call), call_name(call)
    if name in _TAKES_TYPE:
        return _TAKES_TYPE[name] if node is call.args[0] else None
    if name in _TAKES_DEVICE:
        if isinstance(source.parent(call), ast.Compare):
            return None  # the comparison is the finding
        if _gate_in_branch(source, node):
            return None
        parent = source.parent(call)
        if isinstance(parent, ast.IfExp) and source.gated(parent.test) and call is not parent.test:
            return "PJ102" if source.through_gates else None
        return "PJ102"
    if isinstance(call.func, ast.Attribute) and last in _DEVICE_METHODS:
        return "PJ102"
    if last in ("get", "getenv", "getattr", "pop", "setdefault") and node is not call.args[0]:
        words = [str(constant(one)) for one in call.args]
        return "PJ102" if any(_DEVICE_WORD.search(word) for word in words if word != "CUDA_VISIBLE_DEVICES") else None
    return None


def _dict_rule(source: Source, parent: ast.Dict, node: ast.expr) -> str | None:
    if node not in parent.values:
        return None
    key = constant(parent.keys[parent.values.index(node)])
    if isinstance(key, str) and _DEVICE_WORD.search(key):
        return "PJ102"
    above = source.parent(parent)
    return "PJ102" if isinstance(above, ast.keyword) and above.arg in ("device_map", "map_location") else None


def _parameter(arguments: ast.arguments, default: ast.expr) -> str:
    """The parameter that a default belongs to."""
    if default in arguments.kw_defaults:
        return arguments.kwonlyargs[arguments.kw_defaults.index(default)].arg
    positional = [*arguments.posonlyargs, *arguments.args]
    return positional[len(positional) - len(arguments.defaults) + arguments.defaults.index(default)].arg


@detector(ast.Call)
def cuda_method(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ101, PJ104, PJ108: methods that put a tensor on CUDA."""
    if not isinstance(call.func, ast.Attribute):
        return
    last, owner = call.func.attr, source.names.of(call.func.value)
    plain = all(one.arg in ("device", "non_blocking", "memory_format") for one in call.keywords)
    if last == "cuda" and owner is None and not call.args[1:] and plain:
        function = source.function(call)
        if not (function is not None and function.name == "cuda"):
            yield Hit(call, "PJ101", source.code(call))
    elif last in ("to", "to_empty") and call.args and _is_index(call.args[0]) and owner is None:
        yield Hit(call, "PJ104", source.code(call))
    elif last == "type" and call.args and str(constant(call.args[0])).startswith("torch.cuda."):
        yield Hit(call, "PJ108", source.code(call))


def _is_index(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


@detector(ast.Call)
def bare_index(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ104, PJ108 in arguments; `torch.set_default_tensor_type`."""
    name = source.name(call) or ""
    if name == "torch.set_default_tensor_type" and call.args and "cuda" in str(constant(call.args[0])):
        yield Hit(call, "PJ108", source.code(call))
    if name == "torch.device" and call.args and _is_index(call.args[0]):
        yield Hit(call, "PJ104", source.code(call))
    device = keyword(call, "device")
    if device is not None and _is_index(device) and constant(device) >= 0 and "torch" in name.split(".")[0]:
        yield Hit(device, "PJ104", f"device={constant(device)}")
    for word in ("device_map", "max_memory"):
        value = keyword(call, word)
        if isinstance(value, ast.Dict):
            items = value.keys if word == "max_memory" else value.values
            if any(one is not None and _is_index(one) for one in items):
                yield Hit(value, "PJ104", f"{word}={source.code(value)}")


@detector(ast.Attribute, ast.Name)
def cuda_name(source: Source, node: ast.Attribute | ast.Name) -> Iterator[Hit]:
    """Everything of torch.cuda, torch.backends.cuda and torch.backends.cudnn, by the table of cuda_names.py."""
    parent = source.parent(node)
    if isinstance(parent, ast.Attribute) and source.name(parent) is not None:
        return
    name = source.name(node)
    if name is None or source.in_annotation(node):
        return
    rule = cuda_rule(name)
    if isinstance(parent, ast.Dict) and source.guards.cuda_only(node):
        return  # a table by device
    if rule is None or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
        return
    if isinstance(node, ast.Name) and source.names.bound_to(node) is not None:
        return  # `cuda = torch.cuda.x`: said where it is assigned
    if rule == "PJ108" and not (isinstance(parent, ast.Call) and parent.func is node):
        return  # isinstance(x, torch.cuda.FloatTensor) is only false
    if isinstance(parent, ast.Call) and call_name(parent) in ("isinstance", "hasattr", "issubclass"):
        return
    if rule in ("PJ304", "PJ308") and not _is_set(source, node):
        return
    if rule in ("PJ201", "PJ202") and isinstance(parent, ast.Subscript | ast.Dict):
        return  # the class as a key
    severity = None if source.guards.cuda_only(node) else quiet_severity(name)
    yield Hit(node, rule, name, severity)


def _is_set(source: Source, node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


_ENVIRONMENT = re.compile(r"(CUDA|NCCL|CUBLAS|CUDNN|TORCH_NCCL|PYTORCH_CUDA|NVIDIA)_\w+|PYTORCH_CUDA_ALLOC_CONF")


@detector(ast.Subscript, ast.Call)
def environment(source: Source, node: ast.Subscript | ast.Call) -> Iterator[Hit]:
    """PJ111: an environment variable of CUDA or NCCL that the program sets or reads."""
    if isinstance(node, ast.Subscript):
        key, owner = constant(node.slice), source.name(node.value)
        used = owner == "os.environ" and isinstance(node.ctx, ast.Store)
    else:
        key = constant(node.args[0]) if node.args else None
        used = source.name(node) in ("os.environ.setdefault", "os.putenv")
    if used and isinstance(key, str) and _ENVIRONMENT.fullmatch(key):
        yield Hit(node, "PJ111", key)


@detector(ast.Call)
def trainer_device(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ102: `Trainer(accelerator="gpu")` and `Fabric(accelerator="cuda")` of Lightning, `Trainer(gpus=2)`."""
    if not call_name(call).endswith(("Trainer", "Fabric")):
        return
    chosen = constant(keyword(call, "accelerator"))
    if chosen in ("gpu", "cuda"):
        yield Hit(call, "PJ102", f'accelerator="{chosen}"')
    gpus = keyword(call, "gpus")
    if gpus is not None and not (isinstance(gpus, ast.Constant) and gpus.value in (0, None)):
        yield Hit(call, "PJ102", f"gpus={source.code(gpus)}")
