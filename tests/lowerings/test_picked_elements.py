"""Rows that give an element of their operand keep it as one buffer, so that what compares with the element finds it."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch

from torch_pjrt.ops.registry import load_rows


@pytest.mark.parametrize("name", ["amax", "amin", "aminmax", "max.dim", "argmin"])
def test_the_operand_of_a_pick_is_computed_once(name: str) -> None:
    dim = [1] if name in ("amax", "amin") else 1
    size = ((3,), np.dtype(np.float32))

    def texts(dtype: type) -> str:
        function = lambda x: load_rows()[f"aten::{name}" + ("" if "." in name else ".default")].fn(
            x, out=(size, size), dim=dim
        )  # noqa: E731
        return jax.jit(function).lower(jax.ShapeDtypeStruct((3, 5), dtype)).as_text()

    assert "optimization_barrier" in texts(np.float32)
    assert "optimization_barrier" not in texts(np.int32)


@pytest.mark.parametrize("order", [float("inf"), -float("inf")])
@pytest.mark.parametrize("shape, dim", [((3, 2, 1, 2), 0), ((7, 40), 1), ((3, 5), 0)])
def test_infinite_norms_of_complex_numbers_have_gradients(order: float, shape: tuple[int, ...], dim: int) -> None:
    torch.manual_seed(0)
    host = torch.randn(shape, dtype=torch.complex128, requires_grad=True)
    chip = host.detach().to("pjrt").requires_grad_()
    for x in (host, chip):
        torch.linalg.vector_norm(x, order, dim).sum().backward()
    torch.testing.assert_close(chip.grad.cpu(), host.grad)
