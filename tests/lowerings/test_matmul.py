"""Matrix products of narrow floats, in the forms that compilers treat by themselves."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_batches_of_transposed_matrices(batch: int, dtype: torch.dtype) -> None:
    """A batch of one, too: XLA on the CPU has no kernel for what it makes of it."""
    left, right = (torch.arange(batch * 8 * n).reshape(batch, 8, n).remainder(7).sub(3).to(dtype) for n in (3, 4))
    found = torch.bmm(left.to("pjrt").mT, right.to("pjrt"))
    assert torch.equal(found.cpu(), torch.bmm(left.mT, right))


def test_attention_of_one_head() -> None:
    """Forward and backward of one sample and one head in bfloat16."""
    operands = [torch.arange(48).reshape(1, 1, 6, 8).add(i).sin().bfloat16() for i in range(3)]
    found = []
    for device in ("cpu", "pjrt"):
        leaves = [x.to(device).requires_grad_() for x in operands]
        out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
        found.append([out, *torch.autograd.grad(out.float().square().sum(), leaves)])
    for want, got in zip(*found, strict=True):
        assert torch.allclose(got.detach().cpu().float(), want.detach().float(), rtol=3e-2, atol=3e-2)


def test_scaled_products_saturate_where_there_is_no_infinity() -> None:
    a, b = (torch.arange(256.0).reshape(16, 16).sub(100).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones(())
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        want, got = (
            torch._scaled_mm(a.to(d), b.to(d).t(), one.to(d), one.to(d), out_dtype=dtype) for d in ("cpu", "pjrt")
        )
        assert torch.equal(got.cpu().float(), want.float())
