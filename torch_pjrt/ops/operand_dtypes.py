"""Which dtypes an operator takes, where torch's CPU kernels say so and its meta kernels do not.

Tables by operator, each a kind of mistake: complex numbers have no order, floats no bits, integers no inverse matrix;
matrices and parameters must have one dtype; an index is an integer. Asked once per template (ops/metadata.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from torch_pjrt.errors import InvalidOperandError

Named = dict[str, Any]


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in names.split())


# No complex numbers.
REAL = _aten(
    """
    ge gt le lt clamp clamp_min clamp_max maximum minimum fmax fmin max min aminmax atan2 copysign heaviside nextafter fmod
    remainder ceil floor trunc frac round sign signbit cummax cummin kthvalue median nanmedian mode sort topk i0 igamma
    igammac polygamma index_reduce _softmax _log_softmax
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d avg_pool2d avg_pool3d
    max_pool2d_with_indices max_pool3d_with_indices fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d
    upsample_trilinear3d relu leaky_relu elu glu _prelu_kernel hardswish hardsigmoid hardtanh mish threshold softshrink
    hardshrink gelu log_sigmoid_forward binary_cross_entropy multi_margin_loss multilabel_margin_loss_forward
    native_group_norm native_batch_norm
    """
)

# Integers and bools only.
INTEGRAL = _aten("bitwise_not bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm")

# At least one operand that is floating point or complex.
INEXACT = _aten(
    """
    linalg_cholesky_ex cholesky cholesky_inverse _cholesky_solve_helper cholesky_solve geqrf linalg_lu_factor_ex linalg_lu
    linalg_lu_solve linalg_qr ormqr triangular_solve linalg_solve_triangular linalg_inv_ex _linalg_solve_ex _linalg_eigh
    _linalg_svd linalg_eig _linalg_det _linalg_slogdet
    frac logaddexp logaddexp2 nextafter igamma igammac lerp _softmax _log_softmax adaptive_max_pool2d adaptive_max_pool3d
    _adaptive_avg_pool2d _adaptive_avg_pool3d fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d
    elu glu _prelu_kernel silu hardswish hardsigmoid mish hardshrink gelu log_sigmoid_forward binary_cross_entropy
    multi_margin_loss multilabel_margin_loss_forward
    """
)

# No bools, unless another operand makes numbers of them.
NUMERIC = _aten(
    """
    addcmul addcdiv linalg_cross lerp clamp fmod remainder ceil floor round trunc kthvalue median nanmedian topk gcd
    mm mv bmm dot vdot addmm addmv addbmm baddbmm linear
    index_reduce convolution convolution_overrideable bitwise_left_shift bitwise_right_shift
    """
)

# Operators of which these arguments have one dtype.
_MATRICES = (
    "self",
    "mat1",
    "mat2",
    "mat",
    "vec",
    "vec2",
    "tensor",
    "batch1",
    "batch2",
    "other",
    "input",
    "weight",
    "bias",
)
ONE_DTYPE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        _aten(
            "mm mv bmm dot vdot addmm addmv addbmm baddbmm _addmm_activation linear convolution convolution_overrideable "
            "linalg_cross"
        ),
        _MATRICES,
    ),
    **dict.fromkeys(_aten("index_add index_copy index_reduce"), ("self", "source")),
    **dict.fromkeys(_aten("index_put _unsafe_index_put"), ("self", "values")),
    "aten::_cdist_forward": ("x1", "x2"),
    "aten::binary_cross_entropy": ("self", "target"),
}

# Norms, whose parameters have the input's dtype, or float32 beside a narrower one.
NORMS = _aten("native_layer_norm native_group_norm native_batch_norm")

# Arguments that are positions.
INDICES = ("index", "indices")


def check_dtypes(op: OpOverload, args: tuple[Any, ...], kwargs: Named) -> None:
    """Raise for operands of dtypes that op does not take."""
    operator = op._schema.name
    named = dict(zip((a.name for a in op._schema.arguments), args), **kwargs)  # noqa: B905 - defaults are left out
    name = operator.removeprefix("aten::")
    _check_indices(name, named)
    if operator in ONE_DTYPE:
        _check_one_dtype(name, named, ONE_DTYPE[operator])
    if operator in NORMS:
        _check_parameters(name, named)
    dtypes = [v.dtype for k, v in named.items() if isinstance(v, torch.Tensor) and k not in INDICES]
    numbers = [type(v) for v in named.values() if isinstance(v, (bool, int, float, complex))]
    said = " and ".join(dict.fromkeys(map(str, dtypes)))
    if operator in REAL and (any(d.is_complex for d in dtypes) or complex in numbers):
        raise InvalidOperandError(f"{name} is not implemented for complex numbers, which have no order, but got {said}")
    if operator in INTEGRAL and any(d.is_complex or d.is_floating_point for d in dtypes):
        raise InvalidOperandError(f"{name} takes integers and bools, but got {said}")
    if operator in INEXACT and dtypes and not any(d.is_complex or d.is_floating_point for d in dtypes):
        raise InvalidOperandError(f"{name} takes floating point numbers, but got {said}")
    if operator in NUMERIC and all(d is torch.bool for d in dtypes) and not {int, float, complex} & set(numbers):
        raise InvalidOperandError(f"{name} is not implemented for torch.bool")


def _check_one_dtype(name: str, named: Named, arguments: tuple[str, ...]) -> None:
    found = {k: named[k].dtype for k in arguments if isinstance(named.get(k), torch.Tensor)}
    if len(set(found.values())) > 1:
        parts = ", ".join(f"{k} {dtype}" for k, dtype in found.items())
        raise InvalidOperandError(f"{name} expects operands of the same dtype, but got {parts}")


def _check_parameters(name: str, named: Named) -> None:
    dtype = named["input"].dtype
    allowed = (dtype, torch.float32) if dtype in (torch.float16, torch.bfloat16) else (dtype,)
    for parameter in ("weight", "bias"):
        given = named.get(parameter)
        if given is not None and given.dtype not in allowed:
            raise InvalidOperandError(
                f"{name} expects {parameter} in the dtype of input, {dtype}, but got {given.dtype}"
            )


def _check_indices(name: str, named: Named) -> None:
    for argument in INDICES:
        given = named.get(argument)
        if isinstance(given, torch.Tensor) and (given.is_floating_point() or given.is_complex()):
            raise InvalidOperandError(f"{name}(): Expected dtype int64 for {argument}, but got {given.dtype}")
        for index in given if isinstance(given, (list, tuple)) else ():
            if isinstance(index, torch.Tensor) and (index.is_floating_point() or index.is_complex()):
                raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, not {index.dtype}")
