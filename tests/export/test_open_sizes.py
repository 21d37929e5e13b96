"""Open sizes in recurrent nets, pooling, strides, resizing, ranges, steps and windows: four sizes each against eager."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.export.formulas import Formulas, NoFormula

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "run_with_jax.py"
Shapes = list[tuple[int, ...]]
IMAGE, BATCH, WHOLE = (3, 3, 12, 12), {0: "batch"}, {0: "batch", 2: "height", 3: "width"}
BATCHES: Shapes = [(1, 3, 12, 12), (2, 3, 12, 12), (5, 3, 12, 12), (9, 3, 12, 12)]
IMAGES: Shapes = [(2, 3, 9, 12), (1, 3, 12, 10), (3, 3, 17, 8), (4, 3, 10, 31)]
TABLE, BOTH = (4, 6), {0: "rows", 1: "columns"}
TABLES: Shapes = [(2, 7), (5, 4), (9, 9), (3, 16)]
TIMES = {0: "batch", 1: "length"}
SEQUENCES: Shapes = [(1, 1, 3), (1, 9, 3), (7, 1, 3), (5, 13, 3)]


class Recurrent(nn.Module):
    """Batch first; the outputs and the last state."""

    def __init__(self, kind: str, **options: Any):
        super().__init__()
        self.cell = getattr(nn, kind)(3, 4, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> Any:
        return self.cell(x)


class Given(nn.Module):
    """Time first; an initial state that depends on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(3, 4)

    def forward(self, x: torch.Tensor) -> Any:
        first = x.new_ones(1, x.shape[1], 4)
        return self.cell(x, (first * x.mean(), first))


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


def byte_image(x: torch.Tensor) -> torch.Tensor:
    """Random numbers as an image of bytes."""
    return (x * 80 + 120).clamp(0, 255).to(torch.uint8)


