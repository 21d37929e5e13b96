"""Numbers that a dtype cannot hold are refused when they are written, as on the CPU; those that it rounds or wraps are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

NUMBERS = {
    torch.uint8: (300, -1, -256, 255, -2.5, 255.5),
    torch.int8: (127, 128, -128, -129, 2.5, float("nan")),
    torch.int64: (2**63 - 1, -(2**63), 1e30, float("inf"), 2j),
    torch.float16: (65504.0, 65520.0, -1e9, float("inf"), float("nan")),
    torch.bfloat16: (1e9, 3.5e38),
    torch.float32: (3.4e38, -1e300, 2j, float("-inf")),
    torch.complex64: (2j, 3.5e38),
    torch.bool: (2, 0.5),
}
WRITES: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "fill_": lambda x, number: x.fill_(number),
    "full": lambda x, number: torch.full((2,), number, dtype=x.dtype, device=x.device),
    "full_like": lambda x, number: torch.full_like(x, number),
    "new_full": lambda x, number: x.new_full((2,), number),
    "masked_fill": lambda x, number: x.masked_fill(torch.tensor([True, False], device=x.device), number),
    "masked_fill_": lambda x, number: x.masked_fill_(torch.tensor([True, False], device=x.device), number),
    "index_fill": lambda x, number: x.index_fill(0, torch.tensor([0], device=x.device), number),
    "x[0] =": lambda x, number: x.__setitem__(0, number),
}


def _accepts(write: str, device: str, dtype: torch.dtype, number: Any) -> bool:
    try:
        WRITES[write](torch.zeros(2, dtype=dtype, device=device), number)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("write", WRITES)
def test_accepted_as_on_the_cpu(write: str) -> None:
    cases = [(dtype, number) for dtype, numbers in NUMBERS.items() for number in numbers]
    assert [c for c in cases if _accepts(write, "cpu", *c) != _accepts(write, "pjrt", *c)] == []
