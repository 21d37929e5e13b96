"""Writes to memory that an operand shares: refused where CPU torch refuses them, and done where it does them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

PLACES = [0, 1, 2]
PAIRS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "shifted": lambda x: (x[1:4], x[:3]),
    "transposed": lambda x: (x.view(4, 4), x.view(4, 4).t()),
    "row": lambda x: (x.view(4, 4), x.view(4, 4)[1]),
    "number": lambda x: (x, x[2]),
    "same": lambda x: (x[:3], x[:3]),
    "apart": lambda x: (x[:3], x[3:6]),
    "gaps": lambda x: (x[:9:2], x[1:10:2]),
    "bits": lambda x: (x.view(torch.int32)[:3], x.view(torch.int32)[1:4]),
}
WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add_": lambda x, y: x.add_(y),
    "mul_": lambda x, y: x.mul_(other=y),
    "floor_divide_": lambda x, y: x.floor_divide_(y),
    "lt_": lambda x, y: x.lt_(y),
    "addcmul_": lambda x, y: x.addcmul_(torch.ones_like(x), y),
    "copy_": lambda x, y: x.copy_(y),
    "fill_": lambda x, y: x.fill_(y),
    "masked_fill_": lambda x, y: x.masked_fill_(torch.ones_like(x, dtype=torch.bool), y),
    "scatter_": lambda x, y: x.scatter_(0, torch.tensor(PLACES, device=x.device), y),
    "index_add_": lambda x, y: x.index_add_(0, torch.tensor(PLACES, device=x.device), y),
    "index_put_": lambda x, y: x.index_put_((torch.tensor(PLACES, device=x.device),), y),
    "gather out=": lambda x, y: torch.gather(y, 0, torch.zeros_like(x, dtype=torch.int64), out=x),
    "add out=": lambda x, y: torch.add(y, 1, out=x),
}


def _outcome(device: str, write: str, pair: str) -> Any:
    base = torch.arange(16.0).add(1).to(device)
    try:
        WRITES[write](*PAIRS[pair](base))
    except (IndexError, RuntimeError) as error:
        return "refused" if "single memory location" in str(error) else "error"
    return base.cpu().tolist()


@pytest.mark.parametrize("write", WRITES)
def test_shared_memory_is_refused_as_on_the_cpu(write: str) -> None:
    found = {pair: [_outcome(device, write, pair) for device in ("cpu", "pjrt")] for pair in PAIRS}
    assert not {pair: both for pair, both in found.items() if both[0] != both[1]}


def test_an_output_with_gaps_may_share_memory() -> None:
    found = []
    for device in ("cpu", "pjrt"):
        x = torch.arange(24.0, device=device).reshape(6, 4)
        torch.gather(x, 0, torch.tensor([[0], [1], [2]], device=device), out=x[:3, :1])
        found.append(x.cpu())
    assert torch.equal(*found)
