"""Results are laid out as CPU torch lays them out, also where torch's own meta kernels say otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "logical_and": torch.logical_and,
    "logical_xor": torch.logical_xor,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "heaviside": torch.heaviside,
    "copysign": torch.copysign,
    "floor_divide": torch.floor_divide,
    "div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
}


@pytest.mark.parametrize("name", BINARY)
def test_broadcast_results_of_transposed_operands(name: str) -> None:
    x, y = (torch.arange(1.0, 31).reshape(shape).permute(2, 1, 0) for shape in ((5, 1, 6), (5, 6, 1)))
    want = BINARY[name](x, y)
    assert want.stride() == (6, 1, 36)
    got = BINARY[name](x.to("pjrt"), y.to("pjrt"))
    assert got.stride() == want.stride()
    torch.testing.assert_close(got.cpu(), want)


def test_fourier_transforms() -> None:
    x = torch.arange(60.0).reshape(3, 4, 5).sin()
    for transform in (torch.fft.rfftn, torch.fft.fft2, lambda y: torch.fft.hfft2(y, dim=(0, -1))):
        want, got = transform(x), transform(x.to("pjrt"))
        assert got.stride() == want.stride()
        torch.testing.assert_close(got.cpu(), want)


def test_powers_of_numbers() -> None:
    x, y = (torch.arange(1.0, 31).reshape(shape).permute(2, 1, 0) / 8 for shape in ((5, 1, 6), (5, 6, 1)))
    for call in (lambda a, b: 2.0**b, lambda a, b: torch.float_power(3, a), torch.ldexp):
        want, got = call(x, y), call(x.to("pjrt"), y.to("pjrt"))
        assert got.stride() == want.stride()
        torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8])
def test_binary_ops_of_two_broadcast_operands(dtype: torch.dtype) -> None:
    x, y = (torch.ones(shape, dtype=dtype).transpose(0, 2) for shape in ((5, 1, 6), (5, 6, 1)))
    for call in (torch.ldexp, torch.lcm if dtype == torch.int8 else torch.copysign):
        assert call(x.to("pjrt"), y.to("pjrt")).stride() == call(x, y).stride()


def test_batch_norm_of_transposed_input() -> None:
    x, ones = torch.arange(24.0).reshape(4, 2, 3).permute(2, 1, 0), torch.ones(2)
    update = torch.ops.aten._batch_norm_with_update.default
    want, got = (update(x.to(d), *(ones.to(d).clone() for _ in range(4)), 0.1, 1e-5)[0] for d in ("cpu", "pjrt"))
    assert got.stride() == want.stride() == (8, 4, 1)
    torch.testing.assert_close(got.cpu(), want)


def test_losses_and_dropout_of_transposed_operands() -> None:
    x = torch.arange(24.0).reshape(2, 2, 3, 2).permute(3, 2, 1, 0)
    classes, keep = torch.arange(8).reshape(2, 2, 2).permute(2, 1, 0) % 3, (x > 5).contiguous()
    for call, operands in (
        (lambda a, b: torch.nn.functional.nll_loss(a, b, reduction="none"), (x, classes)),
        (lambda a, b: torch.ops.aten.native_dropout_backward(a, b, 2.0), (x, keep)),
    ):
        want, got = call(*operands), call(*(o.to("pjrt") for o in operands))
        assert got.stride() == want.stride()
        torch.testing.assert_close(got.cpu(), want)


def test_as_strided_scatter_counts_places_in_the_storage() -> None:
    base, src = torch.arange(20.0), -torch.ones(2, 2)
    for part in (lambda x: x[2:14:2], lambda x: x[:12].reshape(3, 4).t(), lambda x: x[6:]):
        want, got = (
            torch.as_strided_scatter(part(base.to(d)), src.to(d), (2, 2), (4, 2), offset)
            for d in ("cpu", "pjrt")
            for offset in (3,)
        )
        torch.testing.assert_close(got.cpu(), want)
    x, src = torch.arange(9.0).reshape(3, 3), torch.ones(2, 2)
    want, got = (torch.as_strided_scatter(x.to(d), src.to(d), (2, 2), (1, 2)) for d in ("cpu", "pjrt"))
    torch.testing.assert_close(got.cpu(), want)
