"""Complex functions at infinities, NaN and both sides of their branch cuts, against CPU torch."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

FUNCTIONS = """
    abs acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10 log2 reciprocal rsqrt sin sinh sqrt tan tanh
""".split()
PARTS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -2.5, 0.7)


def points(dtype: torch.dtype) -> torch.Tensor:
    """Every pair of the parts."""
    pairs = torch.tensor(list(itertools.product(PARTS, PARTS)), dtype=torch.float64)
    return torch.view_as_complex(pairs).to(dtype)


def real(x: torch.Tensor) -> torch.Tensor:
    """The parts as real numbers."""
    return torch.view_as_real(x) if x.is_complex() else x


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_limits_and_cuts(dtype: torch.dtype) -> None:
    """Each function of every pair of parts: NaN, infinities and numbers in the same places, on the same side of a cut."""
    x = points(dtype)
    on_device = x.to("pjrt")
    found = {name: getattr(torch, name)(on_device) for name in FUNCTIONS}
    for name, result in found.items():
        expected = getattr(torch, name)(x)
        torch.testing.assert_close(
            real(result.cpu()), real(expected), equal_nan=True, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_quotients_and_powers() -> None:
    """Division by Smith's method, and powers of zero and infinity."""
    x = points(torch.complex64)
    others = [torch.full_like(x, value) for value in (2 + 0j, complex(0, math.inf), 0.5 - 3j)]
    for other in others:
        for combine in (torch.div, torch.Tensor.__rtruediv__):
            found = combine(x.to("pjrt"), other.to("pjrt")).cpu()
            torch.testing.assert_close(found, combine(x, other), equal_nan=True)
    for exponent in (-1, 0.5, -1.5, 2.5):
        found = (x.to("pjrt") ** exponent).cpu()
        torch.testing.assert_close(found, x**exponent, equal_nan=True, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolic_functions_of_large_numbers(name: str) -> None:
    """Within four units in the last place in float32 up to where they overflow."""
    x = torch.linspace(-88, 88, 2001)
    truth = getattr(torch, name)(x.double())
    found = getattr(torch, name)(x.to("pjrt")).cpu().double()
    assert ((found - truth).abs() <= 4 * 2**-23 * truth.abs()).all()


def test_products_without_weight() -> None:
    """alpha == 0 leaves out what the matrices hold, beta == 0 what the sum holds, as BLAS does; sampled_addmm keeps NaN."""
    shapes = {
        "addmm": ((2, 4), (2, 3), (3, 4)),
        "addmv": ((2,), (2, 3), (3,)),
        "addbmm": ((2, 4), (5, 2, 3), (5, 3, 4)),
    }
    for name, sizes in shapes.items():
        self, *operands = (torch.full(size, math.nan, device="pjrt") for size in sizes)
        zero = getattr(torch, name)(self, *operands, beta=0, alpha=0)
        assert (zero.cpu() == 0).all()
        kept = getattr(torch, name)(torch.ones_like(self), *operands, beta=3, alpha=0)
        assert (kept.cpu() == 3).all()
    sparse = torch.diag(torch.tensor([math.nan, 2.0])).to_sparse_csr()
    ones = torch.ones(2, 2)
    values = [
        torch.sparse.sampled_addmm(sparse.to(d), ones.to(d), ones.to(d), beta=0).values() for d in ("cpu", "pjrt")
    ]
    torch.testing.assert_close(values[1].cpu(), values[0], equal_nan=True)
