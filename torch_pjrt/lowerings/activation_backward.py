"""Gradients of the activation functions: each from the incoming gradient and the input (or output) that autograd saved.

Rows promote and broadcast, and compute in at least float32.
"""

from __future__ import annotations

import math

import numpy as np
from jax import lax

from torch_pjrt.lowerings.activation import halves, inside
from torch_pjrt.lowerings.arrays import Array, constant, is_complex, wrap_dim
from torch_pjrt.ops.registry import Promote, row


def _conj(x: Array) -> Array:
    return lax.conj(x) if is_complex(x) else x


@row("sigmoid_backward", promote=Promote.DEFAULT)
def sigmoid_backward(grad_output: Array, output: Array) -> Array:
    """grad * (1 - y) * y."""
    return lax.mul(grad_output, _conj(lax.mul(lax.sub(constant(1, output), output), output)))


@row("tanh_backward", promote=Promote.DEFAULT)
def tanh_backward(grad_output: Array, output: Array) -> Array:
    """grad * (1 - y^2)."""
    return lax.mul(grad_output, _conj(lax.sub(constant(1, output), lax.mul(output, output))))


@row("threshold_backward", promote=Promote.DEFAULT)
def threshold_backward(grad_output: Array, self: Array, threshold: Array) -> Array:
    """grad above the threshold, zero elsewhere."""
    return lax.select(lax.le(self, threshold), constant(0, grad_output), grad_output)


@row("hardtanh_backward", promote=Promote.DEFAULT)
def hardtanh_backward(grad_output: Array, self: Array, min_val: Array, max_val: Array) -> Array:
    """grad strictly between the limits, zero elsewhere."""
    outside = lax.bitwise_or(lax.le(self, min_val), lax.ge(self, max_val))
    return lax.select(outside, constant(0, grad_output), grad_output)


@row("gelu_backward", promote=Promote.DEFAULT)
def gelu_backward(grad_output: Array, self: Array, approximate: str) -> Array:
    """grad * (cdf(x) + x * pdf(x)), exact or with the tanh form of cdf."""
    half, one = constant(0.5, self), constant(1, self)
    square = lax.mul(self, self)
    if approximate == "tanh":
        beta, kappa = constant(math.sqrt(8 / math.pi), self), constant(0.044715, self)
        twice = lax.mul(lax.mul(beta, self), lax.add(one, lax.mul(kappa, square)))
        slope = lax.mul(beta, lax.add(one, lax.mul(constant(3 * 0.044715, self), square)))
        small = lax.exp(lax.neg(lax.abs(twice)))  # cdf is 1 / (1 + small) or, below zero, small / (1 + small)
        part = lax.div(one, lax.add(one, small))
        other = lax.mul(small, part)
        cdf = lax.select(lax.lt(twice, constant(0, self)), other, part)
        pdf = lax.mul(lax.mul(self, lax.mul(part, other)), slope)
        return lax.mul(grad_output, lax.add(cdf, pdf))
    cdf = lax.mul(half, lax.add(one, lax.erf(lax.mul(self, constant(math.sqrt(0.5), self)))))
    pdf = lax.mul(constant(1 / math.sqrt(2 * math.pi), self), lax.exp(lax.neg(lax.mul(half, square))))
    return lax.mul(grad_output, lax.add(cdf, lax.mul(self, pdf)))


@row("silu_backward", promote=Promote.DEFAULT)
def silu_backward(grad_output: Array, self: Array) -> Array:
    """grad * s * (1 + x * (1 - s)), s = sigmoid(x)."""
    gate, one = lax.logistic(self), constant(1, self)
    slope = lax.mul(gate, lax.add(one, lax.mul(self, lax.sub(one, gate))))
    return lax.mul(grad_output, slope)


@row("mish_backward", promote=Promote.DEFAULT)
def mish_backward(grad_output: Array, self: Array) -> Array:
    """grad * (t + x * s * (1 - t^2)), t = tanh(softplus(x)), s = sigmoid(x)."""
    gate = lax.logistic(self)
    tanh = lax.tanh(lax.log1p(lax.exp(self)))
    steep = lax.sub(constant(1, self), lax.mul(tanh, tanh))
    return lax.mul(grad_output, lax.add(tanh, lax.mul(lax.mul(self, gate), steep)))


@row("elu_backward", promote=Promote.DEFAULT)
def elu_backward(
    grad_output: Array, alpha: Array, scale: Array, input_scale: Array, is_result: bool, self_or_result: Array
) -> Array:
    """The gradient of elu, from its input or (is_result) its output."""
    factor = lax.mul(alpha, scale)
    if is_result:
        below = lax.mul(input_scale, lax.add(self_or_result, factor))
    else:
        below = lax.mul(lax.mul(input_scale, factor), lax.exp(lax.mul(self_or_result, input_scale)))
    low = lax.le(self_or_result, constant(0, self_or_result))
    return lax.mul(grad_output, lax.select(low, below, scale))


@row("leaky_relu_backward", promote=Promote.DEFAULT)
def leaky_relu_backward(grad_output: Array, self: Array, negative_slope: Array, self_is_result: bool) -> Array:
    """grad above zero, negative_slope * grad below."""
    return lax.select(lax.gt(self, constant(0, self)), grad_output, lax.mul(grad_output, negative_slope))


