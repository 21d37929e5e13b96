"""Pointwise losses and their gradients: squared, absolute, Huber, soft margin, binary cross entropy.

`reduction` is 0 none, 1 mean, 2 sum. Rows promote and broadcast, so all arrays have one shape and float dtype; a
scalar grad_output arrives broadcast too. Losses over classes are in loss_classes.py.
"""

from __future__ import annotations

from typing import Any

from jax import lax

from torch_pjrt.lowerings.arrays import Array, constant
from torch_pjrt.ops.registry import Promote, row

NONE, MEAN, SUM = 0, 1, 2


def reduced(x: Array, reduction: int) -> Array:
    """A loss per element reduced to what the caller asked for; the mean of nothing is NaN."""
    if reduction == NONE:
        return x
    total = lax.reduce_sum(x, tuple(range(x.ndim)))
    return lax.div(total, constant(x.size, total)) if reduction == MEAN else total


def shared(grad: Array, reduction: int) -> Array:
    """The gradient that reaches each element of the unreduced loss."""
    return lax.div(grad, constant(grad.size, grad)) if reduction == MEAN and grad.size else grad


@row("mse_loss", promote=Promote.DEFAULT)
def mse_loss(self: Array, target: Array, reduction: int) -> Array:
    """(self - target)**2."""
    return reduced(lax.square(lax.sub(self, target)), reduction)


@row("mse_loss_backward", promote=Promote.DEFAULT)
def mse_loss_backward(grad_output: Array, self: Array, target: Array, reduction: int) -> Array:
    """2 (self - target) grad."""
    diff = lax.sub(self, target)
    return lax.mul(lax.add(diff, diff), shared(grad_output, reduction))


@row("smooth_l1_loss", promote=Promote.DEFAULT)
def smooth_l1_loss(self: Array, target: Array, reduction: int, beta: Array) -> Array:
    """Quadratic below beta, absolute above."""
    z = lax.abs(lax.sub(self, target))
    half = constant(0.5, z)
    loss = lax.select(lax.lt(z, beta), lax.div(lax.mul(half, lax.square(z)), beta), lax.sub(z, lax.mul(half, beta)))
    return reduced(loss, reduction)


@row("smooth_l1_loss_backward", promote=Promote.DEFAULT)
def smooth_l1_loss_backward(grad_output: Array, self: Array, target: Array, reduction: int, beta: Array) -> Array:
    """diff / beta below beta, the sign above; 0 where the difference is 0."""
    diff = lax.sub(self, target)
    slope = lax.select(lax.ge(lax.abs(diff), beta), lax.sign(diff), lax.div(diff, beta))
    return lax.mul(slope, shared(grad_output, reduction))


@row("huber_loss", promote=Promote.DEFAULT)
def huber_loss(self: Array, target: Array, reduction: int, delta: Array) -> Array:
    """Quadratic up to delta, linear above with slope delta."""
    z = lax.abs(lax.sub(self, target))
    half = constant(0.5, z)
    linear = lax.mul(delta, lax.sub(z, lax.mul(half, delta)))
    return reduced(lax.select(lax.le(z, delta), lax.mul(half, lax.square(z)), linear), reduction)


@row("huber_loss_backward", promote=Promote.DEFAULT)
def huber_loss_backward(grad_output: Array, self: Array, target: Array, reduction: int, delta: Array) -> Array:
    """The difference clamped to [-delta, delta]."""
    slope = lax.clamp(lax.neg(delta), lax.sub(self, target), delta)
    return lax.mul(slope, shared(grad_output, reduction))


@row("soft_margin_loss", promote=Promote.DEFAULT)
def soft_margin_loss(self: Array, target: Array, reduction: int) -> Array:
    """log(1 + exp(-target * self))."""
    return reduced(softplus(lax.neg(lax.mul(target, self))), reduction)


@row("soft_margin_loss_backward", promote=Promote.DEFAULT)
def soft_margin_loss_backward(grad_output: Array, self: Array, target: Array, reduction: int) -> Array:
    """-target * sigmoid(-target * self)."""
    slope = lax.neg(lax.mul(target, lax.logistic(lax.neg(lax.mul(target, self)))))
    return lax.mul(slope, shared(grad_output, reduction))


def softplus(x: Array) -> Array:
    """log(1 + exp(x)) without overflow."""
    return lax.add(lax.max(x, constant(0, x)), lax.log1p(lax.exp(lax.neg(lax.abs(x)))))


@row("binary_cross_entropy", promote=Promote.DEFAULT)
def binary_cross_entropy(self: Array, target: Array, weight: Array | None, reduction: int) -> Array:
    """-(t log x + (1 - t) log(1 - x)), logs held at -100 or above."""
    floor = constant(-100, self)
    log_x = lax.max(lax.log(self), floor)
    log_rest = lax.max(lax.log1p(lax.neg(self)), floor)
    loss = lax.sub(lax.mul(lax.sub(target, constant(1, target)), log_rest), lax.mul(target, log_x))
    return reduced(loss if weight is None else lax.mul(loss, weight), reduction)


@row("binary_cross_entropy_backward", promote=Promote.DEFAULT)
def binary_cross_entropy_backward(
    grad_output: Array, self: Array, target: Array, weight: Array | None, reduction: int
) -> Array:
    """(x - t) / max(x (1 - x), 1e-12)."""
    spread = lax.max(lax.mul(lax.sub(constant(1, self), self), self), constant(1e-12, self))
    slope = lax.div(lax.sub(self, target), spread)
    slope = slope if weight is None else lax.mul(slope, weight)
    return lax.mul(slope, shared(grad_output, reduction))


@row("binary_cross_entropy_with_logits", promote=Promote.DEFAULT)
def binary_cross_entropy_with_logits(
    self: Array, target: Array, weight: Array | None, pos_weight: Array | None, reduction: int
) -> Array:
    """Binary cross entropy of sigmoid(self), computed from the logits."""
    one: Any = constant(1, self)
    cost = softplus(lax.neg(self))
    if pos_weight is not None:
        cost = lax.mul(cost, lax.add(lax.mul(lax.sub(pos_weight, one), target), one))
    loss = lax.add(lax.mul(lax.sub(one, target), self), cost)
    return reduced(loss if weight is None else lax.mul(loss, weight), reduction)
