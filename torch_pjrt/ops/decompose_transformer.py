"""Decompositions of the fast path of nn.TransformerEncoder and nn.MultiheadAttention, which torch takes for inference.

torch's CPU and CUDA have one kernel for a whole encoder layer; here it is the operators that it stands for.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from torch_pjrt.ops.decompose import decomposition

aten = torch.ops.aten
Tensor = torch.Tensor


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, L, D] as [B, H, L, D / H]."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


@decomposition("aten::_transform_bias_rescale_qkv.default")
def transform_bias_rescale_qkv(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    """Query, key and value in heads from one product; the query scaled by the root of a head's width."""
    q, k, v = (_heads(x, num_heads).contiguous() for x in (qkv + qkv_bias).chunk(3, -1))
    return q * q.shape[-1] ** -0.5, k, v


def _visible(mask: Tensor | None, mask_type: int | None) -> Tensor | None:
    """A mask of what is left out (0: [L, S], 1: [B, S], 2: [B, H, L, S]) as a mask of what takes part."""
    if mask is None:
        return None
    mask = mask.to(torch.bool).logical_not()
    return mask[:, None, None, :] if mask_type == 1 else mask


@decomposition("aten::_native_multi_head_attention.default")
def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention over batch-first operands; its weights only where they are asked for."""
    if query is key and key is value:
        q, k, v = F.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
        q, k, v = (F.linear(x, w, b) for x, w, b in parts)
    q, k, v = (_heads(x, num_head) for x in (q, k, v))
    visible = _visible(mask, mask_type)
    weights = None
    if need_weights:
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if visible is not None:
            scores = scores.masked_fill(visible.logical_not(), float("-inf"))
        weights = scores.softmax(-1)
        out = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        out = F.scaled_dot_product_attention(q, k, v, visible)
    return F.linear(out.transpose(1, 2).flatten(2), proj_weight, proj_bias), weights


@decomposition("aten::_transformer_encoder_layer_fwd.default")
def transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Attention and feed-forward, each with its norm before or after."""

    def attended(x: Tensor) -> Tensor:
        return multi_head_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]

    def fed(x: Tensor) -> Tensor:
        x = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(x) if use_gelu else F.relu(x), ffn_weight_2, ffn_bias_2)

    def first(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attended(first(src))
        return x + fed(second(x))
    x = first(src + attended(src))
    return second(x + fed(x))
