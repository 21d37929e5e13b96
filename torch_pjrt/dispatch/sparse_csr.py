"""Kernels of compressed tensors (CSR, CSC): to_dense, other layouts, products with dense matrices, functions of the values.

All go through coordinates: rows are expanded from their starts, and COO's kernels do the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt.dispatch import sparse_coo
from torch_pjrt.dispatch.kernel_table import KernelTable
from torch_pjrt.dispatch.sparse_make import compressed, to_compressed

aten = torch.ops.aten
Tensor = torch.Tensor
KERNELS = KernelTable()
kernel = KERNELS.kernel


def _parts(self: Tensor) -> tuple[Tensor, Tensor]:
    if self.layout == torch.sparse_csr:
        return self.crow_indices(), self.col_indices()
    if self.layout == torch.sparse_csc:
        return self.ccol_indices(), self.row_indices()
    raise RuntimeError("blocked sparse layouts (BSR, BSC) are not kept on the device")


def coo(self: Any) -> Any:
    """A compressed tensor as COO; anything else as it is."""
    if not isinstance(self, Tensor) or self.layout not in (torch.sparse_csr, torch.sparse_csc):
        return self
    if self.dim() != 2 or self.values().dim() != 1:
        raise RuntimeError("batches of compressed tensors, and dense dims in them, are not computed on the device")
    indices = torch._convert_indices_from_csr_to_coo(*_parts(self), transpose=self.layout == torch.sparse_csc)
    return sparse_coo.made(
        indices.to(torch.int64), self.values(), self.shape, coalesced=self.layout == torch.sparse_csr
    )


def with_values(self: Tensor, values: Tensor) -> Tensor:
    """The same places with other values."""
    return aten._sparse_compressed_tensor_unsafe.default(  # type: ignore[no-any-return]
        *_parts(self), values, list(self.shape), dtype=values.dtype, layout=self.layout, device=values.device
    )


@kernel("_to_dense")
def to_dense(self: Tensor, dtype: torch.dtype | None = None, masked_grad: bool | None = None) -> Tensor:
    """A dense matrix."""
    return sparse_coo.to_dense(coo(self), dtype)


@kernel("_to_sparse")
def to_sparse(self: Tensor, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """Another sparse layout."""
    if layout == self.layout:
        return self
    if layout in (None, torch.sparse_coo):
        return coo(self).coalesce()  # type: ignore[no-any-return]
    return to_compressed(self.to_dense(), by_rows=layout == torch.sparse_csr)


@kernel("_to_sparse.sparse_dim")
def to_sparse_dim(self: Tensor, sparse_dim: int) -> Tensor:
    """COO."""
    return to_sparse(self)


def _other(layout: Any) -> Callable[..., Tensor]:
    return lambda self, dense_dim=None: to_sparse(self, layout=layout)


KERNELS["_to_sparse_csr"], KERNELS["_to_sparse_csc"] = _other(torch.sparse_csr), _other(torch.sparse_csc)


def from_coo(self: Tensor, dense_dim: int | None = None, *, by_rows: bool = True) -> Tensor:
    """COO in CSR or CSC."""
    self = self.coalesce()
    row, column = self._indices().unbind(0)
    values = self._values()
    if not by_rows:
        order = torch.argsort(column, stable=True)
        row, column, values = column[order], row[order], values[order]
    return compressed(row, column, values, self.shape, by_rows=by_rows)


def _coo_to_sparse(self: Tensor, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    if layout in (None, torch.sparse_coo):
        return self
    return from_coo(self, by_rows=layout == torch.sparse_csr)


sparse_coo.KERNELS |= {
    "_to_sparse": _coo_to_sparse,
    "_to_sparse.sparse_dim": lambda self, sparse_dim: self,
    "_to_sparse_csr": from_coo,
    "_to_sparse_csc": lambda self, dense_dim=None: from_coo(self, by_rows=False),
}


# -- computing ---------------------------------------------------------------------------------------------------------


@kernel("mm")
def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """A product with a dense matrix is dense; of two compressed ones it is compressed."""
    result = sparse_coo.mm(coo(self), coo(mat2))
    return from_coo(result) if sparse_coo.is_coo(result) else result


@kernel("addmm")
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * self + alpha * mat1 @ mat2."""
    result = mm(mat1, mat2)
    result = result if alpha == 1 else result * alpha
    return result if beta == 0 else self * beta + result


def addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * self + alpha * mat @ vec."""
    result = mm(mat, vec.unsqueeze(1)).squeeze(1) * alpha
    return result if beta == 0 else self * beta + result


@kernel("mul_.Tensor")
def mul_(self: Tensor, other: Any) -> Tensor:
    """Scaled in place."""
    self.values().copy_(mul(self, other).values())
    return self


def _into(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*args: Any, out: Tensor, **kwargs: Any) -> Tensor:
        result = compute(*args, **kwargs)
        return out.resize_(result.shape).copy_(result) if out.layout == torch.strided else out.copy_(result)

    return run


KERNELS |= {
    "mm.out": _into(mm),
    "addmm.out": _into(addmm),
    "addmv.out": _into(addmv),
    "addmv": addmv,
}


@kernel("mul.Scalar")
def mul_number(self: Tensor, other: Any) -> Tensor:
    """Scaled by a number."""
    return with_values(self, self.values() * other)


@kernel("mul.Tensor")
def mul(self: Tensor, other: Tensor) -> Tensor:
    """Scaled by a number, or masked by a dense matrix."""
    sparse, factor = (self, other) if self.layout != torch.strided else (other, self)
    if not isinstance(factor, Tensor) or factor.dim() == 0:
        return with_values(sparse, sparse.values() * factor)
    return from_coo(sparse_coo.mul(coo(sparse), coo(factor)))


@kernel("add.Tensor")
def add(self: Tensor, other: Tensor, *, alpha: Any = 1) -> Tensor:
    """Sums of compressed with compressed (compressed) or with dense matrices (dense)."""
    if self.layout == torch.strided or other.layout == torch.strided:
        dense, sparse = (self, other) if self.layout == torch.strided else (other, self)
        if dense is other:
            return coo(sparse).to_dense() + dense * alpha  # type: ignore[no-any-return]
        return sparse_coo.add(dense, coo(sparse), alpha=alpha)
    return from_coo(sparse_coo.add(coo(self), coo(other), alpha=alpha))


@kernel("add_.Tensor")
def add_(self: Tensor, other: Tensor, *, alpha: Any = 1) -> Tensor:
    """The sum, written into the first."""
    return self.copy_(add(self, other, alpha=alpha))


def _coordinates(self: Tensor) -> tuple[Tensor, Tensor]:
    row, column = coo(self)._indices().unbind(0)
    return row, column


@kernel("sparse_sampled_addmm")
def sampled_addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * self + alpha * mat1 @ mat2, where self has a place only; beta == 0 leaves NaN in self, as on the CPU."""
    row, column = _coordinates(self)
    products = (mat1[row] * mat2.t()[column]).sum(-1) * alpha
    return with_values(self, self.values() * beta + products)


@kernel("sparse_mask")
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The values of self at the places of mask."""
    row, column = _coordinates(mask)
    return with_values(mask, self.to_dense()[row, column])


@kernel("sum")
def total(self: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """The sum of all values."""
    return self.values().sum(dtype=dtype)


def _of_values(name: str) -> Callable[[Tensor], Tensor]:
    function = getattr(aten, name).default
    return lambda self: with_values(self, function(self.values()))


for _name in (*sparse_coo.LINEAR.split(), *sparse_coo.KEEPING_ZERO.split()):
    if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{_name}", "SparseCsrCPU"):
        KERNELS[_name] = _of_values(_name)


# -- torch.sparse.mm(self, other, reduce=...) --------------------------------------------------------------------------


def _entries_of(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row and column of each stored element, and its products with a row of the dense matrix, [nnz, k]."""
    row, column = _coordinates(self)
    return row, column, other[column] * self.values().unsqueeze(1)


def _counts(row: Tensor, rows: int, like: Tensor) -> Tensor:
    ones = torch.ones_like(row, dtype=like.dtype)
    return torch.zeros(rows, dtype=like.dtype, device=like.device).index_add(0, row, ones).clamp(min=1).unsqueeze(1)


@kernel("_sparse_mm_reduce_impl")
def mm_reduce(self: Tensor, other: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """The sum, mean, largest or smallest of each row's products; and which element won, for the gradient."""
    row, _, each = _entries_of(self, other)
    out = each.new_zeros((self.shape[0], other.shape[1]))
    none = torch.empty(0, dtype=torch.int64, device=self.device)
    if reduce in ("sum", "mean"):
        total = out.index_add(0, row, each)
        return (total if reduce == "sum" else total / _counts(row, self.shape[0], total)), none
    at = row.unsqueeze(1).expand(each.shape)
    out = out.scatter_reduce(0, at, each, reduce, include_self=False)
    nnz = each.shape[0]
    order = torch.arange(nnz, device=self.device).unsqueeze(1)
    candidate = torch.where(each == out[row], order, nnz)
    winner = torch.full(out.shape, nnz, dtype=torch.int64, device=self.device)
    return out, winner.scatter_reduce(0, at, candidate, "amin")


@kernel("_sparse_mm_reduce_impl_backward")
def mm_reduce_backward(
    self: Tensor, grad_out: Tensor, weight: Tensor, reduce: str, arg_out: Tensor, output_mask: Any
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the stored elements, as a compressed tensor, and of the dense matrix."""
    row, column, each = _entries_of(self, weight)
    if reduce in ("sum", "mean"):
        grad = grad_out if reduce == "sum" else grad_out / _counts(row, self.shape[0], grad_out)
        grad = grad[row]
    else:  # only the winners have one
        order = torch.arange(each.shape[0], device=self.device).unsqueeze(1)
        grad = torch.where(arg_out[row] == order, grad_out[row], 0)
    grad_self = with_values(self, (grad * weight[column]).sum(-1)) if output_mask[0] else None
    spread = (
        torch.zeros_like(weight).index_add(0, column, grad * self.values().unsqueeze(1)) if output_mask[1] else None
    )
    return grad_self, spread
