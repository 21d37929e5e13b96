"""Results of convolutions, and what follows them, keep the memory format that CPU torch gives: eager and compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torch_pjrt.ops.metadata import infer
from torch_pjrt.ops.registry import load_rows


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """x with its channels innermost, of any number of spatial dims."""
    order = (0, *range(2, x.dim()), 1)
    return x.permute(order).contiguous().permute(0, -1, *range(1, x.dim() - 1))


@pytest.mark.parametrize("input_last", [False, True])
@pytest.mark.parametrize("weight_last", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_strides_of_convolutions(dtype: torch.dtype, transposed: bool, weight_last: bool, input_last: bool) -> None:
    load_rows()
    for rank in (1, 2, 3):
        for samples, groups, kernel in ((1, 1, 3), (2, 1, 2), (1, 4, 2), (2, 2, 4)):
            x = torch.ones(samples, 4, *([6] * rank), dtype=dtype)
            w = torch.ones(4, 4 // groups, *([kernel] * rank), dtype=dtype)
            x, w = channels_last(x) if input_last else x, channels_last(w) if weight_last else w
            call = (x, w, None, [1] * rank, [0] * rank, [1] * rank, transposed, [0] * rank, groups)
            want = torch.convolution(*call)
            (got,), _ = infer(torch.ops.aten.convolution.default, call, {})
            assert got == (want.shape, want.stride(), want.dtype), (rank, samples, groups, kernel)
            back = (torch.ones_like(want), x, w, [4], *call[3:], [True, True, False])
            wanted = torch.ops.aten.convolution_backward.default(*back)
            found, _ = infer(torch.ops.aten.convolution_backward.default, back, {})
            for name, a, b in zip(("input", "weight"), wanted, found, strict=False):
                assert b is not None and b[1] == a.stride(), (name, rank, samples, groups, kernel)


class Net(nn.Module):
    """Convolutions of all sorts with what usually stands between them."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
            *(nn.Conv2d(8, 16, 3, padding=1, groups=2), nn.InstanceNorm2d(16), nn.GELU(), nn.AvgPool2d(2)),
            *(nn.Upsample(scale_factor=2, mode="bilinear"), nn.ReflectionPad2d(1), nn.Conv2d(16, 16, 1), nn.PReLU()),
            *(nn.ConvTranspose2d(16, 8, 2, 2), nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.ChannelShuffle(2)),
            *(nn.Hardswish(), nn.ReplicationPad2d(1), nn.ZeroPad2d(1), nn.AdaptiveAvgPool2d(2)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 3, H, W] to [N, 8, 2, 2]."""
        return self.parts(x)  # type: ignore[no-any-return]


def run(device: str, compiled: bool = False) -> tuple[list[Any], list[torch.Tensor]]:
    """Strides of everything between and of gradients, and values of the result and of gradients."""
    torch.manual_seed(0)
    model = Net().to(memory_format=torch.channels_last).to(device)
    x = torch.randn(2, 3, 32, 32).contiguous(memory_format=torch.channels_last).to(device).requires_grad_()
    strides: list[Any] = []
    if not compiled:
        for part in model.parts:
            part.register_forward_hook(lambda m, _, out: strides.append((type(m).__name__, out.stride())))
            part.register_full_backward_hook(
                lambda m, into, _: strides.append((type(m).__name__, [g.stride() for g in into if g is not None]))
            )
    call = torch.compile(model, fullgraph=True) if compiled else model
    out = call(x)
    out.square().sum().backward()
    strides += [out.stride(), x.grad.stride(), *(p.grad.stride() for p in model.parameters())]
    return strides, [t.detach().cpu() for t in (out, x.grad, *(p.grad for p in model.parameters()))]


@pytest.mark.parametrize("mode", ["fused", pytest.param("strict", marks=pytest.mark.slow), "compiled"])
def test_model_in_channels_last(mode: str) -> None:
    want_strides, want = run("cpu")
    with torch.pjrt.eager_mode("fused" if mode == "compiled" else mode):
        strides, got = run("pjrt", compiled=mode == "compiled")
    assert strides == want_strides[-len(strides) :]
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dynamic", [None, True])
def test_views_of_results_in_a_compiled_function(dynamic: bool | None) -> None:
    def flat(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, bool]:
        y = torch.nn.functional.pad(torch.nn.functional.conv2d(x, w), (1, 1, 1, 1), mode="reflect")
        y = torch.nn.functional.pixel_unshuffle(torch.nn.functional.pixel_shuffle(y, 2), 2)
        return y.permute(0, 2, 3, 1).view(-1, w.shape[0]) * 2, y.is_contiguous(memory_format=torch.channels_last)

    x = torch.randn(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)
    w = torch.randn(8, 4, 3, 3)
    want, format = flat(x, w)
    got, ours = torch.compile(flat, fullgraph=True, dynamic=dynamic)(x.to("pjrt"), w.to("pjrt"))
    assert ours is format is True
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-4)


MATRICES = ((4, 3), (1, 4, 3), (2, 4, 3))


@pytest.mark.parametrize("shape", MATRICES)
def test_gradients_of_linear_layers(shape: tuple[int, ...]) -> None:
    def gradients(device: str) -> list[Any]:
        x, w = torch.ones(shape).mT.contiguous().mT.to(device), torch.ones(3, 5).t().to(device)
        y = torch.nn.functional.linear(x.requires_grad_(), w.requires_grad_())
        return [g.stride() for g in torch.autograd.grad(y, (x, w), torch.ones_like(y))]

    assert gradients("pjrt") == gradients("cpu")


def test_losses_and_activations_of_operands_that_lie_apart() -> None:
    functional: Any = torch.nn.functional
    for call in (
        *(functional.mse_loss, functional.smooth_l1_loss, functional.huber_loss, functional.binary_cross_entropy),
        *((lambda x, _, reduction, f=f: f(x)) for f in (functional.hardtanh, functional.hardswish, torch.logit)),
        lambda x, y, reduction: torch.xlogy(x, y[0]),
    ):
        found = []
        for device in ("cpu", "pjrt"):
            x, y = (torch.full((4, 5, 6), 0.5).transpose(1, 2).contiguous().transpose(1, 2).to(device).requires_grad_(),
                    torch.full((4, 5, 6), 0.25).to(device))  # fmt: skip
            out = call(x, y, reduction="none")
            (grad,) = torch.autograd.grad(out, x, torch.ones(out.shape, device=device))
            found.append((out.stride(), grad.stride()))
        assert found[0] == found[1]


def test_scatters_of_tensors_with_gaps() -> None:
    x = torch.arange(48.0).reshape(2, 3, 8)
    for call in (
        lambda a: torch.select_scatter(a, a[:, 0] + 1, 1, 2),
        lambda a: torch.slice_scatter(a, a[..., :2] + 1, 2, 1, 3),
        lambda a: torch.diagonal_scatter(a, a[:, 0, :3] + 1, 0, 1, 2),
    ):
        want, got = call(x[..., 1::2]), call(x.to("pjrt")[..., 1::2])
        assert got.stride() == want.stride() == (24, 8, 2)
        assert got.untyped_storage().nbytes() == want.untyped_storage().nbytes()
        torch.testing.assert_close(got.cpu(), want)
