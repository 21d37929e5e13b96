"""One parameter's step of each fused optimizer, and the loss scaler's two rows.

The dispatcher expands aten::_fused_adam_ and its kin (lists of tensors, in place) into these rows, one per parameter,
under names of our own, pjrt::*. Formulas follow torch.optim. Each row gives the new values of what it writes, in
argument order, absent ones (None) left out. A step whose found_inf is 1 changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, constant, like, opmath
from torch_pjrt.ops.registry import add_row, row

_ADAM = (
    "(Tensor self, Tensor grad, Tensor exp_avg, Tensor exp_avg_sq, Tensor? max_exp_avg_sq, Tensor state_step, *, "
    "{lr} lr, float beta1, float beta2, float weight_decay, float eps, bool amsgrad, bool maximize, "
    "Tensor? grad_scale=None, Tensor? found_inf=None) -> Tensor[]"
)
_SGD = (
    "(Tensor self, Tensor grad, Tensor? momentum_buffer, *, float weight_decay, float momentum, {lr} lr, "
    "float dampening, bool nesterov, bool maximize, bool is_first_step, "
    "Tensor? grad_scale=None, Tensor? found_inf=None) -> Tensor[]"
)
_ADAGRAD = (
    "(Tensor self, Tensor grad, Tensor state_sum, Tensor state_step, *, {lr} lr, float lr_decay, float weight_decay, "
    "float eps, bool maximize, Tensor? grad_scale=None, Tensor? found_inf=None) -> Tensor[]"
)
# What the library "pjrt" must define for these rows: name (with overload) -> the rest of its schema.
SCHEMAS: dict[str, str] = {
    "amp_unscale": "(Tensor self, Tensor found_inf, Tensor inv_scale) -> Tensor[]",
    **{
        f"{name}_step{overload}": text.format(lr=lr)
        for name, text in {"adam": _ADAM, "adamw": _ADAM, "sgd": _SGD, "adagrad": _ADAGRAD}.items()
        for overload, lr in {"": "float", ".tensor_lr": "Tensor"}.items()
    },
}


def _number(x: Array) -> Array:
    """A 0-d (or one-element) tensor or a float as a 0-d float64."""
    return as_dtype(lax.reshape(x, ()), np.float64)


def _gradient(grad: Array, wide: np.dtype, maximize: bool, grad_scale: Array | None) -> tuple[Array, Array]:
    """The unscaled gradient (stored back, as torch does), and the one to descend along."""
    g = as_dtype(grad, wide)
    if grad_scale is not None:
        g = lax.div(g, like(lax.reshape(grad_scale, ()), g))
    return as_dtype(g, grad.dtype), lax.neg(g) if maximize else g


def _decayed(g: Array, x: Array, weight_decay: Array) -> Array:
    """g + weight_decay * x; exactly g when weight_decay is 0, whatever x holds."""
    on = lax.broadcast(lax.ne(weight_decay, lax.full_like(weight_decay, 0)), x.shape)
    return lax.select(on, lax.add(g, lax.mul(x, like(weight_decay, x))), g)


def _kept(found_inf: Array | None, old: list[Array | None], new: list[Array | None]) -> list[Array]:
    """New values in the old ones' dtypes, or the old ones when an infinity was found."""
    pairs = [(o, as_dtype(n, o.dtype)) for o, n in zip(old, new, strict=True) if o is not None and n is not None]
    if found_inf is None:
        return [n for _, n in pairs]
    skip = lax.eq(_number(found_inf), np.float64(1))
    return [lax.select(lax.broadcast(skip, o.shape), o, n) for o, n in pairs]


def _adam(
    decoupled: bool, self: Array, grad: Array, exp_avg: Array, exp_avg_sq: Array, max_exp_avg_sq: Array | None,
    state_step: Array, lr: Array, beta1: Array, beta2: Array, weight_decay: Array, eps: Array, amsgrad: bool,
    maximize: bool, grad_scale: Array | None, found_inf: Array | None,
) -> list[Array]:  # fmt: skip
    wide, one = opmath(self.dtype), np.float64(1)
    x, m, v = (as_dtype(a, wide) for a in (self, exp_avg, exp_avg_sq))
    stored, g = _gradient(grad, wide, maximize, grad_scale)
    lr, step = _number(lr), _number(state_step)
    if decoupled:
        x = lax.mul(x, like(lax.sub(one, lax.mul(lr, weight_decay)), x))
    else:
        g = _decayed(g, x, weight_decay)
    m = lax.add(m, lax.mul(lax.sub(g, m), like(lax.sub(one, beta1), m)))
    v = lax.add(lax.mul(v, like(beta2, v)), lax.mul(lax.square(g), like(lax.sub(one, beta2), v)))
    largest = lax.max(as_dtype(max_exp_avg_sq, wide), v) if amsgrad else None
    size = lax.div(lr, lax.sub(one, lax.pow(beta1, step)))
    root = lax.sqrt(lax.sub(one, lax.pow(beta2, step)))
    scale = lax.add(lax.div(lax.sqrt(v if largest is None else largest), like(root, v)), like(eps, v))
    x = lax.sub(x, lax.div(lax.mul(m, like(size, m)), scale))
    old = [self, grad, exp_avg, exp_avg_sq, max_exp_avg_sq]
    return _kept(found_inf, old, [x, stored, m, v, max_exp_avg_sq if largest is None else largest])


