"""Open sizes in pooling, strides, resizing, recurrent cells, steps and windows: four sizes each against eager."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.export.sizes import Formulas

Shapes = list[tuple[int, ...]]
IMAGE, BATCH, WHOLE = (3, 3, 12, 12), {0: "batch"}, {0: "batch", 2: "height", 3: "width"}
BATCHES: Shapes = [(1, 3, 12, 12), (2, 3, 12, 12), (5, 3, 12, 12), (9, 3, 12, 12)]
IMAGES: Shapes = [(2, 3, 9, 12), (1, 3, 12, 10), (3, 3, 17, 8), (4, 3, 10, 31)]
TABLE, BOTH = (4, 6), {0: "rows", 1: "columns"}
TABLES: Shapes = [(2, 7), (5, 4), (9, 9), (3, 16)]
SEQUENCES: Shapes = [(2, 6, 3), (1, 6, 3), (7, 6, 3), (5, 6, 3)]


class Recurrent(nn.Module):
    """Batch first; the sequence."""

    def __init__(self, kind: str, **options: Any):
        super().__init__()
        self.cell = getattr(nn, kind)(3, 4, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x)[0]


class Block(nn.Module):
    """A residual block of ResNet, without its norms."""

    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.first, self.second = nn.Conv2d(inside, outside, 3, stride, 1), nn.Conv2d(outside, outside, 3, 1, 1)
        self.short = nn.Conv2d(inside, outside, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.short(x))


def resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 4, 7, 2, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)]
    return nn.Sequential(*stem, Block(4, 4, 1), Block(4, 6, 2), Block(6, 8, 2), *head).eval()


class Net(nn.Module):
    """Down by strides, up by interpolation to the size before, as segmentation nets do."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 2, 3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(self.down(x), size=x.shape[-2:], mode="bilinear") + x[:, :2]


Case = tuple[Callable[[], Any], tuple[int, ...], dict[int, str], Shapes]
QUICK: dict[str, Case] = {
    "lstm": (lambda: Recurrent("LSTM"), (4, 6, 3), BATCH, SEQUENCES),
    "max_pool2d": (lambda: lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE, WHOLE, IMAGES),
    "avg_pool2d": (lambda: lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE, WHOLE, IMAGES),
    "down_and_up": (Net, IMAGE, WHOLE, IMAGES),
    "step": (lambda: lambda x: x[::2] * 2, TABLE, BOTH, TABLES),
    "step_of_three": (lambda: lambda x: x[:, 1::3] + 1, TABLE, BOTH, TABLES),
    "unfold": (lambda: lambda x: x.unfold(1, 3, 2) * 2, TABLE, BOTH, TABLES),
}
SLOW: dict[str, Case] = {
    "resnet": (resnet, (2, 3, 40, 48), WHOLE, [(1, 3, 32, 32), (3, 3, 37, 50), (2, 3, 64, 41), (2, 3, 99, 35)]),
    "gru": (lambda: Recurrent("GRU"), (4, 6, 3), BATCH, SEQUENCES),
    "lstm_both_ways": (lambda: Recurrent("LSTM", bidirectional=True, num_layers=2), (4, 6, 3), BATCH, SEQUENCES),
    "max_pool2d_of_a_batch": (lambda: lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE, BATCH, BATCHES),
    "max_pool2d_ceil": (lambda: lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), IMAGE, WHOLE, IMAGES),
    "max_pool2d_indices": (
        lambda: lambda x: F.max_pool2d(x, 2, return_indices=True, dilation=2, padding=1)[1],
        IMAGE,
        WHOLE,
        IMAGES,
    ),
    "avg_pool2d_inside": (lambda: lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), IMAGE, WHOLE, IMAGES),
    "adaptive_avg_pool2d": (lambda: lambda x: F.adaptive_avg_pool2d(x, (5, 7)), IMAGE, WHOLE, IMAGES),
    "adaptive_max_pool2d": (lambda: lambda x: F.adaptive_max_pool2d(x, (5, 7)), IMAGE, BATCH, BATCHES),
    "strided_conv": (lambda: nn.Conv2d(3, 2, 3, 3), IMAGE, WHOLE, IMAGES),
    "nearest": (lambda: lambda x: F.interpolate(x, scale_factor=2), IMAGE, WHOLE, IMAGES),
    "nearest_exact": (lambda: lambda x: F.interpolate(x, scale_factor=3, mode="nearest-exact"), IMAGE, WHOLE, IMAGES),
    "bilinear": (lambda: lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), IMAGE, WHOLE, IMAGES),
    "bilinear_corners": (
        lambda: lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        IMAGE,
        WHOLE,
        IMAGES,
    ),
    "bicubic_of_a_batch": (
        lambda: lambda x: F.interpolate(x, size=(20, 7), mode="bicubic"),
        IMAGE,
        BATCH,
        BATCHES,
    ),
    "step_as_result": (lambda: lambda x: x[:, 1::3], TABLE, BOTH, TABLES),
    "overlapping_windows": (lambda: lambda x: x.unfold(1, 3, 1).sum(-1), TABLE, BOTH, TABLES),
    "meshgrid": (
        lambda: lambda x: torch.stack(torch.meshgrid(*map(torch.arange, x.shape), indexing="ij")),
        TABLE,
        BOTH,
        TABLES,
    ),
    "diagonal": (lambda: lambda x: (x @ x.mT).diagonal() * 2, TABLE, BOTH, TABLES),
    "points": (lambda: lambda x: x + torch.arange(x.shape[1]) / (x.shape[1] - 1), TABLE, BOTH, TABLES),
}


def check(case: Case, folder: pathlib.Path) -> None:
    make, example, dims, shapes = case
    torch.manual_seed(0)
    function = make()
    path = torch_pjrt.export(function, (torch.randn(example),), folder, dynamic_shapes=(dims,))
    program = torch_pjrt.load(path)
    for shape in shapes:
        x = torch.randn(shape)
        want = function(x)
        torch.testing.assert_close(program(x).cpu(), want.detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", QUICK)
def test_sizes(name: str, tmp_path: pathlib.Path) -> None:
    check(QUICK[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_sizes(name: str, tmp_path: pathlib.Path) -> None:
    check(SLOW[name], tmp_path)


@pytest.mark.parametrize(
    ("function", "dims", "message"),
    [
        (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), WHOLE, "upsample_bicubic2d cannot be lowered"),
        (lambda x: x[0, 0].diagonal() * 2, WHOLE, "has sizes without a formula"),
        (lambda x: x + torch.linspace(0, 1, x.shape[3]), WHOLE, "torch.export cannot record"),
    ],
)
def test_what_is_still_refused(function: Any, dims: dict[int, str], message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidOperandError, match=message) as caught:
        torch_pjrt.export(function, (torch.randn(IMAGE),), tmp_path, dynamic_shapes=(dims,))
    assert "dynamic_shapes" in str(caught.value)


def test_products_of_sizes_after_strides() -> None:
    h, w = (40, 42, 47, 43, 41, 50, 92, 125), (48, 55, 49, 57, 52, 50, 141, 106)
    formulas = Formulas([(h, 1001), (w, 601)])
    halves = [tuple((n - 1) // 2 + 1 for n in each) for each in (h, w)]
    assert [formulas.of(each) for each in halves] == [501, 301]
    assert formulas.of(tuple(5 * a * b for a, b in zip(*halves, strict=True))) == 5 * 501 * 301
    quarters = tuple((n - 1) // 2 + 1 for n in halves[1])
    assert formulas.of(quarters) == 151
    assert formulas.of(tuple(3 * n // 2 for n in h)) == 1501
