"""Operators that torch's own formula or composite gets wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def _renormed(x: torch.Tensor, p: float, in_place: bool) -> torch.Tensor:
    return (x * 1).renorm_(p, 2, 0.5) if in_place else torch.renorm(x, p, 2, 0.5)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("p", [2.0, float("inf")])
def test_the_gradient_of_renorm_goes_through_the_norm(p: float, dtype: torch.dtype, in_place: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(4, 3, 5, dtype=dtype, generator=generator)
    found = []
    for device, kind in (("pjrt", dtype), ("cpu", torch.complex128 if dtype.is_complex else torch.float64)):
        x = given.to(device=device, dtype=kind).requires_grad_()
        y = _renormed(x, p, in_place)
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
        found += [y.detach().cpu().to(dtype), gradient.cpu().to(dtype)]
    torch.testing.assert_close(found[0], found[2])
    torch.testing.assert_close(found[1], found[3], rtol=1e-5, atol=1e-5)


def test_renorm_refuses_with_a_gradient_what_it_refuses_without() -> None:
    for wanted in (False, True):
        with pytest.raises(RuntimeError, match="at least 2 dim"):
            torch.renorm(torch.ones(3, device="pjrt", requires_grad=wanted), 2, 0, 1.0)


@pytest.mark.parametrize("transform", [torch.fft.ihfftn, torch.fft.ihfft2])
@pytest.mark.parametrize("dims", [(0,), (0, 2)])
def test_inverse_hermitian_transforms_write_their_output(transform: Any, dims: tuple[int, ...]) -> None:
    x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    want = transform(x, dim=dims)
    for out in (torch.empty(0, dtype=want.dtype, device="pjrt"), torch.zeros_like(want, device="pjrt")):
        assert transform(x.to("pjrt"), dim=dims, out=out) is out
        torch.testing.assert_close(out.cpu(), want)
