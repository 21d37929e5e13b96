"""The fused LSTM and GRU cells and their backwards; everything else of nn.LSTM and nn.GRU is composite.

Gates come in torch's order: input, forget, cell, output for LSTM; reset, update, new for GRU. The workspace holds what
the backward needs: the activated gates (LSTM), or reset, update, new, hx and the hidden part of new (GRU).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to, opmath
from torch_pjrt.ops.registry import row


def _chunks(x: Array, count: int) -> list[Array]:
    width = x.shape[-1] // count
    return [lax.slice_in_dim(x, i * width, (i + 1) * width, 1, x.ndim - 1) for i in range(count)]


def _joined(parts: list[Array], dtype: np.dtype) -> Array:
    return as_dtype(lax.concatenate(parts, parts[0].ndim - 1), dtype)


def _gates(x: Array, bias: Array | None, dtype: np.dtype) -> Array:
    x = as_dtype(x, dtype)
    return x if bias is None else lax.add(x, broadcast_to(as_dtype(bias, dtype), x.shape))


def _rest(x: Array) -> Array:
    """1 - x."""
    return lax.sub(lax.full_like(x, 1), x)


def _logistic_slope(y: Array) -> Array:
    return lax.mul(y, _rest(y))


def _tanh_slope(y: Array) -> Array:
    return _rest(lax.mul(y, y))


def _over_batch(grad: Array) -> Array:
    """The gradient of a bias."""
    wide = as_dtype(grad, opmath(grad.dtype))
    return as_dtype(lax.reduce(wide, np.zeros((), wide.dtype), lax.add, tuple(range(grad.ndim - 1))), grad.dtype)


@row("_thnn_fused_lstm_cell")
def lstm_cell(
    input_gates: Array, hidden_gates: Array, cx: Array, input_bias: Array | None, hidden_bias: Array | None
) -> tuple[Array, Array, Array]:
    """(hy, cy, workspace)."""
    wide = opmath(cx.dtype)
    total = lax.add(_gates(input_gates, input_bias, wide), _gates(hidden_gates, hidden_bias, wide))
    i, f, g, o = _chunks(total, 4)
    i, f, g, o = lax.logistic(i), lax.logistic(f), lax.tanh(g), lax.logistic(o)
    cy = lax.add(lax.mul(f, as_dtype(cx, wide)), lax.mul(i, g))
    hy = lax.mul(o, lax.tanh(cy))
    return as_dtype(hy, cx.dtype), as_dtype(cy, cx.dtype), _joined([i, f, g, o], input_gates.dtype)


@row("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    grad_hy: Array | None, grad_cy: Array | None, cx: Array, cy: Array, workspace: Array, has_bias: bool
) -> tuple[Array, ...]:
    """(grad of both gates, grad of cx, grad of either bias when there is one)."""
    wide = opmath(cx.dtype)
    i, f, g, o = _chunks(as_dtype(workspace, wide), 4)
    squashed = lax.tanh(as_dtype(cy, wide))
    grad_c = lax.full_like(squashed, 0) if grad_cy is None else as_dtype(grad_cy, wide)
    grad_o = lax.full_like(squashed, 0)
    if grad_hy is not None:
        grad_h = as_dtype(grad_hy, wide)
        grad_c = lax.add(grad_c, lax.mul(lax.mul(grad_h, o), _tanh_slope(squashed)))
        grad_o = lax.mul(lax.mul(grad_h, squashed), _logistic_slope(o))
    parts = [
        lax.mul(lax.mul(grad_c, g), _logistic_slope(i)),
        lax.mul(lax.mul(grad_c, as_dtype(cx, wide)), _logistic_slope(f)),
        lax.mul(lax.mul(grad_c, i), _tanh_slope(g)),
        grad_o,
    ]
    grad_gates = _joined(parts, workspace.dtype)
    results = (grad_gates, as_dtype(lax.mul(grad_c, f), cx.dtype))
    return (*results, _over_batch(grad_gates)) if has_bias else results


@row("_thnn_fused_gru_cell")
def gru_cell(
    input_gates: Array, hidden_gates: Array, hx: Array, input_bias: Array | None, hidden_bias: Array | None
) -> tuple[Array, Array]:
    """(hy, workspace)."""
    wide = opmath(hx.dtype)
    ri, zi, ni = _chunks(_gates(input_gates, input_bias, wide), 3)
    rh, zh, nh = _chunks(_gates(hidden_gates, hidden_bias, wide), 3)
    r, z = lax.logistic(lax.add(ri, rh)), lax.logistic(lax.add(zi, zh))
    n, h = lax.tanh(lax.add(ni, lax.mul(r, nh))), as_dtype(hx, wide)
    hy = lax.add(n, lax.mul(z, lax.sub(h, n)))
    return as_dtype(hy, hx.dtype), _joined([r, z, n, h, nh], hx.dtype)


@row("_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: Array, workspace: Array, has_bias: bool) -> tuple[Array, ...]:
    """(grad of input gates, grad of hidden gates, grad of hx, then the grads of both biases when there are some)."""
    dtype, wide = workspace.dtype, opmath(workspace.dtype)
    r, z, n, h, nh = _chunks(as_dtype(workspace, wide), 5)
    grad = as_dtype(grad_hy, wide)
    grad_z = lax.mul(lax.mul(grad, lax.sub(h, n)), _logistic_slope(z))
    grad_n = lax.mul(lax.mul(grad, _rest(z)), _tanh_slope(n))
    grad_r = lax.mul(lax.mul(grad_n, nh), _logistic_slope(r))
    of_input = _joined([grad_r, grad_z, grad_n], dtype)
    of_hidden = _joined([grad_r, grad_z, lax.mul(grad_n, r)], dtype)
    results: tuple[Any, ...] = (of_input, of_hidden, as_dtype(lax.mul(grad, z), dtype))
    return (*results, _over_batch(of_input), _over_batch(of_hidden)) if has_bias else results
