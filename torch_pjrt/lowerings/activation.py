"""Activation functions, forward. Their gradients are in activation_backward.py.

Rows promote and broadcast, and compute in at least float32; Scalars arrive as arrays of the input's shape and dtype.
"""

from __future__ import annotations

import math

from jax import lax

from torch_pjrt.lowerings.arrays import Array, constant, is_complex, isnan, wrap_dim
from torch_pjrt.lowerings.complex_functions import logistic
from torch_pjrt.lowerings.elementwise import at_least, at_most
from torch_pjrt.ops.registry import Promote, row


@row("relu", promote=Promote.DEFAULT)
def relu(self: Array) -> Array:
    """max(self, 0), which XLA joins to the product before it on GPUs; so relu(-0.0) is 0.0, on CPU torch -0.0."""
    return lax.max(self, constant(0, self))


@row("hardtanh", promote=Promote.DEFAULT)
def hardtanh(self: Array, min_val: Array, max_val: Array) -> Array:
    """self within [min_val, max_val]."""
    return at_most(at_least(self, min_val), max_val)


@row("sigmoid", promote=Promote.INT_TO_FLOAT)
def sigmoid(self: Array) -> Array:
    """1 / (1 + exp(-self))."""
    return logistic(self) if is_complex(self) else lax.logistic(self)


@row("gelu", promote=Promote.DEFAULT)
def gelu(self: Array, approximate: str) -> Array:
    """self times the normal distribution function, exact or by tanh: (1 + tanh(u)) / 2 = sigmoid(2u) cancels nothing."""
    half, one = constant(0.5, self), constant(1, self)
    if approximate == "tanh":
        cube = lax.mul(lax.mul(self, self), self)
        twice = lax.mul(constant(math.sqrt(8 / math.pi), self), lax.add(self, lax.mul(constant(0.044715, self), cube)))
        return lax.mul(self, lax.logistic(twice))
    return lax.mul(lax.mul(half, self), lax.add(one, lax.erf(lax.mul(self, constant(math.sqrt(0.5), self)))))


@row("silu", promote=Promote.DEFAULT)
def silu(self: Array) -> Array:
    """self * sigmoid(self)."""
    return lax.mul(self, sigmoid(self))


@row("mish", promote=Promote.DEFAULT)
def mish(self: Array) -> Array:
    """self * tanh(softplus(self))."""
    return lax.mul(self, lax.tanh(lax.log1p(lax.exp(self))))


@row("elu", promote=Promote.DEFAULT)
def elu(self: Array, alpha: Array, scale: Array, input_scale: Array) -> Array:
    """scale * self above zero, scale * alpha * (exp(input_scale * self) - 1) below."""
    below = lax.mul(lax.mul(alpha, scale), lax.expm1(lax.mul(self, input_scale)))
    return lax.select(lax.lt(self, constant(0, self)), below, lax.mul(self, scale))


@row("celu", promote=Promote.DEFAULT)
def celu(self: Array, alpha: Array) -> Array:
    """elu whose slope is continuous for every alpha."""
    one = constant(1, self)
    return elu(self, alpha, one, lax.div(one, alpha))


@row("leaky_relu", promote=Promote.DEFAULT)
def leaky_relu(self: Array, negative_slope: Array) -> Array:
    """self above zero, negative_slope * self below."""
    return lax.select(lax.gt(self, constant(0, self)), self, lax.mul(self, negative_slope))


@row("_prelu_kernel", promote=Promote.DEFAULT)
def prelu(self: Array, weight: Array) -> Array:
    """leaky_relu whose slope is learned, one per channel."""
    return leaky_relu(self, weight)


@row("softplus", promote=Promote.DEFAULT)
def softplus(self: Array, beta: Array, threshold: Array) -> Array:
    """log(1 + exp(beta * self)) / beta, self itself beyond the threshold."""
    scaled = lax.mul(self, beta)
    return lax.select(lax.gt(scaled, threshold), self, lax.div(lax.log1p(lax.exp(scaled)), beta))


