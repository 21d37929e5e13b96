"""Layer, group and RMS norm with their backwards, weight norm and renorm. Batch norm has its own file.

Moments are taken in two passes (mean, then mean squared distance) in float32 or wider; saved statistics have the dtype
that torch says. Backwards return only the results that output_mask asks for. Called by program/evaluate.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, keep_dims, like, opmath, wrap_dim
from torch_pjrt.ops.registry import row

Dims = Sequence[int]


def summed(x: Array, dims: Dims) -> Array:
    """Sum over dims, kept as size 1."""
    return keep_dims(lax.reduce(x, np.zeros((), x.dtype), lax.add, tuple(dims)), dims, x.shape)


def mean_of(x: Array, dims: Dims) -> Array:
    """Mean over dims, kept as size 1."""
    s = summed(x, dims)
    return lax.div(s, lax.full_like(s, math.prod(x.shape[d] for d in dims)))


def times(a: Array, b: Array) -> Array:
    """a * b, b broadcast to a's shape."""
    return lax.mul(a, broadcast_to(b, a.shape))


def moments(x: Array, dims: Dims) -> tuple[Array, Array, Array]:
    """x - mean (full size), mean and biased variance (dims kept as size 1)."""
    mean = mean_of(x, dims)
    centred = lax.sub(x, broadcast_to(mean, x.shape))
    return centred, mean, mean_of(lax.mul(centred, centred), dims)


def inverse_deviation(var: Array, eps: Any) -> Array:
    """1 / sqrt(var + eps)."""
    return lax.rsqrt(lax.add(var, like(eps, var)))


def input_gradient(grad: Array, xhat: Array, rstd: Array, dims: Dims) -> Array:
    """The gradient through (x - mean) * rstd: rstd * (g - mean(g) - xhat * mean(g * xhat)), means over dims."""
    along = times(xhat, mean_of(lax.mul(grad, xhat), dims))
    return times(lax.sub(lax.sub(grad, broadcast_to(mean_of(grad, dims), grad.shape)), along), rstd)


def _affine(y: Array, weight: Array | None, bias: Array | None) -> Array:
    if weight is not None:
        y = times(y, as_dtype(weight, y.dtype))
    if bias is not None:
        y = lax.add(y, broadcast_to(as_dtype(bias, y.dtype), y.shape))
    return y