def adam_step(
    self: Array, grad: Array, exp_avg: Array, exp_avg_sq: Array, max_exp_avg_sq: Array | None, state_step: Array,
    lr: Array, beta1: Array, beta2: Array, weight_decay: Array, eps: Array, amsgrad: bool, maximize: bool,
    grad_scale: Array | None, found_inf: Array | None,
) -> list[Array]:  # fmt: skip
    """Adam, weight decay in the gradient: new (self, grad, exp_avg, exp_avg_sq, max_exp_avg_sq)."""
    return _adam(
        False,
        self,
        grad,
        exp_avg,
        exp_avg_sq,
        max_exp_avg_sq,
        state_step,
        lr,
        beta1,
        beta2,
        weight_decay,
        eps,
        amsgrad,
        maximize,
        grad_scale,
        found_inf,
    )


def adamw_step(
    self: Array, grad: Array, exp_avg: Array, exp_avg_sq: Array, max_exp_avg_sq: Array | None, state_step: Array,
    lr: Array, beta1: Array, beta2: Array, weight_decay: Array, eps: Array, amsgrad: bool, maximize: bool,
    grad_scale: Array | None, found_inf: Array | None,
) -> list[Array]:  # fmt: skip
    """Adam, weights decayed on their own: new (self, grad, exp_avg, exp_avg_sq, max_exp_avg_sq)."""
    return _adam(
        True,
        self,
        grad,
        exp_avg,
        exp_avg_sq,
        max_exp_avg_sq,
        state_step,
        lr,
        beta1,
        beta2,
        weight_decay,
        eps,
        amsgrad,
        maximize,
        grad_scale,
        found_inf,
    )


def sgd_step(
    self: Array, grad: Array, momentum_buffer: Array | None, weight_decay: Array, momentum: Array, lr: Array,
    dampening: Array, nesterov: bool, maximize: bool, is_first_step: bool, grad_scale: Array | None,
    found_inf: Array | None,
) -> list[Array]:  # fmt: skip
    """SGD: new (self, grad, momentum_buffer); the first step's buffer is the gradient."""
    wide = opmath(self.dtype)
    x = as_dtype(self, wide)
    stored, g = _gradient(grad, wide, maximize, grad_scale)
    g = _decayed(g, x, weight_decay)
    buffer = None
    if momentum_buffer is not None:
        old = as_dtype(momentum_buffer, wide)
        rest = like(lax.sub(np.float64(1), dampening), g)
        buffer = g if is_first_step else lax.add(lax.mul(old, like(momentum, old)), lax.mul(g, rest))
        g = lax.add(g, lax.mul(buffer, like(momentum, buffer))) if nesterov else buffer
    x = lax.sub(x, lax.mul(g, like(_number(lr), g)))
    return _kept(found_inf, [self, grad, momentum_buffer], [x, stored, buffer])


def adagrad_step(
    self: Array, grad: Array, state_sum: Array, state_step: Array, lr: Array, lr_decay: Array, weight_decay: Array,
    eps: Array, maximize: bool, grad_scale: Array | None, found_inf: Array | None,
) -> list[Array]:  # fmt: skip
    """Adagrad: new (self, grad, state_sum)."""
    wide, one = opmath(self.dtype), np.float64(1)
    x, total = as_dtype(self, wide), as_dtype(state_sum, wide)
    stored, g = _gradient(grad, wide, maximize, grad_scale)
    g = _decayed(g, x, weight_decay)
    size = lax.div(_number(lr), lax.add(one, lax.mul(lax.sub(_number(state_step), one), lr_decay)))
    total = lax.add(total, lax.square(g))
    x = lax.sub(x, lax.div(lax.mul(g, like(size, g)), lax.add(lax.sqrt(total), like(eps, total))))
    return _kept(found_inf, [self, grad, state_sum], [x, stored, total])


_MOMENTS = ("self", "grad", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
_STEPS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "adam": (adam_step, _MOMENTS),
    "adamw": (adamw_step, _MOMENTS),
    "sgd": (sgd_step, ("self", "grad", "momentum_buffer")),
    "adagrad": (adagrad_step, ("self", "grad", "state_sum")),
}
for _name, (_fn, _updates) in _STEPS.items():
    add_row(f"pjrt::{_name}_step", _fn, updates=_updates)
    add_row(f"pjrt::{_name}_step.tensor_lr", _fn, updates=_updates)


@row("pjrt::amp_unscale", updates=("self", "found_inf"))
def amp_unscale(self: Array, found_inf: Array, inv_scale: Array) -> tuple[Array, Array]:
    """A gradient times inv_scale, and found_inf raised to 1 if the gradient holds an infinity or NaN."""
    g = as_dtype(self, opmath(self.dtype))
    finite = lax.reduce_and(lax.is_finite(g), tuple(range(g.ndim)))
    found = lax.select(lax.broadcast(finite, found_inf.shape), found_inf, constant(1, found_inf))
    return as_dtype(lax.mul(g, like(lax.reshape(inv_scale, ()), g)), self.dtype), found


@row("_amp_update_scale", updates=("self", "growth_tracker"))
def amp_update_scale(
    self: Array, growth_tracker: Array, found_inf: Array, scale_growth_factor: Array, scale_backoff_factor: Array,
    growth_interval: int,
) -> tuple[Array, Array]:  # fmt: skip
    """The next loss scale and growth tracker: back off after an infinity, grow after enough good steps."""
    found = lax.broadcast(lax.ne(_number(found_inf), np.float64(0)), self.shape)
    good = lax.add(growth_tracker, constant(1, growth_tracker))
    due = lax.eq(good, constant(growth_interval, good))
    grown = lax.mul(self, like(scale_growth_factor, self))
    grows = lax.bitwise_and(lax.reshape(due, self.shape), lax.is_finite(grown))
    scale = lax.select(found, lax.mul(self, like(scale_backoff_factor, self)), lax.select(grows, grown, self))
    reset = lax.bitwise_or(lax.reshape(found, due.shape), due)
    return scale, lax.select(reset, constant(0, good), good)
