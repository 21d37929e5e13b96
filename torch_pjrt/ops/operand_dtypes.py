"""Which dtypes an operator takes, where torch's CPU kernels say so and its meta kernels do not.

Tables by operator, each a kind of mistake: complex numbers have no order, floats no bits, integers no inverse matrix and no
fractions; matrices and parameters must have one dtype; an index is an integer. A table names operators, or one overload of
them. Half precision is not asked after, nor what CUDA takes besides (histograms of integers): a device may take more than the
CPU. Asked once per template (ops/metadata.py).
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
    native_group_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_with_update_functional
    amax amin argmax argmin searchsorted bucketize segment_reduce histc histogram _histogramdd_bin_edges
    _histogramdd_from_bin_cts _histogramdd_from_bin_tensors hash_tensor bernoulli random _fft_r2c
    _softmax_backward_data _log_softmax_backward_data _safe_softmax
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _upsample_bilinear2d_aa
    _upsample_bicubic2d_aa grid_sampler_2d grid_sampler_3d celu softplus rrelu_with_noise rrelu_with_noise_functional
    huber_loss mse_loss smooth_l1_loss hypot digamma erf erfc erfinv lgamma mvlgamma logit xlogy special_xlog1py special_zeta
    special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_entr special_erfcx
    special_i0e special_i1 special_i1e special_log_ndtr special_ndtri special_modified_bessel_i0 special_modified_bessel_i1
    special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_spherical_bessel_j0 special_chebyshev_polynomial_t
    special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he
    special_laguerre_polynomial_l special_legendre_polynomial_p
    """
) | {"pjrt::batch_norm_train"}

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
    celu softplus leaky_relu rrelu_with_noise rrelu_with_noise_functional huber_loss mse_loss smooth_l1_loss
    soft_margin_loss _softmax_backward_data _log_softmax_backward_data max_pool2d_with_indices_backward
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sampler_2d grid_sampler_3d im2col col2im
    std std_mean var var_mean hypot logcumsumexp round.decimals segment_reduce linalg_householder_product embedding_renorm
    histogram _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors
    bernoulli.default normal normal_functional uniform
    """
)

# Dtypes that operators of INEXACT take besides: bytes of images, masks that are cut into windows.
BESIDES: dict[str, torch.dtype] = {
    **dict.fromkeys(
        _aten(
            """
            upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
            _upsample_nearest_exact3d upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
            """
        ),
        torch.uint8,
    ),
    **dict.fromkeys(_aten("im2col col2im"), torch.bool),
}

# Operators of which one argument is real and floating point, whatever the others are.
REAL_FLOAT: dict[str, str] = {
    "aten::binary_cross_entropy_with_logits": "self",
    "aten::nll_loss_forward": "self",
    "aten::nll_loss2d_forward": "self",
}

# No bools, unless another operand or a number makes numbers of them.
NUMERIC = _aten(
    """
    addcmul addcdiv lerp clamp fmod remainder ceil floor round trunc gcd pow bitwise_left_shift bitwise_right_shift
    """
)

# No bools, whatever numbers stand beside them: those are sizes, dims, or factors of what is in the tensors' dtype.
BOOLLESS = _aten(
    """
    relu threshold kthvalue median nanmedian topk argmax argmin searchsorted bucketize linalg_cross mvlgamma
    mm mv bmm dot vdot addmm addmv addbmm baddbmm linear convolution convolution_overrideable index_reduce
    avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d
    """
)

# Operators that take a kind of numbers but for some values of an argument: (operator, argument, values, what they refuse).
BY_ARGUMENT: tuple[tuple[str, str, tuple[Any, ...], str], ...] = (
    ("aten::div", "rounding_mode", ("trunc", "floor"), "complex"),
    ("aten::div", "rounding_mode", ("trunc", "floor"), "bool"),
    ("aten::scatter_reduce", "reduce", ("amax", "amin"), "complex"),
    ("aten::scatter_reduce", "reduce", ("mean",), "bool"),
    ("aten::cumsum", "dtype", (torch.bool,), "anything"),
    ("aten::cumprod", "dtype", (torch.bool,), "anything"),
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
    skipped = {*INDICES, *(a.name for a in op._schema.arguments if a.is_out)}
    dtypes = [v.dtype for k, v in named.items() if isinstance(v, torch.Tensor) and k not in skipped]
    numbers = {type(v) for v in named.values() if isinstance(v, (bool, int, float, complex))}
    names = {operator, f"{operator}.{op._overloadname}"}
    said = " and ".join(dict.fromkeys(map(str, dtypes)))
    if names & REAL and (any(d.is_complex for d in dtypes) or complex in numbers):
        raise InvalidOperandError(
            f"{name} is not implemented for complex numbers, but got {said or 'a complex number'}",
            todo="Take their real and imaginary parts, or their absolute values.",
        )
    if names & INTEGRAL and any(d.is_complex or d.is_floating_point for d in dtypes):
        raise InvalidOperandError(
            f"{name} takes integers and bools, but got {said}", todo="Convert with .to(torch.int64)."
        )
    if names & INEXACT and dtypes and not any(_is_inexact(d) or d == BESIDES.get(operator) for d in dtypes):
        raise InvalidOperandError(f"{name} takes floating point numbers, but got {said}", todo="Convert with .float().")
    if all(d is torch.bool for d in dtypes) and dtypes:
        if names & BOOLLESS or (names & NUMERIC and not numbers & {int, float, complex}):
            raise InvalidOperandError(
                f"{name} is not implemented for torch.bool", todo="Convert with .to(torch.uint8)."
            )
    if operator in REAL_FLOAT:
        _check_real_float(name, named, REAL_FLOAT[operator])
    for refusing, argument, values, kind in BY_ARGUMENT:
        if refusing == operator and named.get(argument) in values:
            _check_kind(f"{name}({argument}={named[argument]!r})", dtypes, kind)


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _check_real_float(name: str, named: Named, argument: str) -> None:
    given = named.get(argument)
    if isinstance(given, torch.Tensor) and not given.is_floating_point():
        raise InvalidOperandError(
            f"{name} takes floating point numbers for {argument}, but got {given.dtype}", todo="Convert with .float()."
        )


def _check_kind(call: str, dtypes: list[torch.dtype], kind: str) -> None:
    if kind == "complex":
        found = any(d.is_complex for d in dtypes)
    else:
        found = kind == "anything" or bool(dtypes) and all(d is torch.bool for d in dtypes)
    if found:
        said = " and ".join(dict.fromkeys(map(str, dtypes)))
        raise InvalidOperandError(f"{call} is not implemented for {said}")


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
