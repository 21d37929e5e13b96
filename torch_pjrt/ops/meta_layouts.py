"""Meta kernels that are torch's own but for the strides of what they give, which are those of CPU torch's kernels.

By kinds: results in the memory format of an operand; results laid out as TensorIterator lays out a sum of operands, in
their order; gradients of matrices that lie as the matrices do. Loaded with the rows (registry.load_rows).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt.ops.meta_kernels import asked, suggest_memory_format
from torch_pjrt.ops.metadata import meta_override

Tensor = torch.Tensor
aten = torch.ops.aten


def _overload(name: str) -> Any:
    packet, overload = name.split(".")
    return getattr(getattr(aten, packet), overload)


# -- the memory format of an operand -----------------------------------------------------------------------------------


def _formatted(op: Callable[..., Any], position: int) -> Callable[..., Any]:
    """`op`, with its first result in the memory format of the operand at `position`."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        results = op(*args, **kwargs)
        first = results[0] if isinstance(results, tuple) else results
        if first is not None:
            first = first.contiguous(memory_format=suggest_memory_format(args[position]))
        return (first, *results[1:]) if isinstance(results, tuple) else first

    return kernel


for _name in ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle"):
    meta_override(f"aten::{_name}.default", in_graphs=True)(_formatted(_overload(f"{_name}.default"), 0))
meta_override("aten::native_group_norm_backward.default", in_graphs=True)(
    _formatted(aten.native_group_norm_backward.default, 1)
)

for _name in ("reflection_pad2d", "reflection_pad3d", "replication_pad2d", "replication_pad3d"):
    for _suffix, _position in (("", 0), ("_backward", 1)):
        meta_override(f"aten::{_name}{_suffix}.default", in_graphs=True)(
            _formatted(_overload(f"{_name}{_suffix}.default"), _position)
        )


# -- as a sum of operands ----------------------------------------------------------------------------------------------


def _as_sum(op: Any, count: int = 2) -> Callable[..., Tensor]:
    """torch's meta kernel, but for strides: it orders the dims unlike TensorIterator, as add of the first operands does."""

    def kernel(*args: Any, **kwargs: Any) -> Tensor:
        result = op(*args, **kwargs)
        layout = args[0]
        for operand in args[1:count]:
            layout = aten.add.Tensor(layout, operand)
        if result.shape != layout.shape:  # reduced
            return result  # type: ignore[no-any-return]
        return torch.empty_strided(layout.shape, layout.stride(), dtype=result.dtype, device="meta")

    return kernel


for _name in (
    *("logical_and.default", "logical_or.default", "logical_xor.default", "logaddexp.default", "logaddexp2.default"),
    *("heaviside.default", "copysign.Tensor", "floor_divide.default", "div.Tensor_mode", "lcm.default"),
    *("xlogy.Tensor", "special_xlog1py.default"),
    *("logit_backward.default", "hardswish_backward.default", "hardtanh_backward.default"),
):
    meta_override(f"aten::{_name}", in_graphs=True)(_as_sum(_overload(_name)))

for _name in ("mse_loss_backward.default", "smooth_l1_loss_backward.default", "huber_loss_backward.default"):
    meta_override(f"aten::{_name}", in_graphs=True)(_as_sum(_overload(_name), 3))


@meta_override("aten::binary_cross_entropy.default", in_graphs=True)
def binary_cross_entropy(self: Tensor, target: Tensor, weight: Any = None, reduction: int = 1) -> Tensor:
    """Unreduced as self lies, whatever lies otherwise."""
    result = aten.binary_cross_entropy.default(self, target, weight, reduction)
    return torch.empty_like(self) if reduction == 0 else result


@meta_override("aten::binary_cross_entropy_backward.default", in_graphs=True)
def binary_cross_entropy_backward(grad_output: Tensor, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """As self lies."""
    aten.binary_cross_entropy_backward.default(grad_output, self, *args, **kwargs)  # refuses what cannot be
    return torch.empty_like(self)


# -- gradients of matrices ---------------------------------------------------------------------------------------------


def _as_matrix(x: Tensor) -> Tensor:
    """A gradient of a matrix: by columns where the matrix is."""
    by_columns = x.stride() == (1, x.size(0))
    return torch.empty_like(x.mT, memory_format=torch.contiguous_format).mT if by_columns else x.new_empty(x.shape)


@meta_override("aten::linear_backward.default")
def linear_backward(
    self: Tensor, grad_output: Tensor, weight: Tensor, output_mask: Sequence[bool]
) -> tuple[Tensor, ...]:
    """The asked of (grad_input, grad_weight, grad_bias); CPU torch multiplies matrices, of all rows of the input."""
    grad_input = _as_matrix(self.reshape(-1, self.size(-1))).view(self.shape)
    return asked(output_mask, grad_input, _as_matrix(weight), weight.new_empty(weight.shape[:-1]))
