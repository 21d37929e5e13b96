"""Calls that CPU torch's kernels refuse for their operands, and its meta kernels let through, raise on the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

Make = Callable[..., torch.Tensor]

# Each takes a maker of tensors on one device: make(torch.int64) is a 2 x 2 matrix of ones.
REFUSED: dict[str, Callable[[Make], object]] = {
    "mm of float and int": lambda make: make() @ make(torch.int64),
    "addmm with a half bias": lambda make: torch.addmm(make(torch.float16), make(), make()),
    "linear with double weights": lambda make: F.linear(make(), make(torch.float64)),
    "convolution with double weights": lambda make: F.conv1d(make()[None], make(torch.float64)[None]),
    "layer norm with double weights": lambda make: F.layer_norm(make(), (2,), make(torch.float64)[0]),
    "cross of two dtypes": lambda make: torch.linalg.cross(make().expand(3, 2, 2)[:, 0], make(torch.int64)[0], dim=0),
    "index_add of another dtype": lambda make: make().index_add(0, make(torch.int64)[0], make(torch.float64)),
    "order of complex numbers": lambda make: make(torch.complex64) > make(),
    "largest complex number": lambda make: make(torch.complex64).max(),
    "rounded complex number": lambda make: make(torch.complex64).floor(),
    "shift of floats": lambda make: torch.bitwise_left_shift(make(), make()),
    "difference with bools": lambda make: make() - make(torch.bool),
    "difference of a bool": lambda make: make(torch.bool) - 1,
    "clamp of bools": lambda make: make(torch.bool).clamp(False),
    "Cholesky of integers": lambda make: torch.linalg.cholesky(make(torch.int64)),
    "softmax of integers": lambda make: make(torch.int64).softmax(-1),
    "lerp of integers": lambda make: torch.lerp(make(torch.int64), make(torch.int64), 0.5),
    "index of floats": lambda make: make()[make()],
    "index_select by floats": lambda make: make().index_select(0, make()[0]),
    "classes as int32": lambda make: F.nll_loss(make(), make(torch.int32)[0]),
    "diagonal of another size": lambda make: torch.diagonal_scatter(make(), make()[0, :1]),
    "least of nothing": lambda make: make()[:0].min(0),
    "median of nothing": lambda make: make()[:0].median(0),
    "kthvalue of nothing": lambda make: make()[:0].kthvalue(1, 0),
    "unique slices without elements": lambda make: make()[:0].unique(dim=1),
    "lengths of other segments": lambda make: torch.segment_reduce(
        make()[0], "sum", lengths=make(torch.int64)[0, :1]
    ).cpu(),
    "product of bools": lambda make: make(torch.bool) @ make(torch.bool),
    "largest place among bools": lambda make: make(torch.bool).argmax(),
    "kth of bools": lambda make: make(torch.bool).kthvalue(1),
    "pool of bools": lambda make: F.max_pool2d(make(torch.bool)[None], 2),
    "resized integers": lambda make: F.interpolate(make(torch.int64)[None, None], size=3),
    "resized bytes of a line": lambda make: F.interpolate(make(torch.uint8)[None], size=3, mode="linear"),
    "reflected bools": lambda make: F.pad(make(torch.bool)[None], (1, 1), mode="reflect"),
    "windows of integers": lambda make: F.unfold(make(torch.int64)[None, None], 2),
    "grid of integers": lambda make: F.grid_sample(make(torch.int64)[None, None], make(torch.int64)[None, None]),
    "deviation of integers": lambda make: make(torch.int64).std(),
    "squared error of integers": lambda make: F.mse_loss(make(torch.int64), make(torch.int64)),
    "likelihood of integers": lambda make: F.nll_loss(make(torch.int64), torch.ones_like(make(torch.int64)[0])),
    "logits as integers": lambda make: F.binary_cross_entropy_with_logits(make(torch.int64), make()),
    "softplus of integers": lambda make: F.softplus(make(torch.int64)),
    "decimals of integers": lambda make: make(torch.int64).round(decimals=1),
    "coins of integers": lambda make: torch.bernoulli(make(torch.int64)),
    "error function of complex numbers": lambda make: make(torch.complex64).erf(),
    "quotient of complex numbers, rounded": lambda make: make(torch.complex64).div(2, rounding_mode="floor"),
    "greatest complex number in a place": lambda make: make(torch.complex64).scatter_reduce(
        0, torch.zeros_like(make(torch.int64)), make(torch.complex64), "amax"
    ),
    "sums as bools": lambda make: make().cumsum(0, dtype=torch.bool),
    "batch norm of complex numbers": lambda make: F.batch_norm(
        make(torch.complex64), make(torch.complex64)[0], make(torch.complex64)[0]
    ),
    "Cauchy of no width": lambda make: make().cauchy_(0, 0),
    "exponential of a negative rate": lambda make: make().exponential_(-1),
    "geometric of certainty": lambda make: make().geometric_(1.0),
    "log-normal of no width": lambda make: make().log_normal_(0, 0),
    "normal of negative width": lambda make: make().normal_(0, -1),
    "coin of probability 2": lambda make: make().bernoulli_(2.0),
}
ACCEPTED: dict[str, Callable[[Make], object]] = {
    "softmax of integers as floats": lambda make: make(torch.int64).softmax(-1, dtype=torch.float32),
    "bfloat16 with float32 parameters": lambda make: F.layer_norm(make(torch.bfloat16), (2,), make()[0]),
    "clamp of bools by a number": lambda make: make(torch.bool).clamp(0),
    "quotient of complex numbers": lambda make: make(torch.complex64) / 2,
    "shifts of integers": lambda make: make(torch.uint8) << 1,
    "igamma of int and float": lambda make: torch.igamma(make(), make(torch.float64)),
    "classes as bytes": lambda make: F.nll_loss(make(), make(torch.uint8)[0]),
    "resized bytes": lambda make: F.interpolate(make(torch.uint8)[None, None], size=3),
    "windows of bools": lambda make: F.unfold(make(torch.bool)[None, None], 2),
    "powers of bools": lambda make: make(torch.bool) ** 2,
    "squared error of floats and integers": lambda make: F.mse_loss(make(), make(torch.int64)),
    "certain coins of integers": lambda make: make(torch.int64).bernoulli_(1.0),
    "error function of integers": lambda make: make(torch.int64).erf(),
    "index by bools": lambda make: make()[make(torch.bool)],
}


def maker(device: str) -> Make:
    """Makes matrices of ones on one device."""
    return lambda dtype=torch.float32: torch.ones(2, 2, dtype=dtype, device=device)


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    """CPU torch raises, and so does the device, at the call and with a class of torch's."""
    with pytest.raises((RuntimeError, IndexError)) as expected:
        REFUSED[case](maker("cpu"))
    kinds = (RuntimeError, IndexError) if expected.type is not IndexError else (IndexError,)
    with pytest.raises(kinds):
        REFUSED[case](maker("pjrt"))


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case: str) -> None:
    """What is near to a mistake and is none."""
    expected = ACCEPTED[case](maker("cpu"))
    found = ACCEPTED[case](maker("pjrt"))
    assert isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor)
    torch.testing.assert_close(found.cpu(), expected)
