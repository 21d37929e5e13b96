"""NaN, infinity and signed zero in products that XLA would simplify."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize(
    "convert", [lambda mask: mask, torch.Tensor.float, torch.Tensor.bfloat16], ids=["bool", "f32", "bf16"]
)
def test_product_with_a_mask(mode: str, convert: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """False is the number 0: times NaN and infinity it is NaN, and a negative number gives -0."""
    x = torch.tensor([math.inf, math.nan, -2.0, math.inf, 3.0])
    mask = torch.tensor([False, False, False, True, True])
    with torch.pjrt.eager_mode(mode):
        found = (x.to("pjrt") * convert(mask.to("pjrt"))).cpu()
    assert str(found.tolist()) == "[nan, nan, -0.0, inf, 3.0]"


def test_gradient_through_a_mask() -> None:
    """As in aminmax, whose gradient divides by the number of places that hold the extreme: of NaN there are none."""
    gradients = []
    for device in ("cpu", "pjrt"):
        x = torch.tensor([1.0, math.nan, 3.0], device=device, requires_grad=True)
        low, high = torch.aminmax(x)
        gradients.append(torch.autograd.grad(low + 2 * high, x)[0].cpu())
    assert torch.equal(*(g.isnan() for g in gradients))


def test_bessel_functions_of_the_largest_numbers() -> None:
    x = torch.tensor([1e20, torch.finfo(torch.float32).max])
    for function in (torch.special.scaled_modified_bessel_k0, torch.special.scaled_modified_bessel_k1):
        torch.testing.assert_close(function(x.to("pjrt")).cpu(), function(x))


@pytest.mark.parametrize("n", range(6))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_polygamma_at_its_limits(n: int, dtype: torch.dtype) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, -1.0, -2.0, 0.5, 1e6], dtype=dtype)
    torch.testing.assert_close(torch.polygamma(n, x.to("pjrt")).cpu(), torch.polygamma(n, x), equal_nan=True)


_ZEROS = torch.tensor([0.0, -0.0, -0.0, 0.0, -0.0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clamp(min=0.0),
        lambda x: x.clamp(max=-0.0),
        lambda x: x.clamp(-0.0, 0.0),
        lambda x: x.clamp_min(-0.0),
        lambda x: x.clamp_max(0.0),
        torch.nn.functional.relu6,
        lambda x: torch.nn.functional.hardtanh(x, -1.0, -0.0),
        lambda x: x.cummax(0).values,
        lambda x: x.cummin(0).values,
        lambda x: x[:, None].max(0).values,
        lambda x: x[1:].max(0).values,
        lambda x: x.min(0).values,
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_zero_keeps_its_sign(function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> None:
    """Where CPU torch gives back one of its operands: equal ones are not alike."""
    x = _ZEROS.to(dtype)
    assert str(function(x.to("pjrt")).tolist()) == str(function(x).tolist())


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, math.inf])
def test_distances_of_points_that_are_not_finite(p: float) -> None:
    """The two functions and their gradients, which for p = 0 and infinity do not agree with each other."""
    points = torch.tensor(
        [[math.nan, 0, 0], [math.inf, 0, 0], [-math.inf, 1, 0], [math.inf, -math.inf, math.nan], [0, 0, 0], [0, 0, 0]]
        + [[1.5, -2, 0.25], [math.nan, math.nan, math.nan], [math.inf, math.inf, math.inf]]
    )
    results = []
    for device in ("cpu", "pjrt"):
        x = points.to(device).requires_grad_()
        y = points[2:8].to(device).requires_grad_()
        between, within = torch.cdist(x, y, p=p), torch.pdist(x, p=p)
        gradients = torch.autograd.grad(between.sum(), [x, y]) + torch.autograd.grad(within.sum(), [x])
        results.append([t.detach().cpu() for t in (between, within, *gradients)])
    torch.testing.assert_close(results[1], results[0], equal_nan=True)


@pytest.mark.parametrize(
    "source", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fnuz], ids=str
)
def test_float8_e4m3fn_holds_what_is_too_large_at_its_largest_number(source: torch.dtype) -> None:
    """As torch's casts do; XLA's make NaN of it. Only NaN stays NaN."""
    x = torch.tensor([1.0, -3.5, 448.0, 449.0, 480.0, 3e4, math.inf, -math.inf, -500.0, math.nan, 2.0**-9]).to(source)
    want = x.to(torch.float8_e4m3fn).float()
    assert torch.equal(x.to("pjrt").to(torch.float8_e4m3fn).cpu().float().nan_to_num(999), want.nan_to_num(999))


def test_integers_and_copies_to_float8_e4m3fn() -> None:
    found = []
    for device in ("cpu", "pjrt"):
        x = torch.tensor([1, -7, 500, -(10**6)], device=device)
        target = torch.zeros(4, dtype=torch.float8_e4m3fn, device=device)
        target.copy_(x * 1.5)
        found.append(torch.cat([x.to(torch.float8_e4m3fn).float(), target.float()]).tolist())
    assert found[0] == found[1]
