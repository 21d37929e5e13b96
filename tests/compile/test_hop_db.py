"""PyTorch's own database of higher-order operators, eagerly and compiled as one graph on the device, against CPU torch.

Left out: operators that are of one vendor (inline assembly) or of a process group (local_map).
"""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.hop_db import hop_db

from tests.compile.entries import outcome

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
