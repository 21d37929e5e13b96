"""Programs as users write them for CUDA, each a function of the device and of what compiles: what they give on the CPU, in
eager, is what they must give compiled on the device. test_programs.py runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Program:
    """A program, how far its floats may differ (as a part and absolutely), and whether every run of the tests has it."""

    run: Callable[[str, Callable[..., Any]], Any]
    rtol: float
    atol: float
    quick: bool


PROGRAMS: dict[str, Program] = {}


def program(*, rtol: float = 1e-4, atol: float = 1e-5, quick: bool = False) -> Callable[[Any], Any]:
    """Enter a function of (device, compile) into the table."""

    def enter(run: Any) -> Any:
        PROGRAMS[run.__name__] = Program(run, rtol, atol, quick)
        return run

    return enter


def normal(*shape: int, device: str = "cpu", seed: int = 0) -> torch.Tensor:
    """The same numbers on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def perceptron(device: str, seed: int = 0) -> nn.Sequential:
    """A small network from 8 to 4 features."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device)


def state(module: nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers."""
    return list(module.state_dict().values())


def gradients(module: nn.Module) -> list[Any]:
    """Of all parameters."""
    return [p.grad for p in module.parameters()]
