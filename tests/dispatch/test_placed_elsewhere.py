"""torch.ones_like(x, device=...) and its kin make a tensor on the device that is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

MAKERS: dict[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "empty_like": lambda x, device: torch.empty_like(x, device=device),
    "zeros_like": lambda x, device: torch.zeros_like(x, device=device),
    "ones_like": lambda x, device: torch.ones_like(x, device=device),
    "full_like": lambda x, device: torch.full_like(x, 2.0, device=device),
    "rand_like": lambda x, device: torch.rand_like(x, device=device),
    "randn_like": lambda x, device: torch.randn_like(x, device=device),
    "randint_like": lambda x, device: torch.randint_like(x, 5, device=device),
    "new_empty": lambda x, device: x.new_empty((2,), device=device),
    "new_zeros": lambda x, device: x.new_zeros((2,), device=device),
    "new_full": lambda x, device: x.new_full((2,), 1.0, device=device),
}


@pytest.mark.parametrize("name", MAKERS)
def test_made_on_the_device_that_is_asked_for(name: str) -> None:
    x = torch.ones(2, 3, device="pjrt").t()
    for device in ("cpu", "meta", "pjrt"):
        made = MAKERS[name](x, device)
        assert made.device.type == device
        if name in ("empty_like", "ones_like"):
            assert made.shape == x.shape and made.stride() == x.stride()
    assert torch.ones_like(x, device="cpu").tolist() == [[1.0, 1.0]] * 3
    assert torch.full_like(x, 2.0, device="cpu", dtype=torch.float64).sum().item() == 12
