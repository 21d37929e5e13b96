"""Convolutions of 1 to 3 dims and their backwards, transposed, grouped, dilated and complex ones included.

The forward is one conv_general_dilated, or one dot_general where windows do not overlap (1x1 kernels, patches) or, on the
CPU, are fewer than the kernel's channels, or a sum over the kernel's places for depthwise kernels. The backwards are its
transposes, taken by jax.linear_transpose, so the two cannot disagree. Arrays are in logical N, C, spatial order. Called
by program/evaluate.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, is_complex, opmath
from torch_pjrt.ops.registry import row

MOST_TAPS = 27  # places of a kernel up to which going through them one by one is allowed


@dataclass(frozen=True, slots=True)
class Window:
    """How the kernel moves; every list has one entry per spatial dim."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    precision: Any
    gathers: bool  # whether wide kernels are products with gathered windows


def _window(
    rank: int,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    prec: Any,
    platform: str,
) -> Window:
    def full(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) * rank if len(values) == 1 else tuple(values)

    return Window(
        full(stride), full(padding), full(dilation), transposed, full(output_padding), groups, prec, platform == "cpu"
    )


def convolve(x: Array, w: Array, window: Window, dtype: np.dtype | None = None) -> Array:
    """x [N, C, ...] with w [O, C / groups, ...], or [C, O / groups, ...] when transposed; the result in dtype."""
    if is_complex(x):
        return _complex(x, w, window)
    if window.transposed:
        return _transposed(x, w, window, dtype)
    if _is_patches(w, window):
        return _patches(x, w, window, dtype)
    if w.shape[1] == 1 and w.shape[0] == x.shape[1] == window.groups > 1 and few_taps(w):
        return by_taps(x, w, window, dtype)
    if _is_wide(x, w, window):
        return _gathered(x, w, window, dtype)
    return lax.conv_general_dilated(
        x,
        w,
        window.stride,
        [(p, p) for p in window.padding],
        rhs_dilation=window.dilation,
        feature_group_count=window.groups,
        precision=window.precision,
        preferred_element_type=dtype,
    )


def _is_patches(w: Array, window: Window) -> bool:
    """Whether windows neither overlap nor reach over the edge, so that the convolution is a matrix product."""
    aligned = all(
        k == s and p == 0 and (d == 1 or k == 1)
        for k, s, p, d in zip(w.shape[2:], window.stride, window.padding, window.dilation, strict=True)
    )
    return aligned and window.groups == 1


