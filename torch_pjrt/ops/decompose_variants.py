"""Decompositions of overloads that are other operators under another name: torch's internal spellings and CPU-only kernels.

Graphs exported from the CPU hold some of these (_slow_conv2d_forward, attention for the CPU). In-place and out= overloads
that write into given tensors do so here with copy_, since no functional twin has their arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_pjrt.errors import UnsupportedOpError
from torch_pjrt.ops.decompose import decomposition

aten = torch.ops.aten
Tensor = torch.Tensor
TENSOR_WISE, ROW_WISE = 0, 1  # torch.nn.functional.ScalingType


@decomposition("aten::dequantize.self")
def dequantize(self: Tensor) -> Tensor:
    """The values of a tensor that is not quantized, in float32."""
    return self.to(torch.float32)


@decomposition("aten::_make_dep_token.default")
def make_dep_token(*, device: Any = None, **kwargs: Any) -> Tensor:
    """What orders the assertions of a graph: a number that nobody reads."""
    return torch.empty((), device=device)


@decomposition("aten::_scaled_mm_v2.default")
def scaled_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Sequence[Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """torch.nn.functional.scaled_mm with one scale for a matrix, or one for each row of the first and column of the second."""
    whole = len(scale_a) == len(scale_b) == 1 and {*recipe_a, *recipe_b} <= {TENSOR_WISE, ROW_WISE}
    if not whole or any((*swizzle_a, *swizzle_b)):
        raise UnsupportedOpError(
            "scaled_mm on this device takes one scale for a matrix or one for each row (ScalingType.TensorWise, RowWise); "
            "scales of blocks, and swizzled ones, are formats of NVIDIA's matrix units",
            todo="Scale by rows, or multiply the dequantized matrices.",
        )
    return aten._scaled_mm.default(self, mat2, scale_a[0], scale_b[0], bias, None, out_dtype, use_fast_accum)


@decomposition("aten::_add_relu.Tensor", "aten::_add_relu.Scalar")
def add_relu(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """relu(self + alpha * other)."""
    return torch.relu(torch.add(self, other, alpha=alpha))


@decomposition("aten::_cholesky_solve_helper.default")
def cholesky_solve(self: Tensor, A: Tensor, upper: bool) -> Tensor:
    """x with A x = self, A given by its factor."""
    return aten.cholesky_solve.default(self, A, upper)


@decomposition("aten::_compute_linear_combination.default")
def linear_combination(input: Tensor, coefficients: Tensor) -> Tensor:
    """sum_j coefficients[i, j] * input[j]."""
    return torch.tensordot(coefficients, input, dims=1)


@decomposition("aten::_ctc_loss_backward.Tensor")
def ctc_loss_backward(
    grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, *rest: Any
) -> Tensor:
    """The gradient with lengths in tensors: they are read, as in the forward."""
    return aten._ctc_loss_backward.default(
        grad, log_probs, targets, input_lengths.tolist(), target_lengths.tolist(), *rest
    )


def _running(find: Any) -> Any:
    def run(self: Tensor, values: Tensor, indices: Tensor, dim: int) -> None:
        found, at = find(self, dim)
        values.copy_(found)
        indices.copy_(at)

    return run


decomposition("aten::_cummax_helper.default")(_running(torch.cummax))
decomposition("aten::_cummin_helper.default")(_running(torch.cummin))


@decomposition("aten::_weight_int8pack_mm.default")
def weight_int8pack_mm(self: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """self @ mat2.T for int8 weights [N, K], each row with its scale."""
    return torch.mm(self, mat2.to(self.dtype).t()) * scales


# -- convolutions ------------------------------------------------------------------------------------------------------


@decomposition("aten::_slow_conv2d_forward.default", "aten::slow_conv3d_forward.default")
def slow_conv(self: Tensor, weight: Tensor, kernel_size: Any, bias: Tensor | None, stride: Any, padding: Any) -> Tensor:
    """A plain convolution."""
    return aten.convolution.default(self, weight, bias, stride, padding, [1] * len(padding), False, [0], 1)


@decomposition("aten::_slow_conv2d_backward.output_mask")
def slow_conv_backward(
    grad_output: Tensor, self: Tensor, weight: Tensor, kernel_size: Any, stride: Any, padding: Any, output_mask: Any
) -> Any:
    """The asked of the gradients of input, weight and bias."""
    sizes = [weight.shape[0]]
    return aten.convolution_backward.default(
        grad_output, self, weight, sizes, stride, padding, [1] * len(padding), False, [0], 1, output_mask
    )


def _into(targets: tuple[Tensor, ...], results: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Write results to given tensors."""
    for target, result in zip(targets, results, strict=True):
        target.resize_(result.shape).copy_(result)
    return targets


@decomposition("aten::_slow_conv2d_backward.grad_input")
def slow_conv_backward_into(
    grad_output: Tensor,
    self: Tensor,
    weight: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    *,
    grad_input: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
) -> tuple[Tensor, ...]:
    """All gradients, into given tensors."""
    grads = slow_conv_backward(grad_output, self, weight, kernel_size, stride, padding, [True] * 3)
    return _into((grad_input, grad_weight, grad_bias), grads)


@decomposition("aten::slow_conv_dilated2d.default", "aten::slow_conv_dilated3d.default")
def slow_conv_dilated(
    self: Tensor,
    weight: Tensor,
    kernel_size: Any,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
) -> Tensor:
    """A convolution with gaps in its kernel."""
    return aten.convolution.default(self, weight, bias, stride, padding, dilation, False, [0], 1)


