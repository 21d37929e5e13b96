"""Type promotion against torch.result_type, over all pairs of dtypes and ranks."""

from __future__ import annotations

import itertools

import pytest
import torch

from torch_pjrt.ops.dtypes import common_dtype

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
NUMBERS = (True, 3, 2.5, 1 + 2j)


def agree(*operands: torch.Tensor | complex) -> bool:
    """Whether torch says the same; complex32 aside, which the device refuses since XLA has none."""
    want = torch.result_type(*operands)
    return want is torch.complex32 or common_dtype(list(operands)) is want


@pytest.fixture(params=[torch.float32, torch.float64, torch.bfloat16], ids=str)
def default(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """Each default dtype, put back afterwards."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


@pytest.mark.parametrize("ranks", list(itertools.product((0, 1), repeat=2)))
def test_pairs_of_tensors(default: torch.dtype, ranks: tuple[int, int]) -> None:
    for a, b in itertools.product(DTYPES, DTYPES):
        x, y = torch.ones((2,) * ranks[0], dtype=a), torch.ones((2,) * ranks[1], dtype=b)
        assert agree(x, y), (a, b, ranks)


@pytest.mark.parametrize("rank", [0, 1])
def test_tensors_and_numbers(default: torch.dtype, rank: int) -> None:
    for dtype, number in itertools.product(DTYPES, NUMBERS):
        x = torch.ones((2,) * rank, dtype=dtype)
        assert agree(x, number), (dtype, number)
        assert agree(number, x), (dtype, number)
