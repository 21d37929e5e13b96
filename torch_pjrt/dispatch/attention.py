"""scaled_dot_product_attention on our attention row, with torch's own backward formula.

torch picks a device's attention kernel through a C++ stub that Python cannot fill, so the composite operator itself is
given a kernel on our keys. What the row cannot take (odd ranks, nested tensors) goes to torch's composite formula.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """softmax(query @ key.T * scale + mask) @ value for [..., H, L, E]; see torch.nn.functional."""
    if not _fits(query, key, value, attn_mask, is_causal, enable_gqa):
        return aten._scaled_dot_product_attention_math.default(  # type: ignore[no-any-return]
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]
    flat = query.dim() == 3
    if flat:
        query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
    if attn_mask is not None:
        attn_mask = attn_mask[(None,) * (4 - attn_mask.dim())]
    out = aten._scaled_dot_product_fused_attention_overrideable.default(
        query, key, value, attn_mask, dropout_p, is_causal, False, scale=scale
    )[0]
    return out.squeeze(0) if flat else out  # type: ignore[no-any-return]


def _fits(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    enable_gqa: bool,
) -> bool:
    if not query.dim() == key.dim() == value.dim() or query.dim() not in (3, 4):
        return False
    if not (query.is_floating_point() and query.dtype is key.dtype is value.dtype) or 0 in (*query.shape, *key.shape):
        return False
    if mask is not None and (is_causal or mask.dim() > query.dim() or mask.device.type != query.device.type):
        return False
    if query.shape[:-3] != key.shape[:-3] or key.shape[:-1] != value.shape[:-1] or query.shape[-1] != key.shape[-1]:
        return False
    heads = query.shape[-3], key.shape[-3]
    return heads[0] == heads[1] or (enable_gqa and query.dim() == 4 and heads[0] % heads[1] == 0)


def fused_attention(query: torch.Tensor, key: torch.Tensor, *rest: Any, **kwargs: Any) -> tuple[Any, ...]:
    """aten::_scaled_dot_product_fused_attention_overrideable: the row's results, and the two lengths as numbers."""
    from torch_pjrt.dispatch.kernels import results_of
    from torch_pjrt.dispatch.table import row_kernel

    kernel = row_kernel("aten::_scaled_dot_product_fused_attention_overrideable.default")
    results = list(results_of(*kernel.step((query, key, *rest), kwargs)))
    results[4:6] = [query.shape[-2], key.shape[-2]]
    return tuple(results)


KERNELS = {"_scaled_dot_product_fused_attention_overrideable": fused_attention}


def register(library: torch.library.Library) -> None:
    """Register this module's kernels."""
    for name, fn in KERNELS.items():
        library.impl(name, fn, "PrivateUse1")
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        library.impl("scaled_dot_product_attention", scaled_dot_product_attention, key)
