"""Whether the traces of a graph of Dynamo may come from the disk, and what beside the graph they depend on.

PyTorch's key has the graph, how its inputs look, and its own settings. Here is the rest: what of this package could make
another graph of it (`fingerprint`), what of the present state could (`state`), and graphs whose meaning the key does not
hold (`why_not`): those are traced in every process.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from torch_pjrt._version import __version__
from torch_pjrt.compile.options import Options
from torch_pjrt.compile.stored import same_elsewhere, vouched_for
from torch_pjrt.config import settings, table
from torch_pjrt.pjrt.client import describe

_ELSEWHERE = ("cache_dir", "cache_limit", "dump", "log", "compile_threads")  # settings that no trace depends on
_TRACED_THROUGH = ("/Autograd", "/CompositeImplicitAutograd", "/")
_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


@functools.cache
def _sources() -> str:
    """A hash of this package: meta kernels, decompositions and casts decide what AOTAutograd traces."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


def fingerprint(options: Options) -> str:
    """A text that changes with this package, the device, the settings and what torch.compile was asked for."""
    values = {row.name: getattr(settings, row.name) for row in table() if row.name not in _ELSEWHERE}
    name = torch._C._get_privateuse1_backend_name()
    return repr((__version__, _sources(), name, describe(), values, options, sorted(vouched_for().items())))


def state(example_inputs: Sequence[Any]) -> str:
    """A text of the present state that AOTAutograd's traces may depend on, and PyTorch's key does not have."""
    kinds = ("cpu", torch._C._get_privateuse1_backend_name())
    return repr(
        (
            [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds],
            torch.is_inference_mode_enabled(),
            torch.get_default_device(),
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.mem_efficient_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
            [(type(x).__name__, x.is_leaf, x._is_view()) for x in example_inputs if isinstance(x, torch.Tensor)],
        )
    )


def why_not(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> str | None:
    """Why this graph is traced in every process; None where its traces may come from the disk."""
    return next(_reasons(graph, example_inputs), None)


def _reasons(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Iterator[str]:
    if torch.utils._python_dispatch._len_torch_dispatch_stack():
        yield "a dispatch mode is active"
    changed = sorted(
        name for name in torch.library._impls if name.startswith("aten/") and name.endswith(_TRACED_THROUGH)
    )
    if changed:
        yield f"a library replaces what PyTorch's operators are made of: {changed[0]}"
    storages = set()
    for value in example_inputs:
        if isinstance(value, torch.Tensor):
            if torch.utils._python_dispatch.is_traceable_wrapper_subclass(value) or value.layout != torch.strided:
                yield f"an input is a {type(value).__name__} of the layout {value.layout}"
                continue
            storages.add(value.untyped_storage()._cdata)
        elif not isinstance(value, _NUMBERS):
            yield f"an input is a {type(value).__name__}"
        if isinstance(value, (torch.Tensor, torch.SymInt)) and free_unbacked_symbols(value):
            yield "a size of an input is known at the call only"
    if len(storages) < sum(isinstance(v, torch.Tensor) for v in example_inputs):
        yield "two inputs lie in one storage"  # and PyTorch's guards of how they overlap are not stored
    for module in graph.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from _unknown(module)


def _unknown(graph: torch.fx.GraphModule) -> Iterator[str]:
    """Nodes whose meaning is not in the graph."""
    for node in graph.graph.nodes:
        if node.op == "call_module":
            yield f"it calls the module {node.target}"
        elif node.op == "get_attr":
            value: Any = graph
            for name in str(node.target).split("."):
                value = getattr(value, name, None)
            if not isinstance(value, torch.fx.GraphModule):
                yield f"it holds the constant {node.target}"
        elif isinstance(node.target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            if not same_elsewhere(node.target):
                yield f"what the operator {node.target} does may change between processes"
        given = node.meta.get("example_value")
        if isinstance(given, (torch.Tensor, torch.SymInt)) and free_unbacked_symbols(given):
            yield "a size in it depends on a value"
