"""Convolutions whose kernel outweighs their windows: products with the kernel as it lies."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torch_pjrt.config import settings
from torch_pjrt.pjrt import compiler
from torch_pjrt.pjrt.client import chip

CASES = [
    {"padding": 1},
    {"stride": 2, "padding": 1},
    {"stride": (1, 3), "padding": (2, 0), "dilation": (2, 1)},
]


@pytest.mark.parametrize(
    ("options", "dtype"),
    [*((case, torch.float32) for case in CASES), (CASES[2], torch.bfloat16), (CASES[0], torch.complex64)],
    ids=str,
)
def test_wide_kernels(options: dict[str, object], dtype: torch.dtype) -> None:
    """Forward and both gradients equal the CPU's."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2, 24, 5, 6, generator=draw, dtype=dtype)
    w = torch.randn(80, 24, 3, 3, generator=draw, dtype=dtype) / 16
    results = []
    for device in ("cpu", "pjrt"):
        a, b = (t.detach().to(device).requires_grad_() for t in (x, w))
        y = F.conv2d(a, b, **options)  # type: ignore[arg-type]
        assert y.shape[0] * y[0, 0].numel() < len(w)
        (y * y.conj()).real.float().sum().backward()
        results.append([t.detach().cpu() for t in (y, a.grad, b.grad)])  # type: ignore[union-attr]
    tolerance = 5e-2 if dtype == torch.bfloat16 else 1e-4
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()))


def test_wide_kernels_are_not_transposed(hlo: list[str]) -> None:
    """No array of the kernel's size is copied or transposed, forward or backward."""
    conv = torch.nn.Conv2d(40, 96, 3, padding=1).to("pjrt")
    x = torch.randn(2, 40, 4, 4, device="pjrt", requires_grad=True)
    conv(x).sum().backward()
    torch.pjrt.synchronize()
    assert any("dot(" in text or "dot_general" in text for text in hlo)
    for text in hlo:
        moved = [m for m in re.findall(r"= f32\[([\d,]+)\]\S* (?:copy|transpose)\(", text) if size(m) >= 96 * 40 * 9]
        assert not moved, moved


def size(dims: str) -> int:
    """Elements of "2,3"."""
    return int(torch.tensor([int(d) for d in dims.split(",")]).prod())


def test_empty_convolutions_are_left_alone() -> None:
    assert F.conv2d(torch.ones(0, 2, 4, 4, device="pjrt"), torch.ones(9, 2, 3, 3, device="pjrt")).shape == (0, 9, 2, 2)


@pytest.mark.parametrize(("platform", "form", "channels"), [("cpu", "dot_general", 65), ("tpu", "convolution", 66)])
def test_the_form_follows_the_platform(platform: str, form: str, channels: int) -> None:
    """TPUs and GPUs need no such help."""
    torch.pjrt.synchronize()
    programs: list[Any] = []
    watch = lambda compiled: programs.append(compiled.program)
    compiler.watchers.append(watch)
    try:
        with settings.override(cache_dir="off"), torch.no_grad():
            F.conv2d(
                torch.ones(1, 8, 3, 3, device="pjrt"), torch.ones(channels, 8, 3, 3, device="pjrt"), padding=1
            ).cpu()
    finally:
        compiler.watchers.remove(watch)
    (program,) = [p for p in programs if any("convolution" in t.row.name for t, _ in p.steps)]
    text = compiler.lower(program, "highest", chip().device, platform=platform).as_text()
    assert [f for f in ("dot_general", "convolution") if f"stablehlo.{f}" in text] == [form]


@pytest.mark.parametrize("kernel", [(3,), (3, 3), (2, 3, 2)], ids=str)
def test_depthwise_convolution_of_parts_of_larger_tensors(kernel: tuple[int, ...]) -> None:
    def part(x: torch.Tensor) -> torch.Tensor:
        room = torch.zeros((x.shape[0] + 2, *x.shape[1:]), device="pjrt")
        room[1:-1] = x.to("pjrt")
        torch.pjrt.synchronize()  # so that one program has the rooms as its operands
        return room[1:-1]

    function = (torch.conv1d, torch.conv2d, torch.conv3d)[len(kernel) - 1]
    operands = torch.randn(2, 4, *(6 for _ in kernel)), torch.randn(4, 1, *kernel), torch.randn(4)
    got = function(*map(part, operands), groups=4)
    torch.testing.assert_close(got.cpu(), function(*operands, groups=4), rtol=1e-5, atol=1e-5)
