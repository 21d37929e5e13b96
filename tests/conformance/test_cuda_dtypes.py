"""Dtypes that CUDA torch takes and CPU torch refuses: a program that comes from CUDA keeps them."""

from __future__ import annotations

import itertools

import pytest
import torch

from conformance.nodes import entries


def _of_cuda_alone() -> list[tuple[str, torch.dtype]]:
    left_out = {torch.float16, torch.bfloat16, torch.complex32}
    return [(name, d) for name, info in entries().items() for d in set(info.dtypesIfCUDA) - set(info.dtypes) - left_out]


@pytest.mark.parametrize("name, dtype", _of_cuda_alone())
def test_what_cuda_takes_besides_is_taken(name: str, dtype: torch.dtype) -> None:
    info = entries()[name]
    for sample in itertools.islice(info.sample_inputs("pjrt", dtype), 2):
        with torch.no_grad():
            info(sample.input, *sample.args, **sample.kwargs)
    torch.pjrt.synchronize()


def test_values_that_only_cuda_has() -> None:
    bools = torch.tensor([[True, False], [True, True]], device="pjrt")
    assert bools.abs().tolist() == bools.tolist()
    assert bools.trace().item() == 2
    assert torch.histc(torch.tensor([1, 2, 2, 5], device="pjrt"), 3, 0, 6).tolist() == [1, 2, 1]
    parts = torch.tensor([complex("1+2j"), complex("nan+1j"), complex("1+nanj")], device="pjrt")
    assert parts.nansum().item() == 1 + 2j
