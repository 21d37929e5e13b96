"""The judge of values: near the truth by CPU torch's own error, measured again nearby where one draw of it was small."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from conformance.accuracy import Different, compare
from conformance.operands import nudged

WANT = torch.tensor([1.0, 2.0])
TRUTH = WANT.double()


def judge(value: list[float], nearby: Any = None) -> None:
    compare(torch.tensor(value).to("pjrt"), WANT, lambda: TRUTH, nearby=nearby)


def test_own_error_of_other_draws_counts() -> None:
    lucky = [1.0, 2.002]
    with pytest.raises(Different):
        judge(lucky)
    with pytest.raises(Different):
        judge(lucky, lambda draw: (WANT + 1e-5, TRUTH))
    judge(lucky, lambda draw: (WANT + (1e-3 if draw == 2 else 0.0), TRUTH))


def test_wrong_is_wrong_nearby_too() -> None:
    def refuses(draw: int) -> Any:
        raise ValueError(draw)

    for nearby in (lambda draw: (WANT, TRUTH), lambda draw: (WANT + torch.nan, TRUTH), refuses):
        with pytest.raises(Different):
            judge([1.0, 2.5], nearby)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_nudged_operands_are_close_and_leave_the_given_alone(dtype: torch.dtype) -> None:
    x = torch.linspace(1, 2, 50).to(dtype).requires_grad_()
    index = torch.arange(3)
    before = x.detach().clone()
    args, kwargs = nudged(((x, index), {}), 0)
    moved = args[0]
    assert torch.equal(x.detach(), before) and torch.equal(args[1], index) and moved.requires_grad and not kwargs
    assert not torch.equal(moved, x)
    assert bool(((moved - x).abs() <= 2.5 * torch.finfo(dtype).eps * x.abs()).all())
    assert not torch.equal(moved, nudged(((x, index), {}), 1)[0][0])