@row("softshrink", promote=Promote.DEFAULT)
def softshrink(self: Array, lambd: Array) -> Array:
    """self moved lambd towards zero, zero (or NaN) within."""
    within = lax.select(lax.lt(self, lax.neg(lambd)), lax.add(self, lambd), lax.mul(self, constant(0, self)))
    return lax.select(lax.gt(self, lambd), lax.sub(self, lambd), within)


def inside(x: Array, low: Array, high: Array) -> Array:
    """low <= x <= high."""
    return lax.bitwise_and(lax.ge(x, low), lax.le(x, high))


@row("hardshrink", promote=Promote.DEFAULT)
def hardshrink(self: Array, lambd: Array) -> Array:
    """Zero within [-lambd, lambd], self outside."""
    return lax.select(inside(self, lax.neg(lambd), lambd), constant(0, self), self)


@row("hardsigmoid", promote=Promote.DEFAULT)
def hardsigmoid(self: Array) -> Array:
    """(self + 3) / 6 within [0, 1]."""
    shifted = lax.max(lax.add(self, constant(3, self)), constant(0, self))
    return lax.div(lax.min(shifted, constant(6, self)), constant(6, self))


@row("hardswish", promote=Promote.DEFAULT)
def hardswish(self: Array) -> Array:
    """self * hardsigmoid(self)."""
    shifted = lax.max(lax.add(self, constant(3, self)), constant(0, self))
    return lax.div(lax.mul(self, lax.min(shifted, constant(6, self))), constant(6, self))


@row("threshold", promote=Promote.DEFAULT)
def threshold(self: Array, threshold: Array, value: Array) -> Array:
    """self above the threshold, value elsewhere."""
    return lax.select(lax.le(self, threshold), value, self)


@row("logit", promote=Promote.INT_TO_FLOAT)
def logit(self: Array, eps: Array | None) -> Array:
    """log(p / (1 - p)), p = self kept within [eps, 1 - eps]."""
    one = constant(1, self)
    if eps is not None:
        self = lax.select(isnan(self), self, lax.max(lax.min(self, lax.sub(one, eps)), eps))
    return lax.log(lax.div(self, lax.sub(one, self)))


@row("log_sigmoid_forward", promote=Promote.DEFAULT)
def log_sigmoid_forward(self: Array, out: tuple) -> tuple[Array, Array]:  # type: ignore[type-arg]
    """(log(sigmoid(self)), exp(-|self|)); the second only where torch asks for it."""
    small = lax.exp(lax.neg(lax.abs(self)))
    result = lax.sub(lax.min(self, constant(0, self)), lax.log1p(small))
    return result, small if tuple(out[1][0]) == self.shape else lax.full(out[1][0], 0, self.dtype)


def halves(x: Array, dim: int) -> tuple[Array, Array]:
    """The two halves of an array along one dim."""
    dim = wrap_dim(dim, x.ndim)
    half = x.shape[dim] // 2
    return lax.slice_in_dim(x, 0, half, axis=dim), lax.slice_in_dim(x, half, 2 * half, axis=dim)


@row("glu", promote=Promote.DEFAULT)
def glu(self: Array, dim: int) -> Array:
    """First half times sigmoid of the second."""
    first, gate = halves(self, dim)
    return lax.mul(first, lax.logistic(gate))


@row("glu_jvp", promote=Promote.DEFAULT, broadcast=False)
def glu_jvp(glu: Array, x: Array, dx: Array, dim: int) -> Array:
    """The change of glu(x) when x changes by dx."""
    _, gate = halves(x, dim)
    dfirst, dgate = halves(dx, dim)
    on = lax.logistic(gate)
    return lax.add(lax.mul(dfirst, on), lax.mul(lax.mul(dgate, lax.sub(constant(1, on), on)), glu))
