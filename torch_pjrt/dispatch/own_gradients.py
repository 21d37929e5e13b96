"""Operators whose gradient does not come from torch's formula, because that formula is wrong here.

renorm: torch takes the norm in float64, and finds the elements that an infinity norm is made of by comparing their moduli
in float32 with it. For complex numbers none is equal, so the gradient through the norm is lost (on the CPU it is NaN). Here
renorm is written in differentiable operators where a gradient is wanted, and is its row everywhere else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

aten = torch.ops.aten


def _wants_gradient(x: torch.Tensor) -> bool:
    return x.requires_grad or forward_ad._current_level >= 0


def _scaled(self: torch.Tensor, p: Any, dim: int, maxnorm: Any) -> torch.Tensor:
    aten.renorm.default(torch.empty_like(self, device="meta"), p, dim, maxnorm)  # refuses what cannot be
    narrow = self.dtype in (torch.bfloat16, torch.float16)
    x = self.float() if narrow else self
    others = [d for d in range(x.dim()) if d != dim % x.dim()]
    norm = torch.linalg.vector_norm(x, p, others, keepdim=True)
    return (x * torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)).to(self.dtype)


def renorm(self: torch.Tensor, p: Any, dim: int, maxnorm: Any) -> torch.Tensor:
    """Slices along dim with a p-norm above maxnorm, scaled down to it; see torch.renorm."""
    if _wants_gradient(self):
        return _scaled(self, p, dim, maxnorm)
    with torch._C._AutoDispatchBelowAutograd():
        return aten.renorm.default(self, p, dim, maxnorm)  # type: ignore[no-any-return]


def renorm_in_place(self: torch.Tensor, p: Any, dim: int, maxnorm: Any) -> torch.Tensor:
    """renorm, written into self."""
    if _wants_gradient(self):
        return self.copy_(_scaled(self.clone(), p, dim, maxnorm))
    with torch._C._AutoDispatchBelowAutograd():
        return aten.renorm_.default(self, p, dim, maxnorm)  # type: ignore[no-any-return]


KERNELS = {"renorm": renorm, "renorm_": renorm_in_place}


def register(library: torch.library.Library) -> None:
    """Register this module's kernels, above the rows of the same names."""
    for name, fn in KERNELS.items():
        library.impl(name, fn, "AutogradPrivateUse1")
