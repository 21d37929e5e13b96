"""Libraries and kernels of one vendor: imports, Triton kernels, CUDA extensions, flash attention, 8-bit types.

An import that may fail (in try/except, behind a test for the library or for CUDA) is no finding: the program has a path
without it.
"""

from __future__ import annotations

__all__: list[str] = []

import ast
import re
from collections.abc import Iterator

from .source import Hit, Source, call_name, constant, detector, keyword
from .vendor_packages import IMPORTS

_QUANTIZERS = {"BitsAndBytesConfig", "BitsandbytesPrecision", "BnbQuantizationConfig"}
_EXTENSIONS = {
    "torch.utils.cpp_extension.CUDAExtension",
    "cupy.RawKernel",
    "cupy.RawModule",
    "cupy.cuda.compile_with_cache",
}
# What names of classes and functions call a library, where it is not its own name.
_SHORT = {
    "bitsandbytes": "bnb|bitsandbytes|4bit|8bit",
    "flash_attn": "fa2?|flash|flash_attn|flash_attention",
    "tensorrt": "trt|tensorrt",
    "transformer_engine": "te|transformer_engine",
    "torch_directml": "dml|directml",
    "intel_extension_for_pytorch": "ipex|xpu",
    "habana_frameworks": "hpu|habana|gaudi",
}
_WORD_ENDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # XLA|Strategy, has|Bnb
_LOADERS = {"torch.utils.cpp_extension.load", "torch.utils.cpp_extension.load_inline"}
_BACKENDS = {"inductor", "cudagraphs", "tensorrt", "torch_tensorrt", "onnxrt", "openxla", "ipex", "hpu_backend"}


@detector(ast.Import, ast.ImportFrom)
def vendor_import(source: Source, node: ast.Import | ast.ImportFrom) -> Iterator[Hit]:
    """PJ601."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif node.level:
        return
    else:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    found = {owner for name in names if (owner := _owner(name)) and not _is_for(source, node, owner)}
    if found and not source.guards.optional(node) and not source.guards.cuda_only(node):
        for owner in sorted(found):
            yield Hit(node, "PJ601", f"{owner}, which needs {IMPORTS[owner]}")


def _is_for(source: Source, node: ast.AST, owner: str) -> bool:
    """Whether the file, class or function around an import is named for the library, so that others do not call it."""
    if source.function(node) is None:
        return False
    words = _SHORT.get(owner) or owner.split(".")[0].removeprefix("torch_")
    named = re.compile(rf"(?<![a-z])({words})(?![a-z])", re.I)
    around = [at.name for at in source.ancestors(node) if isinstance(at, ast.ClassDef | ast.FunctionDef)]
    return any(named.search(_WORD_ENDS.sub("_", name)) for name in (*around, source.path.rsplit("/", 1)[-1]))


def _owner(name: str) -> str | None:
    words = name.split(".")
    if words[0] in IMPORTS:
        return words[0]
    return next((".".join(words[:n]) for n in range(2, len(words) + 1) if ".".join(words[:n]) in IMPORTS), None)


@detector(ast.FunctionDef)
def triton_kernel(source: Source, node: ast.FunctionDef) -> Iterator[Hit]:
    """PJ604: one for each kernel."""
    if any(source.name(one) == "triton.jit" for one in node.decorator_list):
        yield Hit(node.decorator_list[-1], "PJ604", node.name)


@detector(ast.Attribute)
def triton_driver(source: Source, node: ast.Attribute) -> Iterator[Hit]:
    """PJ604: the driver asked while the module is imported."""
    name = source.name(node) or ""
    if name.startswith("triton.runtime.driver.active") and source.function(node) is None:
        if not isinstance(source.parent(node), ast.Attribute):
            yield Hit(node, "PJ604", name)


@detector(ast.Call)
def cuda_extension(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ605."""
    name = source.name(call)
    if name in _EXTENSIONS:
        yield Hit(call, "PJ605", call_name(call))
    elif name in _LOADERS:
        texts = [one.value for one in ast.walk(call) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        cuda = keyword(call, "cuda_sources") is not None or constant(keyword(call, "with_cuda")) is True
        if cuda or any(text.endswith((".cu", ".cuh")) for text in texts):
            yield Hit(call, "PJ605", call_name(call))


@detector(ast.Call)
def flash_attention(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ606, PJ607, PJ609: what libraries are asked for by name."""
    for word in ("attn_implementation", "_attn_implementation"):
        value = constant(keyword(call, word))
        if isinstance(value, str) and "flash_attention" in value:
            yield Hit(keyword(call, word) or call, "PJ606", f'{word}="{value}"')
    if constant(keyword(call, "use_flash_attention_2")) is True:
        yield Hit(call, "PJ606", "use_flash_attention_2=True")
    for word in ("load_in_8bit", "load_in_4bit"):
        if constant(keyword(call, word)) is True and call_name(call) not in _QUANTIZERS:
            yield Hit(keyword(call, word) or call, "PJ607", f"{word}=True")
    if call_name(call) in _QUANTIZERS:
        yield Hit(call, "PJ607", source.code(call))
    optimizer = constant(keyword(call, "optim"))
    if isinstance(optimizer, str) and ("8bit" in optimizer or "bnb" in optimizer or optimizer.startswith("paged_")):
        yield Hit(keyword(call, "optim") or call, "PJ607", f'optim="{optimizer}"')
    if source.name(call) == "torch.compile":
        backend = constant(keyword(call, "backend"))
        if backend in _BACKENDS:
            yield Hit(keyword(call, "backend") or call, "PJ609", f'backend="{backend}"')


@detector(ast.Assign, ast.Dict)
def flash_attention_by_key(source: Source, node: ast.Assign | ast.Dict) -> Iterator[Hit]:
    """PJ606: `config._attn_implementation = "flash_attention_2"`, `{"attn_implementation": "flash_attention_2"}`."""
    if isinstance(node, ast.Assign):
        pairs = [(call_name(node.targets[0]), node.value)]
    else:
        pairs = [(str(constant(key)), value) for key, value in zip(node.keys, node.values)]
    for name, value in pairs:
        if name.endswith("attn_implementation") and str(constant(value)).startswith("flash_attention"):
            yield Hit(value, "PJ606", f'{name}="{constant(value)}"')


@detector(ast.Call)
def op_for_cuda(source: Source, call: ast.Call) -> Iterator[Hit]:
    """PJ608: an op whose only kernels are for CUDA and the CPU."""
    name = source.name(call) or ""
    if name == "torch.library.custom_op":
        kinds = keyword(call, "device_types")
        if kinds is not None and "cuda" in ast.unparse(kinds):
            yield Hit(kinds, "PJ608", source.code(kinds))
    elif name in ("torch.library.impl", "torch.library.register_kernel") or (
        call_name(call) in ("impl", "register_kernel")
        and isinstance(call.func, ast.Attribute)
        and "lib" in ast.unparse(call.func.value).lower()
    ):
        for one in (*call.args[1:], *(word.value for word in call.keywords)):
            if str(constant(one)).lower() == "cuda":
                yield Hit(one, "PJ608", source.code(call))


@detector(ast.Assign)
def inductor_setting(source: Source, node: ast.Assign) -> Iterator[Hit]:
    """PJ610."""
    name = source.name(node.targets[0]) or ""
    if name.startswith("torch._inductor.config."):
        yield Hit(node.targets[0], "PJ610", name)
