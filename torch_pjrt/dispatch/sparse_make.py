"""Sparse tensors from dense ones: to_sparse in every layout, gradients of tables. Reads how many elements are not zero.

Blocked layouts (BSR, BSC) are refused.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt.dispatch.sparse_coo import made, sparse_mask
from torch_pjrt.errors import UnsupportedOpError

aten = torch.ops.aten
Tensor = torch.Tensor


def to_coo(self: Tensor, sparse_dim: int | None = None) -> Tensor:
    """The elements (or, with fewer sparse dims than dims, the slices) that are not zero."""
    sparse_dim = self.dim() if sparse_dim is None else sparse_dim
    if not 0 <= sparse_dim <= self.dim() or self.dim() and not sparse_dim:
        raise RuntimeError(f"sparse_dim argument must be in 1..{self.dim()}, got {sparse_dim}")
    filled = self != 0
    if sparse_dim < self.dim():
        filled = filled.flatten(sparse_dim).any(-1)
    where = filled.nonzero()
    values = self[tuple(where.unbind(1))] if sparse_dim else self.reshape(1)[: where.shape[0]]
    return made(where.t().contiguous(), values, self.shape, coalesced=True)


def to_compressed(self: Tensor, *, by_rows: bool = True) -> Tensor:
    """A matrix in CSR (or CSC)."""
    if self.dim() != 2:
        raise UnsupportedOpError(
            f"only matrices have a compressed sparse form on the device, got {list(self.shape)}",
            todo="Use to_sparse() (COO) for other shapes and for dense dims.",
        )
    row, column = (self if by_rows else self.t()).ne(0).nonzero().unbind(1)
    values = self[row, column] if by_rows else self[column, row]
    return compressed(row, column, values, self.shape, by_rows=by_rows)


def compressed(row: Tensor, column: Tensor, values: Tensor, size: Any, *, by_rows: bool) -> Tensor:
    """CSR over coordinates sorted by row, or CSC over those sorted by column (row is then the column)."""
    starts = torch._convert_indices_from_coo_to_csr(row, size[0] if by_rows else size[1])
    return aten._sparse_compressed_tensor_unsafe.default(  # type: ignore[no-any-return]
        starts, column, values, list(size), dtype=values.dtype,
        layout=torch.sparse_csr if by_rows else torch.sparse_csc, device=values.device,
    )  # fmt: skip


def to_sparse(self: Tensor, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """x.to_sparse(layout=...)."""
    if layout in (None, torch.sparse_coo):
        return to_coo(self, None if dense_dim is None else self.dim() - dense_dim)
    if layout in (torch.sparse_csr, torch.sparse_csc) and not dense_dim:
        return to_compressed(self, by_rows=layout == torch.sparse_csr)
    return _refuse(layout)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Tensor:
    """A matrix from diagonals: column j of each comes from its element j. The offsets are read."""
    rows, columns = shape
    parts, values = [], []
    for diagonal, offset in zip(diagonals.unbind(0), offsets.tolist(), strict=True):
        first, last = max(0, offset), min(columns, rows + offset, diagonals.shape[1])
        column = torch.arange(first, max(first, last), device=diagonals.device)
        parts.append(torch.stack([column - offset, column]))
        values.append(diagonal[first : max(first, last)])
    out = made(torch.cat(parts, 1), torch.cat(values), shape)
    return out if layout in (None, torch.sparse_coo) else out.to_sparse(layout=layout)


def embedding_bag_backward(grad: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The gradient of an embedding bag's table: sparse if the bag asked for it."""
    from torch_pjrt.dispatch.kernels import results_of
    from torch_pjrt.dispatch.table import row_kernel

    kernel = row_kernel("aten::_embedding_bag_backward.default")
    names = [a.name for a in kernel.op._schema.arguments][1:]
    given = dict(zip(names, args), **kwargs)  # noqa: B905 - trailing defaults are left out
    if not given["sparse"]:
        template, outs = kernel.step((grad, *args), kwargs)
        return results_of(template, outs)[0]  # type: ignore[no-any-return]
    rest = {n: v for n, v in given.items() if n not in ("sparse", "maximum_indices")}
    return aten._embedding_bag_sparse_backward.default(grad, **rest)  # type: ignore[no-any-return]


def _refuse(*_: Any, **__: Any) -> Tensor:
    raise UnsupportedOpError(
        "blocked sparse layouts (BSR, BSC), and compressed ones with dense dims, are not kept on the device",
        todo="Use to_sparse() (COO) or to_sparse_csr(), or make it on the CPU.",
    )


def _compressing(by_rows: bool) -> Any:
    def run(self: Tensor, dense_dim: int | None = None) -> Tensor:
        return _refuse() if dense_dim else to_compressed(self, by_rows=by_rows)

    return run


KERNELS = {
    "_to_sparse": to_sparse,
    "_to_sparse.sparse_dim": to_coo,
    "_to_sparse_csr": _compressing(True),
    "_to_sparse_csc": _compressing(False),
    "_to_sparse_bsr": _refuse,
    "_to_sparse_bsc": _refuse,
    "sparse_mask": sparse_mask,
    "_spdiags": spdiags,
    "_embedding_bag_backward": embedding_bag_backward,
}
