"""Random programs of views, writes into parts and arithmetic, fused into few executables: exactly what CPU torch computes.

Values stay small whole numbers, so that nothing is rounded and one misplaced element shows. test_chains.py reads after
every step; here whatever is pending is computed at once, often with the tensors in between gone, as XLA likes to fuse it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torch_pjrt.ops.registry import load_rows

Pick = Callable[[int], int]
SIZES = (1, 1, 2, 3, 4, 5, 8)
BINARY = (torch.add, torch.sub, torch.maximum, lambda x, y: torch.where(x > y, x, -y), torch.mul)


class Machine:
    """Tensors of one device, and steps on them that `pick` chooses."""

    def __init__(self, pick: Pick, device: str):
        self.pick, self.device = pick, device
        self.tensors = [self.fresh() for _ in range(1 + pick(3))]

    def any(self) -> torch.Tensor:
        return self.tensors[self.pick(len(self.tensors))]

    def dim(self, x: torch.Tensor) -> int:
        return self.pick(x.dim()) if x.dim() else 0

    def fresh(self) -> torch.Tensor:
        shape = [SIZES[self.pick(len(SIZES))] for _ in range(1 + self.pick(4))]
        x = torch.arange(torch.Size(shape).numel()) * (3 + 2 * self.pick(5)) % 23 - 11
        return x.to(torch.float32).reshape(shape).to(self.device)

    def like(self, shape: torch.Size | tuple[int, ...]) -> torch.Tensor:
        """Elements of some tensor in this shape, from where they lie if that can be."""
        x, n = self.any(), torch.Size(shape).numel()
        if x.dim() == len(shape) and all(a >= b for a, b in zip(x.shape, shape, strict=True)) and self.pick(4):
            for d, b in enumerate(shape):
                x = x.narrow(d, self.pick(x.shape[d] - b + 1), b)
            return x
        flat = x.reshape(-1)
        if x.numel() < n:
            flat = flat.repeat(-(-n // x.numel()))
        start = self.pick(flat.numel() - n + 1)
        return flat[start : start + n].view(shape)

    def view(self) -> torch.Tensor:
        x = self.any()
        d, way = self.dim(x), self.pick(9)
        if x.dim() == 0:
            return x[None]
        n = x.shape[d]
        if way <= 2:
            size = 1 + self.pick(n)
            return x.narrow(d, self.pick(n - size + 1), size)
        if way == 3:
            return x.select(d, self.pick(n))
        if way == 4:
            return x.transpose(d, self.pick(x.dim()))
        if way == 5 and x.dim() < 4:
            return x.unsqueeze(d)
        if way == 6 and x.is_contiguous():
            return x.view(-1) if self.pick(2) else x.view(*x.shape[:d], -1)
        if way == 7 and n > 2:
            return x[(slice(None),) * d + (slice(self.pick(2), None, 2),)]
        return x.diagonal() if way == 8 and x.dim() > 1 else x.squeeze()

    def taps(self, x: torch.Tensor) -> torch.Tensor:
        """A depthwise convolution's sum, spelled out."""
        places, rest = min(3, x.shape[-1]), (1,) * (x.dim() - 1)
        size = x.shape[-1] - places + 1
        kernel, bias = self.like((x.shape[0], places)), self.like((x.shape[0],))
        seen = [x[..., i : i + size] * kernel[:, i].reshape(-1, *rest) for i in range(places)]
        return torch.stack(seen).sum(0) + bias.reshape(-1, *rest)

    def depthwise(self, x: torch.Tensor) -> torch.Tensor:
        kernel = [min(3, n) for n in x.shape[2:]]
        weight, bias = self.like((x.shape[1], 1, *kernel)), self.like((x.shape[1],))
        return (F.conv1d, F.conv2d)[x.dim() - 3](x, weight, bias, groups=x.shape[1])

    def value(self) -> torch.Tensor:
        x = self.any()
        d, way = self.dim(x), self.pick(14)
        if way < len(BINARY):
            return BINARY[way](x, self.like(x.shape))
        if way == 5 or x.dim() == 0:
            return x.clone()
        if way == 6:
            return x.sum(d, keepdim=bool(self.pick(2)))
        if way == 7:
            return x.amax(d)
        if way == 8:
            return x.roll(1 + self.pick(3), d)
        if way == 9:
            return x.flip(d)
        if way == 10:
            return torch.cat([x, self.like(x.shape)], d)
        if way == 11:
            return x.cumsum(d)
        if way == 12 and x.dim() in (3, 4):
            return self.depthwise(x)
        return self.taps(x) if x.dim() > 1 else x * 2

    def write(self) -> None:
        x, way = self.any(), self.pick(9)
        if way == 0:
            x.mul_(-1).add_(1)
        elif way == 1:
            x.fill_(2)
        elif way < 5:
            x.copy_(self.like(x.shape).clone())
        elif way == 5:
            x.copy_(self.like(x.shape) * 2)
        elif way == 6 or x.dim() == 0:
            x.add_(self.like(x.shape).clone())
        elif way == 7:
            order = torch.arange(x.shape[0] - 1, -1, -1, device=self.device)
            x.index_copy_(0, order, self.like(x.shape).clone())
        else:
            size = 1 + self.pick(x.shape[0])
            part = self.like((size, *x.shape[1:]))
            self.tensors.append(x.slice_scatter(part, 0, x.shape[0] - size))

    def step(self) -> None:
        way = self.pick(10)
        if way < 3:
            self.tensors.append(self.view())
        elif way < 6:
            self.tensors.append(self.value().remainder(13))
        elif way < 9:
            self.write()
        elif len(self.tensors) > 2:
            del self.tensors[self.pick(len(self.tensors))]

    def run(self, steps: int, flush: int | None) -> list[torch.Tensor]:
        for i in range(steps):
            self.step()
            if i == flush and self.device == "pjrt":
                torch.pjrt.synchronize()
        return self.tensors


