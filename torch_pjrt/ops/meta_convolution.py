"""Meta kernels of convolutions: results and gradients in the memory format that CPU torch gives them.

torch's own meta kernels answer row-major, since the format is a matter of the device. On the CPU it is channels_last where
input or kernel is, with two kinds of exceptions that come from the library that computes: volumes that oneDNN does not
take are row-major, and what is put together of groups or kept as it lies is so only where the strides tell. Loaded with
the rows (registry.load_rows); asked for graphs of torch.compile too (compile/fake_layouts.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_pjrt.ops.meta_kernels import suggest_memory_format
from torch_pjrt.ops.metadata import meta_override

Tensor = torch.Tensor

# What oneDNN leaves to the kernels of torch: one sample in one group, this small, under kernels no larger than 3.
_SMALL = 20480


def _by_onednn(input: Tensor, weight: Tensor, stride: Any, transposed: bool, output_padding: Any, groups: int) -> bool:
    """Whether CPU torch has oneDNN compute it; on one thread, 1x1 kernels may differ from this."""
    if transposed and any(o >= s for o, s in zip(output_padding, stride, strict=True)):
        return False
    if input.dtype != torch.float32:
        return input.dtype == torch.bfloat16
    if groups > 1 or input.size(0) > 1 or (weight.size(-1) > 3 and weight.size(-2) > 3):
        return True
    return bool(input.size(0) * input.size(1) * input.size(2) * input.size(3) > _SMALL)


def _planar(x: Tensor) -> Tensor:
    """x of one spatial dim with a second before it, as CPU torch computes it."""
    return x.unsqueeze(2)


def _formatted(x: Tensor, format: torch.memory_format, exact: bool) -> Tensor:
    """x in a memory format; exact: also in the strides of dims of size 1."""
    return torch.empty_like(x, memory_format=format) if exact else torch.empty_like(x.contiguous(memory_format=format))


def _format(input: Tensor, weight: Tensor, by_onednn: bool) -> torch.memory_format:
    """The memory format of results."""
    formats = {suggest_memory_format(x) for x in (input, weight)}
    volumes = weight.dim() == 5
    kind = torch.channels_last_3d if volumes else torch.channels_last
    return kind if kind in formats and (by_onednn or not volumes) else torch.contiguous_format


def _together(x: Tensor, format: torch.memory_format, groups: int, by_onednn: bool) -> Tensor:
    """x [N, C, ...] in a format; torch's kernels compute it group by group and give what torch.cat makes of that."""
    if groups > 1 and not by_onednn and format != torch.contiguous_format:
        part = x[:, : x.size(1) // groups]
        format = suggest_memory_format(torch.empty_like(part, memory_format=format))
    return _formatted(x, format, True)


def _expanded(values: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(values) * rank if len(values) == 1 else tuple(values)


@meta_override("aten::convolution.default", "aten::convolution_overrideable.default", in_graphs=True)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """torch's meta kernel, and the format. The input of one spatial dim is made row-major first."""
    out = torch.ops.aten.convolution.default(
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )
    if 0 in out.shape:
        return out
    rank = weight.dim() - 2
    if rank == 1:
        input, weight, out = input.contiguous().unsqueeze(2), _planar(weight), _planar(out)
    by_onednn = _by_onednn(input, weight, _expanded(stride, rank), transposed, _expanded(output_padding, rank), groups)
    out = _together(out, _format(input, weight, by_onednn), groups, by_onednn)
    return out.squeeze(2) if rank == 1 else out


@meta_override("aten::convolution_backward.default", in_graphs=True)
def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """torch's meta kernel, and for both gradients the format that the result has, whatever that of grad_output."""
    grad_input, grad_weight, grad_bias = torch.ops.aten.convolution_backward.default(
        grad_output,
        input,
        weight,
        bias_sizes,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        output_mask,
    )
    rank = weight.dim() - 2
    if rank == 1:
        input, weight = input.contiguous().unsqueeze(2), _planar(weight)
    by_onednn = _by_onednn(input, weight, _expanded(stride, rank), transposed, _expanded(output_padding, rank), groups)
    format = _format(input, weight, by_onednn)
    nothing = 0 in input.shape[:2]  # zeros like the operands
    if grad_input is not None:
        grad_input = torch.empty_like(input) if nothing else _together(input, format, groups, by_onednn)
    if grad_weight is not None:
        exact = by_onednn or (not transposed and any(d > 1 for d in dilation))
        grad_weight = torch.empty_like(weight) if nothing else _formatted(weight, format, exact)
    if rank == 1:
        grad_input, grad_weight = (g if g is None else g.squeeze(2) for g in (grad_input, grad_weight))
    return grad_input, grad_weight, grad_bias


@meta_override("aten::convolution_backward_overrideable.default")
def convolution_backward_overrideable(
    grad_output: Tensor, input: Tensor, weight: Tensor, *rest: Any
) -> tuple[Tensor | None, ...]:
    """As aten::convolution_backward, which is given the bias's size too."""
    return convolution_backward(grad_output, input, weight, [grad_output.shape[1]], *rest)
