"""Relative accuracy where a function is small or a formula cancels, against float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F


def test_gelu_by_tanh_of_negative_numbers() -> None:
    """1 + tanh(u) loses every digit below -5; forward and gradient keep theirs."""
    x = torch.linspace(-9.0, 3.0, 2001)
    wide = x.double().requires_grad_()
    truth = wide * torch.sigmoid(math.sqrt(8 / math.pi) * (wide + 0.044715 * wide**3))
    slope = torch.autograd.grad(truth.sum(), wide)[0]
    given = x.to("pjrt").requires_grad_()
    found = F.gelu(given, approximate="tanh")
    found_slope = torch.autograd.grad(found.sum(), given)[0]
    torch.testing.assert_close(found.detach().cpu().double(), truth.detach(), rtol=2e-5, atol=0)
    away = (found_slope.cpu().double() - slope).abs()
    assert (away / slope.abs())[x < -2].max() < 2e-5
    assert away.max() < 1e-6


def test_gelu_by_tanh_at_its_ends() -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 1e20, -1e20, 1e13, -1e13, 0.0, -0.0])
    results = []
    for device in ("cpu", "pjrt"):
        given = x.to(device).requires_grad_()
        found = F.gelu(given, approximate="tanh")
        results.append(str([found.tolist(), torch.autograd.grad(found.sum(), given)[0].tolist()]))
    assert results[1] == results[0]


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 2e-5), (torch.float64, 2e-9)])
def test_incomplete_gamma_of_large_numbers(dtype: torch.dtype, digits: float) -> None:
    """Near the diagonal, where a series takes ever more terms. CPU torch is itself 7e-10 off in float64."""
    a = torch.tensor([12.0, 99.0, 200.0, 1e3, 1e4, 1e6], dtype=dtype)[:, None]
    x = a * torch.tensor([0.5, 0.9, 0.999, 1.0, 1.001, 1.2, 2.0], dtype=dtype)
    for function in (torch.igamma, torch.igammac):
        truth = function(a.double(), x.double())
        found = function(a.to("pjrt"), x.to("pjrt")).cpu().double()
        limit = digits * truth + 4 * (function(a, x).double() - truth).abs() + 1e-30
        inner = truth > 1e-6  # further out CPU torch is not exact enough to judge by
        assert ((found - truth).abs() <= limit)[inner].all(), ((found - truth).abs() / truth)[inner].max()
    wide = torch.tensor([1e8, 0.999e8], dtype=torch.float64, device="pjrt")
    deep = torch.igamma(wide[0], wide[1])
    assert abs(deep.item() / 7.36993106689699e-24 - 1) < 1e-5  # to 40 digits; CPU torch has 6.41e-24


def test_incomplete_gamma_at_its_limits() -> None:
    """A NaN beside an operand that alone decides is not seen, as on the CPU."""
    numbers = torch.tensor([0.0, 1.0, 20.0, 1e20, math.inf, math.nan, -1.0])
    a, x = torch.meshgrid(numbers, numbers, indexing="ij")
    for function in (torch.igamma, torch.igammac):
        torch.testing.assert_close(function(a.to("pjrt"), x.to("pjrt")).cpu(), function(a, x), equal_nan=True)