def run_program(data: Any) -> None:
    """One program, on both sides."""
    steps, flush = data.draw(st.integers(3, 9)), data.draw(st.none() | st.integers(0, 8))
    picked: list[int] = []

    def pick(n: int) -> int:
        picked.append(data.draw(st.integers(0, n - 1)))
        return picked[-1]

    want = Machine(pick, "cpu").run(steps, flush)
    again = iter(picked)
    got = Machine(lambda n: next(again), "pjrt").run(steps, flush)
    for w, g in zip(want, got, strict=True):
        torch.testing.assert_close(g.cpu(), w, rtol=0, atol=0)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_program_agrees_with_cpu(data: Any) -> None:
    run_program(data)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_thousands_of_programs_agree_with_cpu(data: Any) -> None:
    run_program(data)


def _sum_with_the_one_before(x: torch.Tensor) -> None:
    x[1:] += x[:-1].clone()


def _back_and_forth(x: torch.Tensor) -> None:
    x[1:] = x[:-1].clone()
    x[:-1] = x[1:].clone()
    x.view(-1)[2:] = x.view(-1)[:-2].clone()


@pytest.mark.parametrize("shape", [(4, 1, 1), (4, 2, 1), (5, 3)], ids=str)
@pytest.mark.parametrize("change", [_sum_with_the_one_before, _back_and_forth])
def test_parts_of_one_tensor_written_from_each_other(
    change: Callable[[torch.Tensor], None], shape: tuple[int, ...]
) -> None:
    want = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    got = want.to("pjrt")
    change(want)
    change(got)
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0)


def test_no_row_is_called_like_an_instruction_of_xla() -> None:
    hyphened = (
        "bitcast-convert count-leading-zeros dynamic-reshape dynamic-slice dynamic-update-slice exponential-minus-one "
        "is-finite log-plus-one reduce-precision reduce-window rng-bit-generator round-nearest-even select-and-scatter "
        "shift-left shift-right-arithmetic shift-right-logical stochastic-convert"
    )
    functions = [re.sub(r"[.-]", "_", name) for name in (*{r.title for r in load_rows().values()}, *hyphened.split())]
    assert len(functions) == len(set(functions)), "XLA's fusion emitters would make one function of two instructions"
