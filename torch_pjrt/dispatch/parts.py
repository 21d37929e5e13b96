"""What select_scatter and its kin give for a tensor with gaps: a copy of all of its storage, seen as the tensor is.

So does CPU torch, whose results keep the strides of what they were made of. A tensor without gaps goes to its row. Called
by the dispatcher, and by graphs of torch.compile, which write views this way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt.dispatch.kernel_table import KernelTable
from torch_pjrt.ops.refusals import same_part
from torch_pjrt.tensor.layout import has_overlap

aten = torch.ops.aten
KERNELS = KernelTable()
kernel = KERNELS.kernel


def _by_row(name: str, *args: Any, **kwargs: Any) -> torch.Tensor:
    from torch_pjrt.dispatch.kernels import results_of
    from torch_pjrt.dispatch.table import row_kernel

    return results_of(*row_kernel(f"aten::{name}.default").step(args, kwargs))[0]  # type: ignore[no-any-return]


def _whole(x: torch.Tensor) -> int:
    """How many elements of x's dtype its storage has."""
    return x.untyped_storage().nbytes() // x.element_size()


def _has_gaps(x: torch.Tensor) -> bool:
    if x.is_contiguous() or has_overlap(tuple(x.shape), tuple(x.stride())):
        return False
    return not aten.is_non_overlapping_and_dense.default(x)


def _copy(x: torch.Tensor) -> torch.Tensor:
    """x over a copy of its storage."""
    return x.as_strided((_whole(x),), (1,), 0).clone().as_strided(x.shape, x.stride(), x.storage_offset())


def _scatter(name: str, part_of: Callable[..., torch.Tensor]) -> None:
    def scatter(self: torch.Tensor, src: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not _has_gaps(self):
            return _by_row(name, self, src, *args, **kwargs)
        out = _copy(self)
        part = part_of(out, *args, **kwargs)
        same_part(part, src)
        part.copy_(src)
        return out

    kernel(name)(scatter)


_scatter("select_scatter", aten.select.int)
_scatter("slice_scatter", aten.slice.Tensor)
_scatter("diagonal_scatter", aten.diagonal.default)


@kernel("as_strided_scatter")
def as_strided_scatter(
    self: torch.Tensor, src: torch.Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> torch.Tensor:
    """A copy of self with src at places of its storage: of all of that storage, where self is a part of it."""
    if self.is_contiguous() and _whole(self) == self.numel():
        return _by_row("as_strided_scatter", self, src, size, stride, storage_offset)
    out = _copy(self)
    out.as_strided(size, stride, storage_offset).copy_(src)
    return out


def register(library: torch.library.Library) -> None:
    """Register every kernel of this module."""
    for name, fn in KERNELS.items():
        library.impl(name, fn, "PrivateUse1")
