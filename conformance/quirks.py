"""Facts about single entries of op_db that the tests need: which results are undefined, and which are random.

Not excuses: an entry here is judged in another way (random ops by test_random.py), or has nothing to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import scipy.special

# Results that may be random: a sample of these is judged by value if CPU torch gives the same for all seeds tried.
RANDOM = frozenset(
    """
    bernoulli cauchy exponential geometric log_normal multinomial normal normal.in_place normal.number_mean
    nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.feature_alpha_dropout.with_train nn.functional.fractional_max_pool2d
    nn.functional.fractional_max_pool3d nn.functional.multi_head_attention_forward nn.functional.rrelu
    nn.functional.scaled_dot_product_attention rand_like randint randint_like randn randn_like uniform
    pca_lowrank svd_lowrank
    """.split()
)
# Memory that nobody wrote.
EMPTY = frozenset("empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split())

# Results of a size that depends on values are prefixes of padded ones, so that programs do not depend on the count; torch
# stores these by columns, which a prefix cannot be. lstsq's solution is a part of LAPACK's work buffer on the CPU, and the
# CPU's choice of an attention kernel decides the strides of the result.
UNLIKE_STRIDES = frozenset(
    "nonzero argwhere linalg.lstsq linalg.lstsq.grad_oriented nn.functional.scaled_dot_product_attention".split()
)

# What CPU torch computes to seven digits only, in float64 as well: SciPy tells the truth, in every dtype.
EXACT: dict[str, Callable[[Any], Any]] = {
    "special.airy_ai": lambda x: scipy.special.airy(x)[0],
    "special.bessel_j0": scipy.special.j0,
    "special.bessel_j1": scipy.special.j1,
    "special.bessel_y0": scipy.special.y0,
    "special.bessel_y1": scipy.special.y1,
}

# Gradients that CPU torch computes with a constant of float32 whatever the dtype (1/6), and how far that may take them.
ROUGH_GRADIENTS = {"nn.functional.hardsigmoid": 1e-7}

# Norms whose saved statistics (all results but the first) are float32 for narrow operands on CUDA and in torch's meta kernels,
# and narrow in its CPU kernels only: judged as float32.
STATISTICS = frozenset("native_layer_norm native_batch_norm _native_batch_norm_legit _batch_norm_with_update".split())

# Operands that torch wants on the CPU: which of the arguments.
HOST_OPERANDS = {"tensor_split": (1,)}

# (values, indices) where equal values leave the index free: the place of dim among the arguments after the input. The
# index is judged by the value that it points at, and no element may be taken twice.
TIED = {"kthvalue": 1, "topk": 1, "sort": 0, "argsort": 0, "mode": 0}
# Values only, sorted along this dim: equal ones leave free whose gradient is whose.
TIED_VALUES = {"msort": 0}