Case = tuple[Callable[[], Any], tuple[int, ...], dict[int, str], Shapes]
QUICK: dict[str, Case] = {
    "lstm": (lambda: Recurrent("LSTM"), (4, 6, 3), TIMES, SEQUENCES),
    "gru": (lambda: Recurrent("GRU"), (4, 6, 3), TIMES, SEQUENCES),
    "bicubic": (lambda: lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), IMAGE, WHOLE, IMAGES),
    "linspace": (lambda: lambda x: x + torch.linspace(0, 1, x.shape[1]), TABLE, BOTH, TABLES),
    "diagonal_of_a_rectangle": (lambda: lambda x: x.diagonal(1) * 2, TABLE, BOTH, TABLES),
    "max_pool2d": (lambda: lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE, WHOLE, IMAGES),
    "avg_pool2d": (lambda: lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE, WHOLE, IMAGES),
    "down_and_up": (Net, IMAGE, WHOLE, IMAGES),
    "step": (lambda: lambda x: x[::2] * 2, TABLE, BOTH, TABLES),
    "step_of_three": (lambda: lambda x: x[:, 1::3] + 1, TABLE, BOTH, TABLES),
    "unfold": (lambda: lambda x: x.unfold(1, 3, 2) * 2, TABLE, BOTH, TABLES),
}
SLOW: dict[str, Case] = {
    "resnet": (resnet, (2, 3, 40, 48), WHOLE, [(1, 3, 32, 32), (3, 3, 37, 50), (2, 3, 64, 41), (2, 3, 99, 35)]),
    "lstm_both_ways": (lambda: Recurrent("LSTM", bidirectional=True, num_layers=2), (4, 6, 3), TIMES, SEQUENCES),
    "lstm_projected": (
        lambda: Recurrent("LSTM", bidirectional=True, num_layers=2, proj_size=2),
        (4, 6, 3),
        TIMES,
        SEQUENCES,
    ),
    "lstm_with_a_state": (Given, (4, 6, 3), TIMES, SEQUENCES),
    "gru_without_biases": (
        lambda: Recurrent("GRU", bidirectional=True, num_layers=2, bias=False),
        (4, 6, 3),
        TIMES,
        SEQUENCES,
    ),
    "rnn": (lambda: Recurrent("RNN"), (4, 6, 3), TIMES, SEQUENCES),
    "rnn_relu": (lambda: Recurrent("RNN", nonlinearity="relu", num_layers=2), (4, 6, 3), TIMES, SEQUENCES),
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
    "adaptive_max_pool2d": (
        lambda: lambda x: F.adaptive_max_pool2d(x, (5, 7), return_indices=True),
        IMAGE,
        WHOLE,
        IMAGES,
    ),
    "adaptive_avg_pool2d_to_half": (
        lambda: lambda x: F.adaptive_avg_pool2d(x, (x.shape[2] // 2, 3)),
        IMAGE,
        WHOLE,
        IMAGES,
    ),
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
    "bicubic_corners": (
        lambda: lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic", align_corners=True),
        IMAGE,
        WHOLE,
        IMAGES,
    ),
    "antialiased_bilinear": (
        lambda: lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
        IMAGE,
        WHOLE,
        IMAGES,
    ),
    "antialiased_bicubic": (
        lambda: lambda x: F.interpolate(x, size=(7, 20), mode="bicubic", antialias=True),
        IMAGE,
        WHOLE,
        IMAGES,
    ),
    "bytes": (
        lambda: lambda x: F.interpolate(byte_image(x), scale_factor=2, mode="bilinear"),
        IMAGE,
        WHOLE,
        IMAGES,
    ),
    "antialiased_bytes": (
        lambda: lambda x: F.interpolate(byte_image(x), size=(7, 20), mode="bicubic", antialias=True),
        IMAGE,
        WHOLE,
        IMAGES,
    ),
    "logspace": (lambda: lambda x: x + torch.logspace(0, 1, x.shape[1], base=3.0), TABLE, BOTH, TABLES),
    "linspace_to_a_size": (
        lambda: lambda x: x + torch.linspace(0.5, x.shape[1] - 0.5, x.shape[1]),
        TABLE,
        BOTH,
        TABLES,
    ),
    "linspace_between_tensors": (
        lambda: lambda x: x + torch.linspace(x.min(), x.max(), x.shape[1]),
        TABLE,
        BOTH,
        TABLES,
    ),
    "linspace_of_integers": (
        lambda: lambda x: torch.linspace(-7, 100, x.shape[1], dtype=torch.int64),
        TABLE,
        BOTH,
        TABLES,
    ),
    "range_downwards": (lambda: lambda x: x + torch.arange(x.shape[1] - 1, -1, -1), TABLE, BOTH, TABLES),
    "range_below_zero": (lambda: lambda x: x + torch.arange(1 - x.shape[1], 1), TABLE, BOTH, TABLES),
    "range_of_halves": (lambda: lambda x: x + torch.arange(0.5, x.shape[1] + 0.5), TABLE, BOTH, TABLES),
    "diagonal_scatter": (
        lambda: lambda x: torch.diagonal_scatter(x, x.new_zeros(min(x.shape))),
        TABLE,
        BOTH,
        TABLES,
    ),
    "diagonal_far_from_the_example": (lambda: lambda x: x.diagonal() * 2, (4, 300), BOTH, [(300, 4), *TABLES]),
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
        with torch.no_grad():
            want = function(x)
        torch.testing.assert_close(_on_cpu(program(x)), want, atol=1e-5, rtol=1e-5)


def _on_cpu(result: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda t: t.cpu(), result)


@pytest.mark.parametrize("name", QUICK)
def test_sizes(name: str, tmp_path: pathlib.Path) -> None:
    check(QUICK[name], tmp_path)


@pytest.mark.slow
def test_jax_alone_runs_a_recurrent_net_of_any_length(tmp_path: pathlib.Path) -> None:
    net = Recurrent("LSTM", num_layers=2)
    folder = torch_pjrt.export(net, (torch.randn(4, 6, 3),), tmp_path, dynamic_shapes=(TIMES,))
    code = "import sys; sys.modules['torch'] = sys.modules['torch_pjrt'] = None; "
    code += f"sys.argv = ['run', {str(folder)!r}, 'batch=3', 'length=11']; exec(open({str(SCRIPT)!r}).read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    want = net(torch.ones(3, 11, 3))[0].abs().sum().item()
    assert abs(float(done.stdout.splitlines()[0].split()[-1]) - want) < 1e-4 * want


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_sizes(name: str, tmp_path: pathlib.Path) -> None:
    check(SLOW[name], tmp_path)


@pytest.mark.parametrize(
    ("function", "dims", "message"),
    [
        (lambda x: torch.linalg.svdvals(x[0, 0]), WHOLE, "cannot be lowered"),
        (
            lambda x: F.adaptive_max_pool2d(x, (x.shape[2] // 2, 3)),
            WHOLE,
            "decides something by a size that is to stay open",
        ),
        (lambda x: x[0, 0].diagonal(), {2: torch.export.Dim("height", max=8), 3: "width"}, "do not show all sides"),
    ],
)
def test_what_is_still_refused(function: Any, dims: dict[int, str], message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidOperandError, match=message) as caught:
        torch_pjrt.export(function, (torch.randn(2, 1, 6, 12),), tmp_path, dynamic_shapes=(dims,))
    assert any(words in str(caught.value) for words in ("dynamic_shapes", "Give an example"))


def test_products_of_sizes_after_strides() -> None:
    h, w = (40, 42, 47, 43, 41, 50, 92, 125), (48, 55, 49, 57, 52, 50, 141, 106)
    formulas = Formulas([(h, 1001), (w, 601)])
    halves = [tuple((n - 1) // 2 + 1 for n in each) for each in (h, w)]
    assert [formulas.of(each) for each in halves] == [501, 301]
    assert formulas.of(tuple(5 * a * b for a, b in zip(*halves, strict=True))) == 5 * 501 * 301
    quarters = tuple((n - 1) // 2 + 1 for n in halves[1])
    assert formulas.of(quarters) == 151
    assert formulas.of(tuple(3 * n // 2 for n in h)) == 1501


def test_the_smaller_of_two_sizes() -> None:
    rows, columns = (4, 5, 7, 8, 11, 13, 58, 124), (6, 11, 8, 17, 7, 14, 44, 107)
    formulas = Formulas([(rows, 1000), (columns, 30)])
    assert formulas.of(tuple(min(a, b - 1) for a, b in zip(rows, columns, strict=True))) == 29
    larger = tuple(max(a + 2, b) for a, b in zip(rows, columns, strict=True))
    assert formulas.of(larger) == 1002
    assert formulas.of(tuple(5 * n for n in larger)) == 5 * 1002
    assert formulas.of(tuple(min(a, 9) for a in rows)) == 9
    with pytest.raises(NoFormula):  # one sample alone shows no second side
        formulas.of((*rows[:-1], 90))


def test_sizes_after_many_strides_are_no_extremes() -> None:
    h, w = (64, 65, 67, 68, 71, 73, 124, 190), (72, 77, 74, 83, 73, 80, 110, 173)
    formulas = Formulas([(h, 1001), (w, 601)])
    sizes, want = [h, w], [1001, 601]
    for _ in range(5):
        sizes = [tuple(-(-n // 2) for n in each) for each in sizes]
        want = [-(-n // 2) for n in want]
        assert [formulas.of(each) for each in sizes] == want