def _patches(x: Array, w: Array, window: Window, dtype: np.dtype | None) -> Array:
    """One dot_general over channels and places in the window; what does not fill a window is cut off."""
    kernel = w.shape[2:]
    counts = [n // k for n, k in zip(x.shape[2:], kernel, strict=True)]
    limits = (*x.shape[:2], *(c * k for c, k in zip(counts, kernel, strict=True)))
    if limits != x.shape:
        x = lax.slice(x, (0,) * x.ndim, limits)
    # dims of size 1 would only hide that a 1x1 convolution is a plain product
    taps = [d for d, k in enumerate(kernel) if k > 1]
    shape, contract = list(x.shape[:2]), [1]
    for d, k in enumerate(kernel):
        shape.append(counts[d])
        if k > 1:
            contract.append(len(shape))
            shape.append(k)
    w = lax.reshape(w, (*w.shape[:2], *(kernel[d] for d in taps)))
    dims = ((tuple(contract), tuple(range(1, 2 + len(taps)))), ((), ()))
    product = lax.dot_general(lax.reshape(x, shape), w, dims, precision=window.precision, preferred_element_type=dtype)
    last = product.ndim - 1
    return lax.transpose(product, (0, last, *range(1, last)))


def few_taps(w: Array) -> bool:
    """Whether the kernel is small enough to go through its places one by one."""
    return math.prod(w.shape[2:]) <= MOST_TAPS


def _sizes(x: Array, kernel: Sequence[int], window: Window) -> list[int]:
    """How many windows there are along each spatial dim."""
    return [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, k, s, d in zip(x.shape[2:], window.padding, kernel, window.stride, window.dilation, strict=True)
    ]


def _seen(x: Array, kernel: Sequence[int], window: Window) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Every place of the kernel, and what all windows see there: [N, C, ...] in the sizes of the output."""
    sizes = _sizes(x, kernel, window)
    x = lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0)] * 2 + [(p, p, 0) for p in window.padding])
    for place in itertools.product(*(range(k) for k in kernel)):
        starts = [i * d for i, d in zip(place, window.dilation, strict=True)]
        limits = [a + (o - 1) * s + 1 for a, o, s in zip(starts, sizes, window.stride, strict=True)]
        yield place, lax.slice(x, (0, 0, *starts), (*x.shape[:2], *limits), (1, 1, *window.stride))


def _is_wide(x: Array, w: Array, window: Window) -> bool:
    """Whether the kernel has more channels than there are windows: its elements outnumber those of all windows together."""
    if (
        not window.gathers
        or window.groups > 1
        or not few_taps(w)
        or 0 in x.shape
        or not all(isinstance(n, int) for n in x.shape)
    ):
        return False
    return 0 < x.shape[0] * math.prod(_sizes(x, w.shape[2:], window)) < w.shape[0]


def _gathered(x: Array, w: Array, window: Window, dtype: np.dtype | None) -> Array:
    """One dot_general of the kernel as it lies with all windows, copied out.

    Convolutions of XLA:CPU want the kernel's channels last, where torch has them first: they would transpose it, forward
    and backward, which costs more than the windows' copies where the kernel is the larger of the two. TPUs lay kernels out
    as they like (by the v5e compiler's estimate this way is 0.9 to 9 times slower there), and cuDNN takes torch's order.
    """
    kernel = w.shape[2:]
    taps = [lax.expand_dims(seen, (2,)) for _, seen in _seen(x, kernel, window)]
    windows = lax.concatenate(taps, 2)  # [N, C, places, ...]
    batch, channels, places, *sizes = windows.shape
    windows = lax.transpose(windows, (0, *range(3, windows.ndim), 1, 2))
    windows = lax.reshape(windows, (batch * math.prod(sizes), channels * places))
    flat = lax.reshape(w, (w.shape[0], channels * places))
    dims = (((1,), (1,)), ((), ()))
    product = lax.dot_general(flat, windows, dims, precision=window.precision, preferred_element_type=dtype)
    return lax.transpose(lax.reshape(product, (w.shape[0], batch, *sizes)), (1, 0, *range(2, x.ndim)))


def by_taps(x: Array, w: Array, window: Window, dtype: np.dtype | None = None) -> Array:
    """The sum, over the kernel's places, of the input seen from there times the weights there.

    For depthwise kernels, where it is a few fused multiply-adds, and for the weight gradient of grouped ones, whose
    transpose as a convolution is slow on most backends.
    """
    groups, (channels, per_group, *kernel) = window.groups, w.shape
    depthwise = per_group == 1 and channels == groups
    wide = opmath(x.dtype) if depthwise else x.dtype
    narrow = x.dtype
    x, w = as_dtype(x, wide), as_dtype(w, wide)
    sizes = _sizes(x, kernel, window)
    result = None
    for place, seen in _seen(x, kernel, window):
        tap = lax.slice(w, (0, 0, *place), (channels, per_group, *(i + 1 for i in place)))
        if depthwise:
            part = lax.mul(seen, lax.broadcast_in_dim(lax.reshape(tap, (channels,)), seen.shape, (1,)))
        else:
            seen = lax.reshape(seen, (seen.shape[0], groups, per_group, *sizes))
            tap = lax.reshape(tap, (groups, channels // groups, per_group))
            part = lax.dot_general(tap, seen, (((2,), (2,)), ((0,), (1,))), precision=window.precision)
        result = part if result is None else lax.add(result, part)
    assert result is not None, "a kernel has at least one tap"
    if not depthwise:  # [groups, channels of the group, N, ...]
        result = lax.transpose(result, (2, 0, 1, *range(3, result.ndim)))
        result = lax.reshape(result, (x.shape[0], channels, *sizes))
    return as_dtype(result, dtype or narrow)


def _transposed(x: Array, w: Array, window: Window, dtype: np.dtype | None) -> Array:
    """The input spread out by stride, under the flipped kernel with its channels swapped within each group."""
    spatial = tuple(range(2, x.ndim))
    groups, (channels, per_group, *kernel) = window.groups, w.shape
    w = lax.reshape(lax.rev(w, spatial), (groups, channels // groups, per_group, *kernel))
    w = lax.transpose(w, (0, 2, 1, *(d + 1 for d in spatial)))
    w = lax.reshape(w, (groups * per_group, channels // groups, *kernel))
    reach = [d * (k - 1) for d, k in zip(window.dilation, kernel, strict=True)]
    return lax.conv_general_dilated(
        x,
        w,
        (1,) * len(kernel),
        [(r - p, r - p + o) for r, p, o in zip(reach, window.padding, window.output_padding, strict=True)],
        lhs_dilation=window.stride,
        rhs_dilation=window.dilation,
        feature_group_count=groups,
        precision=window.precision,
        preferred_element_type=dtype,
    )


def _complex(x: Array, w: Array, window: Window) -> Array:
    """Four real convolutions."""
    (a, b), (c, d) = ((lax.real(z), lax.imag(z)) for z in (x, w))
    real = lax.sub(convolve(a, c, window), convolve(b, d, window))
    return lax.complex(real, lax.add(convolve(a, d, window), convolve(b, c, window)))


@row("convolution", "convolution_overrideable")
def convolution(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    precision: Any,
    platform: str,
) -> Array:
    """The convolution, with bias [O] added."""
    rank = input.ndim - 2
    window = _window(rank, stride, padding, dilation, transposed, output_padding, groups, precision, platform)
    if bias is None:
        return convolve(input, weight, window)
    wide = convolve(input, weight, window, opmath(input.dtype))
    column = lax.reshape(as_dtype(bias, wide.dtype), (bias.shape[0],) + (1,) * rank)
    return as_dtype(lax.add(wide, broadcast_to(column, wide.shape)), input.dtype)


def _gradient(function: Callable[[Array], Array], primal: Array, grad: Array) -> Array:
    """The transpose of a linear function, applied to grad."""
    return jax.linear_transpose(function, jax.ShapeDtypeStruct(primal.shape, primal.dtype))(grad)[0]


def _conj(x: Array) -> Array:
    return lax.conj(x) if is_complex(x) else x


@row("convolution_backward_overrideable")
def convolution_backward_overrideable(
    grad_output: Array,
    input: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
    precision: Any,
    platform: str,
) -> tuple[Array, ...]:
    """The asked of (grad_input, grad_weight, grad_bias)."""
    window = _window(input.ndim - 2, stride, padding, dilation, transposed, output_padding, groups, precision, platform)
    grad_output = as_dtype(grad_output, input.dtype)
    results: list[Array] = []
    if output_mask[0]:
        results.append(_gradient(lambda x: convolve(x, _conj(weight), window), input, grad_output))
    if output_mask[1]:
        grouped = groups > 1 and not transposed and not is_complex(input) and few_taps(weight) and input.size > 0
        forward = by_taps if grouped else convolve
        results.append(_gradient(lambda w: forward(_conj(input), w, window), weight, grad_output))
    if output_mask[2]:
        wide = as_dtype(grad_output, opmath(grad_output.dtype))
        total = lax.reduce(wide, np.zeros((), wide.dtype), lax.add, (0, *range(2, wide.ndim)))
        results.append(as_dtype(total, grad_output.dtype))
    return tuple(results)


@row("convolution_backward")
def convolution_backward(
    grad_output: Array,
    input: Array,
    weight: Array,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
    precision: Any,
    platform: str,
) -> tuple[Array, ...]:
    """convolution_backward_overrideable; the size of the bias is that of the channels."""
    return convolution_backward_overrideable(
        grad_output,
        input,
        weight,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        output_mask,
        precision,
        platform,
    )
