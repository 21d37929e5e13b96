"""PyTorch's own database of higher-order operators, eagerly and compiled as one graph on the device, against CPU torch.

Left out: operators that are of one vendor (inline assembly) or of a process group (local_map).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.hop_db import hop_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

LEFT_OUT = ("inline_asm_elementwise", "local_map_hop")
NOT_TRACED = ("invoke_quant", "register_hook")  # AOTAutograd's partitioner refuses the first, Dynamo lacks the second
ENTRIES = {
    f"{op.name}.{op.variant_test_name}": op for op in hop_db if op.name not in LEFT_OUT and "flex" not in op.name
}


@torch.library.impl("testlib::mutating_custom_op", "pjrt")
def _mutating(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The database gives this operator kernels for its own devices only."""
    x.add_(5)
    z.add_(5)
    return x.clone(), z.clone(), x + z


def outcome(op: OpInfo, sample: SampleInput, where: str, compiled: bool) -> Any:
    """Results and gradients, on the CPU."""

    def moved(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        return (
            t.detach().clone().to(where).requires_grad_(t.requires_grad)
        )  # a clone, since an operator may write to it

    given = torch.utils._pytree.tree_map(moved, (sample.input, sample.args, sample.kwargs))
    function = torch.compile(op.op, fullgraph=True) if compiled else op.op
    out = function(given[0], *given[1], **given[2])
    leaves = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
    if leaves:
        torch.stack([(t * t.detach().cos()).sum() for t in leaves]).sum().backward()
    grads = [t.grad for t in torch.utils._pytree.tree_leaves(given) if isinstance(t, torch.Tensor) and t.is_leaf]
    return torch.utils._pytree.tree_map(lambda t: t.detach().cpu() if isinstance(t, torch.Tensor) else t, (out, grads))


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", list(ENTRIES))
def test_entry(name: str, compiled: bool) -> None:
    op = ENTRIES[name]
    if compiled and op.name in NOT_TRACED:
        pytest.skip("torch makes no graph of it")
    torch.manual_seed(0)
    samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
    assert samples
    for sample in samples:
        expected = outcome(op, sample, "cpu", False)
        torch.testing.assert_close(outcome(op, sample, "pjrt", compiled), expected, rtol=1e-4, atol=1e-5)
    assert torch.pjrt.stats()["fallbacks"] == {}
