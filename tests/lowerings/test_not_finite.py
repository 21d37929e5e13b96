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
