"""What torch.compile needs to know of the device: which backend serves it, and that its kernels are not to be traced.

Graphs on our device that torch.compile would give to Inductor come to our backend; all other graphs go on to Inductor.
torch.compile itself stays as it is: the objects that it makes for its backends are asked, per graph, where the graph's
tensors are. torch has no registration for a device's default backend; this stands in for one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_applied = False


def apply() -> None:
    """Install once. Does nothing on a torch that makes its backends otherwise."""
    global _applied
    if _applied:
        return
    _applied = True
    for name, ours in (("_TorchCompileInductorWrapper", True), ("_TorchCompileWrapper", False)):
        wrapper = getattr(torch, name, None)
        if wrapper is not None:
            wrapper.__call__ = _asking(wrapper.__call__, ours)


def _asking(original: Callable[..., Any], is_default: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, graph: Any, inputs: Any, **kwargs: Any) -> Any:
        leave_kernels_alone()
        if is_default:
            from torch_pjrt.compile.backend import on_device, pjrt

            if on_device(graph, inputs):
                return pjrt(graph, inputs)
        return original(self, graph, inputs, **kwargs)

    return call


@functools.cache
def leave_kernels_alone() -> None:
    """Keep Dynamo out of this package: after a graph break it would trace the kernels that eager ops run."""
    from torch._dynamo import trace_rules

    trace_rules.add("torch_pjrt")
