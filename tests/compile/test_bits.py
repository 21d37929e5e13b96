"""The conj and neg bits of operands and results of compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

CASES: dict[str, Callable[[Any], Any]] = {
    "result": lambda x: (x + 1).conj(),
    "result of a transform": lambda x: torch.fft.ifft(x.real, dim=0),
    "operand": lambda x: x * 2,
    "imaginary part": lambda x: (x + 1).conj().imag,
}


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_bits_are_worked_out(name: str, lazy: bool) -> None:
    torch._dynamo.reset()
    x = torch.complex(torch.arange(12.0).reshape(3, 4), torch.arange(1.0, 13).reshape(3, 4))
    made = [t.conj() if lazy else t for t in (x, x.to("pjrt"))]
    assert made[1].is_conj() == lazy
    want, got = CASES[name](made[0]), torch.compile(CASES[name])(made[1])
    torch.testing.assert_close(got.cpu(), want.resolve_conj().resolve_neg())
