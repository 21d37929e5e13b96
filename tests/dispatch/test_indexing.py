"""x[indices] and x[indices] = values are refused when the call is made, with CPU torch's exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

REFUSED: dict[str, tuple[Any, Callable[[torch.Tensor, Callable[..., torch.Tensor]], Any]]] = {
    "values too long": (RuntimeError, lambda x, t: x.__setitem__(t([0, 2]), t([1.0, 2.0, 3.0]))),
    "values of too many dims": (RuntimeError, lambda x, t: x.index_put_((t([0]),), t([[[1.0]]]))),
    "values for a mask": (
        RuntimeError,
        lambda x, t: x.__setitem__(t([True, False, True]), t([[1.0, 2.0], [3.0, 4.0]])),
    ),
    "values for masks without True": (
        RuntimeError,
        lambda x, t: x.__setitem__((t([False, False, False]), t([False] * 4)), t([1.0, 2.0])),
    ),
    "indices that differ": (IndexError, lambda x, t: x[t([0, 1, 2]), t([0, 1])]),
    "written indices that differ": (IndexError, lambda x, t: x.__setitem__((t([0, 1, 2]), t([0, 1])), 1.0)),
    "index_reduce of another rank": (
        RuntimeError,
        lambda x, t: x[0, 0].clone().index_reduce(0, t([0, 0]), t([1.0, 2.0]), "amax"),
    ),
    "index_reduce of another size": (RuntimeError, lambda x, t: x.index_reduce(0, t([0]), t([[1.0, 2.0]]), "prod")),
    "mean of bools": (
        (RuntimeError, NotImplementedError),
        lambda x, t: (x > 0).scatter_reduce(0, t([[0]]), t([[True]]), "mean"),
    ),
    "a mask of another size": (IndexError, lambda x, t: x.__setitem__(t([True, False]), 1.0)),
    "a mask of another size in the second dim": (
        IndexError,
        lambda x, t: x.__setitem__((slice(None), t([True, False])), t([[1.0]])),
    ),
    "put of another size": (IndexError, lambda x, t: x.put(t([0, 1]), t([1.0]))),
    "index_select of two dims": (IndexError, lambda x, t: x.index_select(0, t([[1]]))),
    "index_add to a number": (RuntimeError, lambda x, t: x[0, 0].clone().index_add(0, t([0, 0]), t([1.0, 2.0]))),
    "indices of int16": (IndexError, lambda x, t: x[t([0], dtype=torch.int16)]),
    "written indices of int16": (IndexError, lambda x, t: x.__setitem__(t([0], dtype=torch.int16), 1.0)),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_refused_at_the_call(case: str, device: str) -> None:
    kind, call = REFUSED[case]

    def tensor(values: Any, **kwargs: Any) -> torch.Tensor:
        return torch.tensor(values, device=device, **kwargs)

    x = torch.arange(12.0, device=device).reshape(3, 4)
    before = x * 2
    with pytest.raises(kind):
        call(x, tensor)
    assert before.tolist() == torch.arange(0.0, 24.0, 2.0).reshape(3, 4).tolist()


TAKEN: dict[str, Callable[[torch.Tensor, Callable[..., torch.Tensor]], Any]] = {
    "a mask in the second dim": lambda x, t: x.__setitem__(
        (slice(None), t([True, False, True, True])), t([[7.0], [8.0], [9.0]])
    ),
    "apart": lambda x, t: x.reshape(3, 2, 2).__setitem__((t([0, 1]), slice(None), t([1, 0])), t([[7.0], [8.0]])),
    "a row for a mask": lambda x, t: x.__setitem__(t([True, False, True]), t([1.0, 2.0, 3.0, 4.0])),
    "None": lambda x, t: x.__setitem__((None, t([[0], [2]]), t([1, 3])), t([5.0, 6.0])),
}


@pytest.mark.parametrize("case", TAKEN)
def test_taken_as_on_the_cpu(case: str) -> None:
    found = []
    for device in ("cpu", "pjrt"):
        x = torch.arange(12.0, device=device).reshape(3, 4)
        TAKEN[case](x, lambda values, device=device: torch.tensor(values, device=device))
        found.append(x.cpu())
    assert torch.equal(*found)
