"""Strides of Fourier transforms are CPU torch's, whatever the dims and the strides of the operand."""

from __future__ import annotations

import itertools

import pytest
import torch

from torch_pjrt.ops.metadata import infer
from torch_pjrt.ops.registry import load_rows

SIZES = (3, 4, 5)
C2C, R2C, C2R = torch.ops.aten._fft_c2c.default, torch.ops.aten._fft_r2c.default, torch.ops.aten._fft_c2r.default


@pytest.mark.parametrize("order", itertools.permutations(range(3)), ids=str)
@pytest.mark.parametrize("dims", [d for n in (1, 2, 3) for d in itertools.permutations(range(3), n)], ids=str)
def test_strides_are_those_of_the_cpu(order: tuple[int, ...], dims: tuple[int, ...]) -> None:
    load_rows()
    x = torch.zeros([SIZES[d] for d in order]).permute([order.index(d) for d in range(3)])
    last = 2 * (x.shape[dims[-1]] - 1)
    for op, args in (
        (C2C, (x + 0j, list(dims), 0, True)),
        (R2C, (x, list(dims), 0, True)),
        (R2C, (x, list(dims), 0, False)),
        (C2R, (x + 0j, list(dims), 0, last)),
    ):
        want = op(*args)
        assert infer(op, args, {})[0] == [(tuple(want.shape), want.stride(), want.dtype)]
