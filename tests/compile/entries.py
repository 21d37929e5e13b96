"""Runs entries of PyTorch's operator databases, eagerly or compiled, for tests that compare devices."""

from __future__ import annotations

from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput


def outcome(op: OpInfo, sample: SampleInput, where: str, compiled: bool, *, fullgraph: bool = True) -> Any:
    """Results and gradients, on the CPU."""

    def moved(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        return (
            t.detach().clone().to(where).requires_grad_(t.requires_grad)
        )  # a clone, since an operator may write to it

    given = torch.utils._pytree.tree_map(moved, (sample.input, sample.args, sample.kwargs))
    function = torch.compile(op.op, fullgraph=fullgraph) if compiled else op.op
    out = function(given[0], *given[1], **given[2])
    leaves = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
    if leaves:
        torch.stack([(t * t.detach().cos()).sum() for t in leaves]).sum().backward()
    grads = [t.grad for t in torch.utils._pytree.tree_leaves(given) if isinstance(t, torch.Tensor) and t.is_leaf]
    return torch.utils._pytree.tree_map(lambda t: t.detach().cpu() if isinstance(t, torch.Tensor) else t, (out, grads))
