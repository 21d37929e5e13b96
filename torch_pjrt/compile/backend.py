"""The torch.compile backend "pjrt": AOTAutograd splits the graph, each part becomes a CompiledGraph (graph.py).

Owns what is handed to AOTAutograd, and what must be set up before a graph can be captured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt.compile.options import Options, parse
from torch_pjrt.compile.present import compiling


def pjrt(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """Entry point of torch.compile(backend="pjrt"). Raises BadSettingError for a mode or an option that there is not."""
    options = parse(kwargs.get("mode"), kwargs.get("options"))
    prepare()
    with compiling(graph) as names:
        from torch_pjrt.compile import traces

        trace = functools.partial(_trace, graph, example_inputs, names=names, options=options)
        return traces.kept(graph, example_inputs, options, trace)


def _trace(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    wrap: Callable[[Callable[..., Any]], Any],
    done: set[str],
    *,
    names: Sequence[str],
    options: Options,
) -> Callable[..., Any]:
    """Run AOTAutograd, with compilers in the form that `wrap` gives them."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import default_partition

    from torch_pjrt.compile.partition import min_cut

    def compiler(kind: str) -> Any:
        return wrap(functools.partial(_compile, kind=kind, names=names, options=options, done=done))

    return aot_autograd(  # type: ignore[no-any-return]
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=min_cut if options.recompute else default_partition,
        keep_inference_input_mutations=True,
    )(graph, example_inputs)


def _compile(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    kind: str,
    names: Sequence[str],
    options: Options,
    done: set[str],
) -> Callable[..., Any]:
    """One graph of AOTAutograd; it is captured when it is first called."""
    from torch_pjrt.compile import foreign
    from torch_pjrt.compile.traces import Output

    foreign.register(graph)
    output = Output(graph, kind, names, options)
    done.add(kind)
    return output


@functools.cache
def prepare() -> None:
    """What compiling needs and eager does not: control flow and checkpoints in captured graphs."""
    from torch_pjrt.compile import control_flow, rng_states

    control_flow.register()
    rng_states.register()


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