def _split(x: Array, normalized_shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dims kept and the dims normalised over."""
    lead = x.ndim - len(normalized_shape)
    return tuple(range(lead)), tuple(range(lead, x.ndim))


@row("native_layer_norm")
def native_layer_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None, bias: Array | None, eps: Any, out: Any
) -> tuple[Array, Array, Array]:
    """(output, mean, rstd)."""
    x = as_dtype(input, opmath(input.dtype))
    centred, mean, var = moments(x, _split(x, normalized_shape)[1])
    rstd = inverse_deviation(var, eps)
    y = _affine(times(centred, rstd), weight, bias)
    return as_dtype(y, input.dtype), _saved(mean, out[1]), _saved(rstd, out[2])


def _saved(x: Array, spec: Any) -> Array:
    return as_dtype(lax.reshape(x, spec[0]), spec[1])


@row("native_layer_norm_backward")
def native_layer_norm_backward(
    grad_out: Array,
    input: Array,
    normalized_shape: Sequence[int],
    mean: Array,
    rstd: Array,
    weight: Array | None,
    bias: Array | None,
    output_mask: Sequence[bool],
    out: Any,
) -> tuple[Array, ...]:
    """The asked of (grad_input, grad_weight, grad_bias); no weight or bias, no gradient of it."""
    wide = opmath(input.dtype)
    lead, dims = _split(input, normalized_shape)
    grad, x = as_dtype(grad_out, wide), as_dtype(input, wide)
    rstd = as_dtype(rstd, wide)
    xhat = times(lax.sub(x, broadcast_to(as_dtype(mean, wide), x.shape)), rstd)
    results: list[Array] = []
    if output_mask[0]:
        inner = grad if weight is None else times(grad, as_dtype(weight, wide))
        results.append(as_dtype(input_gradient(inner, xhat, rstd, dims), input.dtype))
    if output_mask[1] and weight is not None:
        results.append(lax.reduce(lax.mul(grad, xhat), np.zeros((), wide), lax.add, lead))
    if output_mask[2] and bias is not None:
        results.append(lax.reduce(grad, np.zeros((), wide), lax.add, lead))
    return tuple(as_dtype(r, o[1]) for r, o in zip(results, out, strict=True))


@row("native_group_norm")
def native_group_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    N: int,  # noqa: N803 - the schema's names
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    eps: Any,
    out: Any,
) -> tuple[Array, Array, Array]:
    """(output, mean [N, group], rstd [N, group])."""
    x = lax.reshape(as_dtype(input, opmath(input.dtype)), (N, group, C // group, HxW))
    centred, mean, var = moments(x, (2, 3))
    rstd = inverse_deviation(var, eps)
    y = _affine(times(centred, rstd), _by_group(weight, group), _by_group(bias, group))
    return as_dtype(lax.reshape(y, input.shape), input.dtype), _saved(mean, out[1]), _saved(rstd, out[2])


def _by_group(x: Array | None, group: int) -> Array | None:
    """A per-channel vector against [N, group, channels of the group, HxW]."""
    return None if x is None else lax.reshape(x, (1, group, x.shape[0] // group, 1))


@row("native_group_norm_backward")
def native_group_norm_backward(
    grad_out: Array,
    input: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    N: int,  # noqa: N803
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    output_mask: Sequence[bool],
    out: Any,
) -> tuple[Array, ...]:
    """The asked of (grad_input, grad_weight, grad_bias)."""
    wide = opmath(input.dtype)
    shape = (N, group, C // group, HxW)
    grad, x = (lax.reshape(as_dtype(a, wide), shape) for a in (grad_out, input))
    mean, rstd = (lax.reshape(as_dtype(a, wide), (N, group, 1, 1)) for a in (mean, rstd))
    xhat = times(lax.sub(x, broadcast_to(mean, shape)), rstd)
    results: list[Array] = []
    if output_mask[0]:
        inner = grad if weight is None else times(grad, as_dtype(_by_group(weight, group), wide))
        results.append(input_gradient(inner, xhat, rstd, (2, 3)))
    if output_mask[1]:
        results.append(lax.reduce(lax.mul(grad, xhat), np.zeros((), wide), lax.add, (0, 3)))
    if output_mask[2]:
        results.append(lax.reduce(grad, np.zeros((), wide), lax.add, (0, 3)))
    return tuple(as_dtype(lax.reshape(r, o[0]), o[1]) for r, o in zip(results, out, strict=True))


@row("_fused_rms_norm")
def fused_rms_norm(
    input: Array, normalized_shape: Sequence[int], weight: Array | None, eps: Any, out: Any
) -> tuple[Array, Array]:
    """(x * rstd * weight, rstd); eps defaults to the accumulation dtype's epsilon."""
    wide = opmath(input.dtype)
    x = as_dtype(input, wide)
    square = mean_of(lax.mul(x, x), _split(x, normalized_shape)[1])
    rstd = inverse_deviation(square, np.finfo(wide).eps if eps is None else eps)
    return as_dtype(_affine(times(x, rstd), weight, None), out[0][1]), _saved(rstd, out[1])


@row("_fused_rms_norm_backward")
def fused_rms_norm_backward(
    grad_out: Array,
    input: Array,
    normalized_shape: Sequence[int],
    rstd: Array,
    weight: Array | None,
    output_mask: Sequence[bool],
    out: Any,
) -> tuple[Array, ...]:
    """The asked of (grad_input, grad_weight)."""
    wide = opmath(input.dtype)
    lead, dims = _split(input, normalized_shape)
    grad, x, rstd = (as_dtype(a, wide) for a in (grad_out, input, rstd))
    xhat = times(x, rstd)
    results: list[Array] = []
    if output_mask[0]:
        inner = grad if weight is None else times(grad, as_dtype(weight, wide))
        along = times(xhat, mean_of(lax.mul(inner, xhat), dims))
        results.append(times(lax.sub(inner, along), rstd))
    if output_mask[1] and weight is not None:
        results.append(lax.reduce(lax.mul(grad, xhat), np.zeros((), wide), lax.add, lead))
    return tuple(as_dtype(r, o[1]) for r, o in zip(results, out, strict=True))


def _all_but(x: Array, dim: int) -> tuple[int, ...]:
    return tuple(d for d in range(x.ndim) if d != wrap_dim(dim, x.ndim))


@row("_weight_norm_interface")
def weight_norm(v: Array, g: Array, dim: int, out: Any) -> tuple[Array, Array]:
    """(v * g / norm, norm), the 2-norm over every dim but one."""
    wide = opmath(v.dtype)
    x = as_dtype(v, wide)
    norm = lax.sqrt(summed(lax.mul(x, x), _all_but(v, dim)))
    scale = lax.div(lax.reshape(as_dtype(g, wide), norm.shape), norm)
    return as_dtype(times(x, scale), v.dtype), _saved(norm, out[1])


@row("_weight_norm_interface_backward")
def weight_norm_backward(
    grad_w: Array, saved_v: Array, saved_g: Array, saved_norms: Array, dim: int, out: Any
) -> tuple[Array, Array]:
    """(grad of v, grad of g)."""
    wide = opmath(saved_v.dtype)
    grad, v, g, norm = (as_dtype(a, wide) for a in (grad_w, saved_v, saved_g, saved_norms))
    along = summed(lax.mul(grad, v), _all_but(v, dim))
    g, norm = lax.reshape(g, along.shape), lax.reshape(norm, along.shape)
    grad_g = lax.div(along, norm)
    grad_v = times(lax.sub(grad, times(v, lax.div(grad_g, norm))), lax.div(g, norm))
    return as_dtype(grad_v, out[0][1]), _saved(grad_g, out[1])


@row("renorm", static=("p",))
def renorm(self: Array, p: float, dim: int, maxnorm: Any) -> Array:
    """Slices along dim with a p-norm above maxnorm, scaled down to it."""
    x = lax.abs(self)
    x = as_dtype(x, opmath(x.dtype))
    dims = _all_but(self, dim)
    if math.isinf(p):
        norm = keep_dims(lax.reduce(x, np.asarray(-np.inf, x.dtype), lax.max, dims), dims, x.shape)
    elif p == 1:
        norm = summed(x, dims)
    elif p == 2:
        norm = lax.sqrt(summed(lax.mul(x, x), dims))
    else:
        norm = lax.pow(summed(lax.pow(x, lax.full_like(x, p)), dims), np.asarray(1 / p, x.dtype))
    top = like(maxnorm, norm)
    shrink = lax.div(top, lax.add(norm, lax.full_like(norm, 1e-7)))
    factor = lax.select(lax.gt(norm, top), shrink, lax.full_like(norm, 1))
    wide = as_dtype(self, opmath(self.dtype))
    return as_dtype(times(wide, as_dtype(factor, wide.dtype)), self.dtype)
