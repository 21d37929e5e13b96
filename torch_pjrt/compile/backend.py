"""The torch.compile backend "pjrt": AOTAutograd splits the graph, each part is captured once per signature and run.

Owns the options and modes that torch.compile passes, and the cache of captures of each graph.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt.compile.capture import Captured, capture, signature
from torch_pjrt.counters import forbidden
from torch_pjrt.errors import BadSettingError, HostReadError, HostReadWarning

# What each mode of torch.compile means here. All modes compile the same Programs: XLA has no cheaper tier to choose.
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
OPTIONS: dict[str, str] = {}


class CompiledGraph:
    """One graph: captured anew for each signature of its arguments (sizes, strides, numbers)."""

    def __init__(self, graph: torch.fx.GraphModule):
        self.graph = graph
        self.captures: dict[Any, Captured] = {}
        self.reads_host = False
        self.__name__ = "pjrt_compiled_graph"

    def __call__(self, *args: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], list):  # AOTAutograd's boxed convention
            boxed = args[0]
            args = tuple(boxed)
            boxed.clear()
        with torch.no_grad():
            if self.reads_host:
                return self._interpret(*args)
            key = signature(args)
            captured = self.captures.get(key)
            if captured is None:
                try:
                    captured = self.captures[key] = capture(self._interpret, args)
                except HostReadError as error:
                    return self._uncaptured(args, error)
            return captured(args)

    def _uncaptured(self, args: tuple[Any, ...], error: HostReadError) -> Any:
        """Run a graph with an operator that reads values on the host (a custom one: Dynamo cannot look into it)."""
        if forbidden.host_read:
            raise error
        self.reads_host = True
        why = str(error).split("\n\nWhile executing")[0]  # what follows is the interpreter's own account
        warnings.warn(f"a compiled graph runs uncompiled: {why}", HostReadWarning, stacklevel=3)
        return self._interpret(*args)

    def _interpret(self, *args: Any) -> Any:
        with torch.utils._python_dispatch._disable_current_modes():
            return torch.fx.Interpreter(self.graph).run(*args)


def _compile_graph(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    from torch._functorch.aot_autograd import make_boxed_func

    compiled = CompiledGraph(graph)
    return make_boxed_func(compiled)  # type: ignore[no-any-return]


def pjrt(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """Entry point of torch.compile(backend="pjrt"). Raises BadSettingError for an option it does not have."""
    _check(kwargs.get("mode"), kwargs.get("options") or {})
    _prepare()
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return aot_autograd(  # type: ignore[no-any-return]
        fw_compiler=_compile_graph,
        bw_compiler=_compile_graph,
        inference_compiler=_compile_graph,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )(graph, example_inputs)


@functools.cache
def _prepare() -> None:
    """What compiling needs and eager does not: control flow in captured graphs."""
    from torch_pjrt.compile import control_flow

    control_flow.register()


def _check(mode: str | None, options: dict[str, Any]) -> None:
    if mode is not None and mode not in MODES:
        raise BadSettingError(f"torch.compile has no mode {mode!r}", todo=f"Choose one of {', '.join(MODES)}.")
    for name in options:
        if name not in OPTIONS:
            raise BadSettingError(
                f'the backend "pjrt" has no option {name!r}',
                todo=f"It takes {', '.join(OPTIONS) or 'no options'}; settings are TORCH_PJRT_* variables.",
            )


def on_device(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether a graph works on our device: any input, parameter, or made tensor is there."""
    ours = torch._C._get_privateuse1_backend_name()
    tensors = [t for t in (*example_inputs, *graph.parameters(), *graph.buffers()) if isinstance(t, torch.Tensor)]
    if any(t.device.type == ours for t in tensors):
        return True
    return any(
        isinstance(v, torch.device) and v.type == ours or v == ours
        for node in graph.graph.nodes
        for v in node.kwargs.values()
    )
