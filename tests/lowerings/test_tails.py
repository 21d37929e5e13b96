"""Relative accuracy where a function is small or a formula cancels, against float64."""

from __future__ import annotations

import math

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
