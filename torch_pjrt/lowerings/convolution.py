"""Convolutions of 1 to 3 dims and their backwards, transposed, grouped, dilated and complex ones included.

The forward is one conv_general_dilated (or one dot_general for 1x1 kernels); the backwards are its transposes, taken by
jax.linear_transpose, so the two cannot disagree. Arrays are in logical N, C, spatial order; what is in memory order is
the evaluator's business. Called by program/evaluate.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, is_complex, opmath
from torch_pjrt.ops.registry import row


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


def _window(
    rank: int, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int, prec: Any
) -> Window:
    def full(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) * rank if len(values) == 1 else tuple(values)

    return Window(full(stride), full(padding), full(dilation), transposed, full(output_padding), groups, prec)


def convolve(x: Array, w: Array, window: Window, dtype: np.dtype | None = None) -> Array:
    """x [N, C, ...] with w [O, C / groups, ...], or [C, O / groups, ...] when transposed; the result in dtype."""
    if is_complex(x):
        return _complex(x, w, window)
    spatial = range(2, x.ndim)
    if window.transposed:
        return _transposed(x, w, window, dtype)
    if (
        window.groups == 1
        and all(n == 1 for n in w.shape[2:])
        and all(n == 1 for n in window.stride)
        and not any(window.padding)
    ):
        matrix = lax.reshape(w, w.shape[:2])
        dims = (((1,), (1,)), ((), ()))
        product = lax.dot_general(x, matrix, dims, precision=window.precision, preferred_element_type=dtype)
        last = x.ndim - 1
        return lax.transpose(product, (0, last, *(d - 1 for d in spatial)))
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
) -> Array:
    """The convolution, with bias [O] added."""
    rank = input.ndim - 2
    window = _window(rank, stride, padding, dilation, transposed, output_padding, groups, precision)
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
) -> tuple[Array, ...]:
    """The asked of (grad_input, grad_weight, grad_bias)."""
    window = _window(input.ndim - 2, stride, padding, dilation, transposed, output_padding, groups, precision)
    grad_output = as_dtype(grad_output, input.dtype)
    results: list[Array] = []
    if output_mask[0]:
        results.append(_gradient(lambda x: convolve(x, _conj(weight), window), input, grad_output))
    if output_mask[1]:
        results.append(_gradient(lambda w: convolve(_conj(input), w, window), weight, grad_output))
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
    )
