"""Custom operators of other libraries that the device computes in a way of its own, because theirs reads values on the host.

Such an operator is the library's name for something that it writes as a loop over sizes that it reads; in a graph that
would break what is captured. Each gets a kernel for the device when a graph that holds it is compiled. Called by backend.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _grouped_mm(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """[rows, k] in groups that end at offs, times [groups, k, n]; transformers takes it where Inductor has no kernel."""
    return torch._grouped_mm(input, weight, offs.to(torch.int32))


def _grouped_mm_backward(input: Tensor, weight: Tensor, offs: Tensor, grad_output: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of both."""
    ends = offs.to(torch.int32)
    grad_input = torch._grouped_mm(grad_output, weight.transpose(1, 2), ends)
    return grad_input, torch._grouped_mm(input.t(), grad_output, ends)


KERNELS: dict[str, Callable[..., Any]] = {
    "transformers::grouped_mm_fallback": _grouped_mm,
    "transformers::grouped_mm_fallback_backward": _grouped_mm_backward,
}
_registered: set[str] = set()


def register(graph: torch.fx.GraphModule) -> None:
    """Give the device its kernels of the custom operators in a graph."""
    from torch._library.custom_ops import OPDEFS

    for node in graph.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        name = f"{node.target.namespace}::{node.target._opname}"
        if name in KERNELS and name in OPDEFS and name not in _registered:
            _registered.add(name)
            OPDEFS[name].register_kernel(torch._C._get_privateuse1_backend_name())(KERNELS[name])
