"""torch.autocast for the device: which ops run in the lower precision, which in float32, which in the widest type.

The lists are those of torch's own accelerators (ATen/autocast_mode.h). torch offers them to out-of-tree devices as
C++ macros only, so the kernels here are Python, on the AutocastPrivateUse1 key, and so is the cache that casts each
float32 weight once for an autocast region. Ops that no list names fall through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_KEY = "AutocastPrivateUse1"

LOWER = (
    "_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input "
    "conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm "
    "baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell "
    "rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention lstm.input "
    "gru.input rnn_tanh.input rnn_relu.input conv1d.padding conv2d.padding conv3d.padding"
).split()

FLOAT32 = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar "
    "pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim "
    "nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d "
    "hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss "
    "multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss "
    "binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d "
    "_upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d "
    "upsample_bicubic2d _upsample_bicubic2d_aa"
).split()

FLOAT32_RESULT = (
    "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm "
    "linalg_matrix_norm.str_ord sum sum.dim_IntList"
).split()

WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()

_excluded = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))
_Exclude = torch._C._ExcludeDispatchKeyGuard
_NARROW = frozenset({torch.float16, torch.bfloat16, torch.float32})
_FLOAT32 = torch.float32
_dtype_in_force = torch.get_autocast_dtype  # torch's own, before patches.py: inside a region it is always set
_libraries: list[torch.library.Library] = []
_cache: dict[tuple[int, torch.dtype, bool], tuple[torch.Tensor, int, torch.Tensor]] = {}
_name = ""


def register(name: str) -> None:
    """Register the lists and the fallthrough for everything else."""
    global _name
    _name = name
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(torch.library.fallthrough_kernel, _KEY)
    lib = torch.library.Library("aten", "IMPL")
    for makers, names in ((_lower, LOWER), (_float32, FLOAT32), (_float32_result, FLOAT32_RESULT), (_widest, WIDEST)):
        for each in names:
            op = _find(each)
            if op is not None:
                lib.impl(each, makers(op), _KEY)
    lib.impl("norm.Scalar", _norm_scalar, _KEY)
    lib.impl("norm.ScalarOpt_dim", _norm_dim, _KEY)
    lib.impl("binary_cross_entropy", _banned_bce, _KEY)
    _libraries.extend((rest, lib))
    torch.set_autocast_dtype(name, torch.bfloat16)


def clear_cache() -> None:
    """Forget the cast weights; torch.clear_autocast_cache calls this (patches.py)."""
    _cache.clear()


def _find(name: str) -> Any:
    """The overload of that name, or None when this torch has none."""
    packet, _, overload = name.partition(".")
    found = getattr(torch.ops.aten, packet, None)
    return None if found is None else getattr(found, overload or "default", None)


def _eligible(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _NARROW and value.device.type == _name


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """Cast what may be cast: floating tensors of ours narrower than float64, alone or in lists."""
    if isinstance(value, torch.Tensor):
        found = value.dtype
        if found is dtype or found not in _NARROW:
            return value
        if found is _FLOAT32 and value.requires_grad and value.is_leaf and torch.is_autocast_cache_enabled():
            return _cast_weight(value, dtype)
        return value.to(dtype) if value.device.type == _name else value
    if isinstance(value, (list, tuple)):
        return [_cast(each, dtype) for each in value]
    return value


def _cast_weight(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Cast a float32 leaf once for the region; anew when it was written since, or when grad mode changed."""
    key = (id(weight), dtype, torch.is_grad_enabled())
    hit = _cache.get(key)
    if hit is not None and hit[0] is weight and hit[1] == weight._version:
        return hit[2]
    if weight.device.type != _name:
        return weight
    cast = weight.to(dtype)
    if not weight._is_view() and _cacheable(weight):
        _cache[key] = (weight, weight._version, cast)
    return cast


def _cacheable(weight: torch.Tensor) -> bool:
    return type(weight) in (torch.nn.Parameter, torch.Tensor) and not torch.is_inference_mode_enabled()


def _lower(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _Exclude(_excluded):
            dtype = _dtype_in_force(_name)
            if kwargs:
                kwargs = {name: _cast(value, dtype) for name, value in kwargs.items()}
            return op(*[_cast(value, dtype) for value in args], **kwargs)

    return kernel


def _float32(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _Exclude(_excluded):
            if kwargs:
                kwargs = {name: _cast(value, _FLOAT32) for name, value in kwargs.items()}
            return op(*[_cast(value, _FLOAT32) for value in args], **kwargs)

    return kernel


def _float32_result(op: Any) -> Callable[..., Any]:
    """Ask the op for a float32 result when the caller asked for none; the op widens as it reads."""
    position = [argument.name for argument in op._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _Exclude(_excluded):
            if _eligible(args[0]):
                if len(args) > position:
                    if args[position] is None:
                        args = (*args[:position], _FLOAT32, *args[position + 1 :])
                elif kwargs.get("dtype") is None:
                    kwargs["dtype"] = _FLOAT32
            return op(*args, **kwargs)

    return kernel


def _widest(op: Any) -> Callable[..., Any]:
    """Bring all floating arguments to float32 if one is float32, else to the lower precision."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _Exclude(_excluded):
            values = [*args, *kwargs.values()]
            tensors = [t for v in values for t in (v if isinstance(v, (list, tuple)) else (v,)) if _eligible(t)]
            dtype = _FLOAT32 if any(t.dtype is _FLOAT32 for t in tensors) else _dtype_in_force(_name)
            kwargs = {name: _cast(value, dtype) for name, value in kwargs.items()}
            return op(*[_cast(value, dtype) for value in args], **kwargs)

    return kernel


def _norm_scalar(self: torch.Tensor, p: Any = 2) -> torch.Tensor:
    with _Exclude(_excluded):
        if _eligible(self):
            return torch.ops.aten.norm.ScalarOpt_dtype(self, p, dtype=_FLOAT32)
        return torch.ops.aten.norm.Scalar(self, p)


def _norm_dim(self: torch.Tensor, p: Any, dim: list[int], keepdim: bool = False) -> torch.Tensor:
    with _Exclude(_excluded):
        if _eligible(self):
            return torch.ops.aten.norm.ScalarOpt_dim_dtype(self, p, dim, keepdim, dtype=_FLOAT32)
        return torch.ops.aten.norm.ScalarOpt_dim(self, p, dim, keepdim)


def _banned_bce(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Combine the sigmoid and the loss with torch.nn.functional.binary_cross_entropy_with_logits or "
        "torch.nn.BCEWithLogitsLoss, which may be autocast; or compute the loss under "
        "`with torch.autocast(device_type, enabled=False)`."
    )
