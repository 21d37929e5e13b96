"""What torch's CPU kernels refuse in x[indices] and x[indices] = values, said when the call is made.

Joins the table of ops/refusals.py. A mask that is alone among the indices is still a mask here: how many places it selects
is not known, and any length is accepted for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.ops.refusals import refuses

Indices = Sequence[torch.Tensor | None]
ANY = -1  # a length that depends on values


def _places(given: Sequence[torch.Tensor]) -> list[int]:
    """The shape that the indices have together."""
    if any(i.dtype is torch.bool for i in given):
        return [ANY]
    try:
        return list(torch.broadcast_shapes(*(i.shape for i in given)))
    except RuntimeError:
        shapes = ", ".join(str(list(i.shape)) for i in given)
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        ) from None


def selected_shape(self: torch.Tensor, indices: Indices) -> list[int]:
    """The shape of self[indices]."""
    given = [i for i in indices if i is not None]
    places, kept, at, dim = _places(given), [], [], 0
    for index in indices:
        if index is None:
            kept.append(self.shape[dim])
            dim += 1
        else:
            at.append(len(kept))
            dim += index.dim() if index.dtype is torch.bool else 1
    kept += self.shape[dim:]
    first = at[0] if at and at[0] == at[-1] else 0  # indices side by side: their dims take their place
    return kept[:first] + places + kept[first:]


@refuses("index.Tensor", "_unsafe_index.Tensor")
def index(self: torch.Tensor, indices: Indices) -> None:
    _places([i for i in indices if i is not None])


@refuses("index_put.default", "_unsafe_index_put.default", "_index_put_impl.default")
def index_put(self: torch.Tensor, indices: Indices, values: torch.Tensor, *rest: Any, **kwargs: Any) -> None:
    selected = selected_shape(self, indices)
    theirs = list(values.shape)
    fits = len(theirs) <= len(selected) and all(
        n in (1, m) or m == ANY for n, m in zip(reversed(theirs), reversed(selected), strict=False)
    )
    if not fits:
        said = ", ".join("?" if n == ANY else str(n) for n in selected)
        raise InvalidOperandError(
            f"shape mismatch: value tensor of shape {theirs} cannot be broadcast to indexing result of shape [{said}]"
        )


@refuses("index_add.default", "index_reduce.default")
def slices(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *rest: Any, **kwargs: Any) -> None:
    ours, theirs = list(self.shape), list(source.shape)
    count = theirs[dim] if theirs else 1
    if index.numel() != count:
        raise InvalidOperandError(f"Number of indices ({index.numel()}) should be equal to source.size(dim): ({count})")
    if ours and theirs:
        ours.pop(dim)
        theirs.pop(dim)
    if ours != theirs:
        raise InvalidOperandError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(self.shape)} source.shape = {list(source.shape)}"
        )


@refuses("index_select.default")
def index_select(self: torch.Tensor, dim: int, index: torch.Tensor) -> None:
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if self.dim() == 0 and index.numel() != 1:
        raise InvalidOperandError("index_select(): a tensor without dims takes one index")


@refuses("put.default")
def put(self: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> None:
    if index.numel() != source.numel():
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source.numel()}, index.numel() = {index.numel()}"
        )


@refuses("scatter_reduce.two")
def scatter_reduce(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, **kwargs: Any
) -> None:
    if self.dtype is torch.bool and reduce == "mean":
        raise InvalidOperandError("scatter_reduce: bools have no mean")
