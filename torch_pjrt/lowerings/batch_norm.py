"""Batch norm in all its overloads, and its backwards.

Statistics are per channel (dim 1), in two passes, in float32 or wider. `pjrt::batch_norm_train` is native_batch_norm in
training with the new running statistics as results, since the schema of native_batch_norm does not say that it writes
them. In evaluation the saved statistics are empty, as on CPU. Called by program/evaluate.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, like, opmath
from torch_pjrt.lowerings.normalization import input_gradient, inverse_deviation, moments, times
from torch_pjrt.ops.registry import row


def _dims(x: Array) -> tuple[int, ...]:
    return tuple(d for d in range(x.ndim) if d != 1)


def _channels(x: Array, like_: Array) -> Array:
    """A per-channel vector as [1, C, 1, ...] in the dtype of the array it goes with."""
    return lax.reshape(as_dtype(x, like_.dtype), (1, x.shape[0]) + (1,) * (like_.ndim - 2))


def _vector(x: Array, dtype: np.dtype) -> Array:
    return as_dtype(lax.reshape(x, (x.size,)), dtype)


def _affine(y: Array, weight: Array | None, bias: Array | None) -> Array:
    if weight is not None:
        y = times(y, _channels(weight, y))
    if bias is not None:
        y = lax.add(y, broadcast_to(_channels(bias, y), y.shape))
    return y


def _train(x: Array, weight: Array | None, bias: Array | None, eps: Any) -> tuple[Array, Array, Array, Array]:
    """(output, mean, biased variance, inverse deviation) in x's dtype; the last three are [1, C, 1, ...]."""
    centred, mean, var = moments(x, _dims(x))
    invstd = inverse_deviation(var, eps)
    return _affine(times(centred, invstd), weight, bias), mean, var, invstd


def _evaluate(input: Array, weight: Any, bias: Any, running_mean: Array, running_var: Array, eps: Any) -> Array:
    """The output from running statistics."""
    x = as_dtype(input, opmath(input.dtype))
    scale = inverse_deviation(_channels(running_var, x), eps)
    centred = lax.sub(x, broadcast_to(_channels(running_mean, x), x.shape))
    return as_dtype(_affine(times(centred, scale), weight, bias), input.dtype)


def _moved(old: Array, new: Array, momentum: Any) -> Array:
    """(1 - momentum) * old + momentum * new, in old's dtype."""
    was = as_dtype(old, opmath(old.dtype))
    now = _vector(new, was.dtype)
    share = like(momentum, was)
    mixed = lax.add(lax.mul(lax.sub(lax.full_like(was, 1), share), was), lax.mul(share, now))
    return as_dtype(mixed, old.dtype)


def _update(x: Array, mean: Array, var: Array, running_mean: Array, running_var: Array, momentum: Any) -> list[Array]:
    """The new running statistics; the running variance is unbiased."""
    count = math.prod(x.shape[d] for d in _dims(x))
    unbiased = lax.mul(var, lax.full_like(var, np.float64(count) / np.float64(count - 1) if count > 1 else np.inf))
    return [_moved(running_mean, mean, momentum), _moved(running_var, unbiased, momentum)]


def _nothing(out: Any) -> list[Array]:
    return [np.zeros(shape, dtype) for shape, dtype in out]


@row("native_batch_norm")
def native_batch_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: Any,
    eps: Any,
    out: Any,
) -> tuple[Array, ...]:
    """(output, save_mean, save_invstd); the running statistics are not updated here."""
    if not training:
        return _evaluate(input, weight, bias, running_mean, running_var, eps), *_nothing(out[1:])
    y, mean, _, invstd = _train(as_dtype(input, opmath(input.dtype)), weight, bias, eps)
    return as_dtype(y, input.dtype), _vector(mean, out[1][1]), _vector(invstd, out[2][1])


@row("_native_batch_norm_legit.no_stats")
def no_stats(
    input: Array, weight: Array | None, bias: Array | None, training: bool, momentum: Any, eps: Any, out: Any
) -> tuple[Array, ...]:
    """Batch norm that never has running statistics."""
    return native_batch_norm(input, weight, bias, None, None, True, momentum, eps, out)


