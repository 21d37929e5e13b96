"""Gradients of attention: in narrow dtypes, whose products some platforms run by other kernels, and what XLA fuses there."""

from __future__ import annotations

import re

import pytest
import torch
from torch.nn import functional as F


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_gradients(dtype: torch.dtype, kv_heads: int) -> None:
    torch.manual_seed(0)
    sizes = [(2, heads, 32, 16) for heads in (4, kv_heads, kv_heads)]
    exact = [torch.randn(size).to(dtype).double().requires_grad_() for size in sizes]
    ours = [x.detach().to(dtype).to("pjrt").requires_grad_() for x in exact]
    for q, k, v in (exact, ours):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != 4)
        y.square().sum().backward()
    for mine, truth in zip(ours, exact, strict=True):
        error = (mine.grad.cpu().double() - truth.grad).abs().max() / truth.grad.abs().max()
        assert error < 8 * torch.finfo(dtype).eps


def test_reductions_stay_apart(hlo: list[str]) -> None:
    """A reduction over a row that takes in what its result is used for makes all scores, at a fifth of the speed."""
    q, k, v = (torch.randn(4, 8, 128, 32, device="pjrt").requires_grad_() for _ in range(3))
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    assert q.grad.isfinite().all()
    bodies = re.findall(r"^%fused[^\n]*\{\n.*?^\}", "\n".join(hlo), re.MULTILINE | re.DOTALL)
    reducing = [body for body in bodies if " reduce(" in body]
    assert reducing
    for body in reducing:
        root = next(line for line in body.splitlines() if "ROOT" in line)
        assert "128,128]" not in root.split("=")[1].split("(")[0], body
