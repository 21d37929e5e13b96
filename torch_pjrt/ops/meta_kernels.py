"""Meta kernels that torch lacks or has wrong: what an overload's results look like, as functions of meta tensors.

Results that an output_mask does not ask for are left out here and by the row. Loaded with the rows (registry.load_rows).
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt.ops.metadata import meta_override

Tensor = torch.Tensor


def asked(mask: Any, *results: Tensor) -> tuple[Tensor, ...]:
    """The results that an output_mask asks for, in order."""
    return tuple(r for wanted, r in zip(mask, results, strict=True) if wanted)


@meta_override("aten::linear_backward.default")
def linear_backward(self: Tensor, grad_output: Tensor, weight: Tensor, output_mask: list[bool]) -> tuple[Tensor, ...]:
    """The asked of (grad_input, grad_weight, grad_bias), dense."""
    return asked(
        output_mask, self.new_empty(self.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape[:-1])
    )
