"""PyTorch's own databases of custom operators and autograd functions, eagerly and compiled on the device, against CPU torch.

Most of them compute in NumPy: what reads a value on the host runs as in eager, said once, and gives the same values.
"""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.opinfo.core import OpInfo

from tests.compile.entries import outcome

LEFT_OUT = ("NumpyExpMarkDirtyAutogradFunction",)  # writes to x.cpu().numpy(), which is x itself on the CPU only
ENTRIES: dict[str, OpInfo] = {op.name: op for op in (*custom_op_db, *autograd_function_db) if op.name not in LEFT_OUT}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::torch_pjrt.errors.HostReadWarning")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ENTRIES)
def test_entry(name: str, compiled: bool) -> None:
    op = ENTRIES[name]
    torch.manual_seed(0)
    samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
    assert samples
    for sample in samples:
        expected = outcome(op, sample, "cpu", False)
        found = outcome(op, sample, "pjrt", compiled, fullgraph=False)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert torch.pjrt.stats()["fallbacks"] == {}