@decomposition("aten::slow_conv_transpose2d.default", "aten::slow_conv_transpose3d.default")
def slow_conv_transpose(
    self: Tensor,
    weight: Tensor,
    kernel_size: Any,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
) -> Tensor:
    """A transposed convolution, of one sample or of a batch."""
    alone = self.dim() == weight.dim() - 1
    batch = self.unsqueeze(0) if alone else self
    out = aten.convolution.default(batch, weight, bias, stride, padding, dilation, True, output_padding, 1)
    return out.squeeze(0) if alone else out


# -- normalization, pooling, attention ---------------------------------------------------------------------------------


@decomposition("aten::batch_norm_update_stats.default")
def batch_norm_update_stats(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    """Mean and biased variance per channel; the running statistics are written, which the schema does not say."""
    dims = [d for d in range(input.dim()) if d != 1]
    var, mean = torch.var_mean(input, dims, correction=0)
    count = input.numel() // max(input.shape[1], 1)
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((var * (count / max(count - 1, 1))).to(running_var.dtype), momentum)
    return mean, var


@decomposition("aten::_batch_norm_with_update.default")
def batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Training batch norm; the running statistics are written."""
    *results, mean, var = aten._batch_norm_with_update_functional.default(
        input, weight, bias, running_mean, running_var, momentum, eps
    )
    running_mean.copy_(mean)
    running_var.copy_(var)
    return tuple(results)


@decomposition("aten::_batch_norm_with_update.out")
def batch_norm_with_update_into(
    *args: Any, out: Tensor, save_mean: Tensor, save_invstd: Tensor, reserve: Tensor
) -> tuple[Tensor, ...]:
    """Training batch norm into given tensors; the running statistics are written."""
    return _into((out, save_mean, save_invstd, reserve), aten._batch_norm_with_update.default(*args))


@decomposition("aten::adaptive_avg_pool3d_backward.grad_input")
def adaptive_avg_pool3d_backward(grad_output: Tensor, self: Tensor, *, grad_input: Tensor) -> Tensor:
    """The gradient into a given tensor."""
    grad = aten._adaptive_avg_pool3d_backward.default(grad_output, self)
    return grad_input.resize_(grad.shape).copy_(grad)


@decomposition("aten::_scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_for_cpu_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, by the row of the device's own attention."""
    none = query.new_zeros((), dtype=torch.int64)
    lengths = (query.shape[-2], key.shape[-2])
    return aten._scaled_dot_product_fused_attention_overrideable_backward.default(
        grad_out, query, key, value, attn_mask, [True, True, True, False], out, logsumexp, none, none, *lengths,
        dropout_p, is_causal, none, none, scale=scale,
    )[:3]  # fmt: skip


@decomposition("aten::_fused_sdp_choice.default")
def sdp_choice(*args: Any, **kwargs: Any) -> int:
    """The device's own attention kernel."""
    return int(torch.nn.attention.SDPBackend.OVERRIDEABLE.value)  # type: ignore[attr-defined]


# -- indices of sparse and jagged layouts ------------------------------------------------------------------------------


@decomposition("aten::_convert_indices_from_coo_to_csr.default")
def coo_to_csr(self: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Sorted row numbers as the start of each row, and the end of the last."""
    rows = torch.arange(size + 1, dtype=self.dtype, device=self.device)
    return torch.searchsorted(self.contiguous(), rows, out_int32=out_int32)


@decomposition("aten::_convert_indices_from_csr_to_coo.default")
def csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Starts of rows and column numbers as coordinates, after those of the batch dims."""
    batch, nnz = col_indices.shape[:-1], col_indices.shape[-1]
    dtype = torch.int32 if out_int32 else torch.int64
    each = torch.arange(nnz, dtype=crow_indices.dtype, device=crow_indices.device).expand(*batch, nnz).contiguous()
    rows = torch.searchsorted(crow_indices[..., 1:].contiguous(), each, right=True).to(dtype).reshape(-1)
    columns = col_indices.to(dtype).reshape(-1)
    where = [
        torch.arange(n, dtype=dtype, device=rows.device)
        .reshape([n if i == d else 1 for i in range(len(batch))] + [1])
        .expand(*batch, nnz)
        .reshape(-1)
        for d, n in enumerate(batch)
    ]
    return torch.stack([*where, *((columns, rows) if transpose else (rows, columns))])


@decomposition("aten::_jagged_to_padded_dense_forward.default")
def jagged_to_padded(
    values: Tensor, offsets: Sequence[Tensor], max_lengths: Sequence[int], padding_value: float = 0.0
) -> Tensor:
    """[total, ...] cut at offsets into [B, longest, ...], padded."""
    (starts,), (longest,) = offsets, max_lengths
    place = torch.arange(longest, device=values.device)
    inside = place < (starts[1:] - starts[:-1]).unsqueeze(1)
    if values.shape[0] == 0:
        return values.new_full((*inside.shape, *values.shape[1:]), padding_value)
    at = torch.where(inside, starts[:-1].unsqueeze(1) + place, 0)
    mask = inside.reshape(*inside.shape, *[1] * (values.dim() - 1))
    return torch.where(mask, values[at], torch.full((), padding_value, dtype=values.dtype, device=values.device))


@decomposition("aten::_padded_dense_to_jagged_forward.default")
def padded_to_jagged(dense: Tensor, offsets: Sequence[Tensor], total_L: int | None = None) -> Tensor:
    """[B, longest, ...] without its padding, [total, ...]; the total is read unless it is given."""
    (starts,) = offsets
    total = int(starts[-1]) if total_L is None else total_L
    each = torch.arange(total, dtype=starts.dtype, device=dense.device)
    row = torch.searchsorted(starts[1:].contiguous(), each, right=True)
    return dense[row, each - starts[row]]