@row("_native_batch_norm_legit_no_training")
def no_training(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: Any,
    eps: Any,
    out: Any,
) -> tuple[Array, ...]:
    """Batch norm with running statistics only."""
    return native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps, out)


@row("_batch_norm_no_update")
def no_update(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    momentum: Any,
    eps: Any,
    out: Any,
) -> tuple[Array, ...]:
    """Evaluation with an (empty) reserve as the last result."""
    results = native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps, out[:3])
    return *results, *_nothing(out[3:])


@row("pjrt::batch_norm_train", updates=("running_mean", "running_var"))
def batch_norm_train(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: Any,
    eps: Any,
    out: Any,
) -> tuple[Array, ...]:
    """(output, save_mean, save_invstd, new running_mean, new running_var)."""
    x = as_dtype(input, opmath(input.dtype))
    y, mean, var, invstd = _train(x, weight, bias, eps)
    moved = _update(x, mean, var, running_mean, running_var, momentum)
    return as_dtype(y, input.dtype), _vector(mean, out[1][1]), _vector(invstd, out[2][1]), *moved


@row("_native_batch_norm_legit_functional", updates=("running_mean", "running_var"))
def legit_functional(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    training: bool,
    momentum: Any,
    eps: Any,
    out: Any,
) -> tuple[Array, ...]:
    """batch_norm_train, or evaluation with the running statistics passed through."""
    if training:
        return batch_norm_train(input, weight, bias, running_mean, running_var, momentum, eps, out)
    y = _evaluate(input, weight, bias, running_mean, running_var, eps)
    return y, *_nothing(out[1:3]), running_mean, running_var


@row("_batch_norm_with_update_functional", updates=("running_mean", "running_var"))
def with_update_functional(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: Any,
    eps: Any,
    out: Any,
) -> tuple[Array, ...]:
    """batch_norm_train with an (empty) reserve as the fourth result."""
    results = batch_norm_train(input, weight, bias, running_mean, running_var, momentum, eps, out[:3])
    return *results[:3], *_nothing(out[3:4]), *results[3:]


@row("native_batch_norm_backward")
def native_batch_norm_backward(
    grad_out: Array,
    input: Array,
    weight: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_invstd: Array | None,
    train: bool,
    eps: Any,
    output_mask: Sequence[bool],
    out: Any,
) -> tuple[Array, ...]:
    """The asked of (grad_input, grad_weight, grad_bias)."""
    wide = opmath(input.dtype)
    grad, x = as_dtype(grad_out, wide), as_dtype(input, wide)
    dims = _dims(x)
    if train:
        mean, invstd = _channels(save_mean, x), _channels(save_invstd, x)
    else:
        mean, invstd = _channels(running_mean, x), inverse_deviation(_channels(running_var, x), eps)
    xhat = times(lax.sub(x, broadcast_to(mean, x.shape)), invstd)
    results: list[Array] = []
    if output_mask[0]:
        inner = grad if weight is None else times(grad, _channels(weight, grad))
        results.append(input_gradient(inner, xhat, invstd, dims) if train else times(inner, invstd))
    if output_mask[1]:
        results.append(lax.reduce(lax.mul(grad, xhat), np.zeros((), wide), lax.add, dims))
    if output_mask[2]:
        results.append(lax.reduce(grad, np.zeros((), wide), lax.add, dims))
    return tuple(as_dtype(r, o[1]) for r, o in zip(results, out, strict=True))


@row("batch_norm_backward")
def batch_norm_backward(
    grad_out: Array,
    input: Array,
    weight: Array,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_var: Array | None,
    update: bool,
    eps: Any,
    output_mask: Sequence[bool],
    reserve: Array,
    out: Any,
) -> tuple[Array, ...]:
    """native_batch_norm_backward; save_var holds the inverse deviation, the reserve is not needed."""
    return native_batch_norm_backward(
        grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask, out
    )
