"""Operators that torch's own gradient formula or composite gets wrong on every device, written right for this one.

renorm: torch takes the norm in float64, and finds the elements that an infinity norm is made of by comparing their moduli
in float32 with it. For complex numbers none is equal, so the gradient through the norm is lost (on the CPU it is NaN). Here
renorm is written in differentiable operators where a gradient is wanted, and is its row everywhere else.

fft_ihfftn.out, fft_ihfft2.out: over a single dim torch leaves the output as it was, and conjugates it elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _into(name: str, default_dim: Any) -> Callable[..., torch.Tensor]:
    packet = getattr(aten, name)

    def run(
        self: torch.Tensor, s: Any = None, dim: Any = default_dim, norm: Any = None, *, out: torch.Tensor
    ) -> torch.Tensor:
        sizes = (self.shape if s is None else s) if dim is None else dim
        if len(sizes) != 1:
            return packet.out.decompose(self, s, dim, norm, out=out)  # type: ignore[no-any-return]
        # a copy that resizes and refuses as out= does
        result = packet.default(self, s, dim, norm).contiguous()
        return aten.conj_physical.out(result.conj(), out=out)  # type: ignore[no-any-return]

    return run


ABOVE_ROWS = {"renorm": renorm, "renorm_": renorm_in_place}
COMPOSITES = {"fft_ihfftn.out": _into("fft_ihfftn", None), "fft_ihfft2.out": _into("fft_ihfft2", (-2, -1))}


def register(library: torch.library.Library) -> None:
    """Register this module's kernels: above the rows of the same names, and in the place of torch's composites."""
    for name, fn in (ABOVE_ROWS | COMPOSITES).items():
        library.impl(name, fn, "AutogradPrivateUse1")
    for name, fn in COMPOSITES.items():
        library.impl(name, fn, "PrivateUse1")