@row("rrelu_with_noise_backward", promote=Promote.DEFAULT)
def rrelu_with_noise_backward(
    grad_output: Array, self: Array, noise: Array, lower: Array, upper: Array, training: bool, self_is_result: bool
) -> Array:
    """grad * noise in training, leaky_relu's gradient with the mean slope otherwise."""
    slope = lax.mul(lax.add(lower, upper), constant(0.5, lower))
    plain = leaky_relu_backward(grad_output, self, slope, self_is_result)
    if not training:
        return plain
    random = lax.gt(lax.sub(upper, lower), constant(1e-6, lower))
    return lax.select(random, lax.mul(grad_output, noise), plain)


@row("_prelu_kernel_backward", promote=Promote.DEFAULT)
def prelu_backward(grad_output: Array, self: Array, weight: Array) -> tuple[Array, Array]:
    """Gradients of the input and, not yet summed, of the slopes."""
    above, zero = lax.gt(self, constant(0, self)), constant(0, self)
    return (
        lax.select(above, grad_output, lax.mul(weight, grad_output)),
        lax.select(above, zero, lax.mul(self, grad_output)),
    )


@row("softplus_backward", promote=Promote.DEFAULT)
def softplus_backward(grad_output: Array, self: Array, beta: Array, threshold: Array) -> Array:
    """grad * sigmoid(beta * x), grad itself beyond the threshold."""
    scaled = lax.mul(self, beta)
    return lax.select(lax.gt(scaled, threshold), grad_output, lax.mul(grad_output, lax.logistic(scaled)))


@row("softshrink_backward", promote=Promote.DEFAULT)
def softshrink_backward(grad_output: Array, self: Array, lambd: Array) -> Array:
    """Zero within [-lambd, lambd], grad outside."""
    return lax.select(inside(self, lax.neg(lambd), lambd), constant(0, self), grad_output)


@row("hardshrink_backward", promote=Promote.DEFAULT)
def hardshrink_backward(grad_out: Array, self: Array, lambd: Array) -> Array:
    """Zero within [-lambd, lambd], grad outside."""
    return softshrink_backward(grad_out, self, lambd)


@row("hardsigmoid_backward", promote=Promote.DEFAULT)
def hardsigmoid_backward(grad_output: Array, self: Array) -> Array:
    """grad / 6 strictly between -3 and 3, zero elsewhere."""
    between = lax.bitwise_and(lax.gt(self, constant(-3, self)), lax.lt(self, constant(3, self)))
    return lax.select(between, lax.div(grad_output, constant(6, self)), constant(0, self))


@row("hardswish_backward", promote=Promote.DEFAULT)
def hardswish_backward(grad_output: Array, self: Array) -> Array:
    """Zero below -3, grad above 3, grad * (x / 3 + 1/2) between."""
    three = constant(3, self)
    middle = lax.mul(grad_output, lax.add(lax.div(self, three), constant(0.5, self)))
    upper = lax.select(lax.lt(self, three), middle, grad_output)
    return lax.select(lax.le(self, lax.neg(three)), constant(0, self), upper)


@row("logit_backward", promote=Promote.DEFAULT)
def logit_backward(grad_output: Array, self: Array, eps: Array | None) -> Array:
    """grad / (x * (1 - x)); outside the limits zero with eps, NaN without."""
    one, zero = constant(1, self), constant(0, self)
    low, high = (zero, one) if eps is None else (eps, lax.sub(one, eps))
    outside = lax.bitwise_or(lax.lt(self, low), lax.gt(self, high))
    slope = lax.div(grad_output, lax.abs(lax.mul(self, lax.sub(one, self))))
    return lax.select(outside, constant(np.nan, self) if eps is None else zero, slope)


@row("log_sigmoid_backward", promote=Promote.DEFAULT, broadcast=False)
def log_sigmoid_backward(grad_output: Array, self: Array, buffer: Array) -> Array:
    """grad * sigmoid(-x); the buffer of the forward is not needed."""
    return lax.mul(grad_output, lax.logistic(lax.neg(self)))


@row("glu_backward", promote=Promote.DEFAULT, broadcast=False)
def glu_backward(grad_output: Array, self: Array, dim: int) -> Array:
    """Gradients of both halves, joined."""
    first, gate = halves(self, dim)
    on = lax.logistic(gate)
    grad_first = lax.mul(grad_output, on)
    grad_gate = lax.mul(lax.mul(grad_first, lax.sub(constant(1, on), on)), first)
    return lax.concatenate([grad_first, grad_gate], wrap_dim(dim, self.ndim))


@row("glu_backward_jvp", promote=Promote.DEFAULT, broadcast=False)
def glu_backward_jvp(grad_x: Array, grad_glu: Array, x: Array, dgrad_glu: Array, dx: Array, dim: int) -> Array:
    """The change of glu_backward's result when grad_glu changes by dgrad_glu and x by dx."""
    first, gate = halves(x, dim)
    dfirst, dgate = halves(dx, dim)
    on = lax.logistic(gate)
    off = lax.sub(constant(1, on), on)
    slope = lax.mul(on, off)
    dslope = lax.mul(lax.mul(slope, lax.sub(off, on)), dgate)
    left = lax.add(lax.mul(dgrad_glu, on), lax.mul(grad_glu, lax.mul(slope, dgate)))
    right = lax.add(lax.mul(lax.mul(dgrad_glu, slope), first), lax.mul(grad_glu, lax.mul(slope, dfirst)))
    right = lax.add(right, lax.mul(lax.mul(grad_glu, dslope), first))
    return lax.concatenate([left, right], wrap_dim(dim, x.ndim))
