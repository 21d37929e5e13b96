"""Gradients through gamma and Dirichlet variates: how a variate moves with its parameter at a fixed probability.

For a density p and a distribution function F that is -(dF/dparameter) / p (Figurnov et al., 2018).
"""

from __future__ import annotations

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, constant, opmath
from torch_pjrt.ops.registry import row

STEP = 1e-4  # of the parameter: the difference's error is its square, 1e-8 relative


@row("_standard_gamma_grad")
def standard_gamma_grad(self: Array, output: Array) -> Array:
    """d(variate) / d(shape)."""
    wide = opmath(self.dtype)
    return as_dtype(lax.random_gamma_grad(as_dtype(self, wide), as_dtype(output, wide)), self.dtype)


@row("_dirichlet_grad")
def dirichlet_grad(x: Array, alpha: Array, total: Array) -> Array:
    """d(variate) / d(alpha) of Beta(alpha, total - alpha) at x, divided by 1 - x, which is what the Dirichlet needs.

    The derivative of the incomplete beta function is a central difference in float64, taken on the side where the
    function is small.
    """
    dtype = x.dtype
    x, a, total = (as_dtype(v, np.float64) for v in (x, alpha, total))
    b, one = lax.sub(total, a), constant(1, a)
    low = lax.lt(x, lax.div(a, total))
    step = lax.mul(a, constant(STEP, a))
    near, far = lax.add(a, step), lax.sub(a, step)
    rest = lax.sub(one, x)

    def below(first: Array) -> Array:
        """F, or F - 1 on the upper side: their derivatives agree."""
        p, q, at = lax.select(low, first, b), lax.select(low, b, first), lax.select(low, x, rest)
        value = lax.betainc(p, q, at)
        return lax.select(low, value, lax.neg(value))

    slope = lax.div(lax.sub(below(near), below(far)), lax.add(step, step))
    log_beta = lax.sub(lax.add(lax.lgamma(a), lax.lgamma(b)), lax.lgamma(total))
    log_density = lax.sub(
        lax.add(lax.mul(lax.sub(a, one), lax.log(x)), lax.mul(lax.sub(b, one), lax.log1p(lax.neg(x)))), log_beta
    )
    return as_dtype(lax.neg(lax.div(lax.mul(slope, lax.exp(lax.neg(log_density))), rest)), dtype)
