"""Kernels of COO tensors: to_dense, coalesce, sums and products with dense tensors, functions of the values.

The number of distinct coordinates decides a size, so coalescing reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt.dispatch.kernel_table import KernelTable

aten = torch.ops.aten
Tensor = torch.Tensor
KERNELS = KernelTable()
kernel = KERNELS.kernel


def is_coo(x: Any) -> bool:
    """Whether an operand is a COO tensor."""
    return isinstance(x, Tensor) and x.layout == torch.sparse_coo


def made(indices: Tensor, values: Tensor, size: Any, *, coalesced: bool = False) -> Tensor:
    """A COO tensor over these parts, unchecked."""
    return aten._sparse_coo_tensor_unsafe.default(  # type: ignore[no-any-return]
        indices, values, list(size), dtype=values.dtype, layout=torch.sparse_coo, device=values.device,
        pin_memory=False, is_coalesced=coalesced,
    )  # fmt: skip


def with_values(self: Tensor, values: Tensor) -> Tensor:
    """The same coordinates with other values."""
    return made(self._indices(), values, self.shape, coalesced=self.is_coalesced())


def places(self: Tensor) -> tuple[Tensor, int]:
    """Each coordinate as one number, and how many there could be."""
    flat, count = torch.zeros_like(self._indices()[0]) if self.sparse_dim() else None, 1
    if flat is None:
        return torch.zeros(self._nnz(), dtype=torch.int64, device=self.device), 1
    for dim in range(self.sparse_dim()):
        flat = flat * self.shape[dim] + self._indices()[dim]
        count *= self.shape[dim]
    return flat, count


@kernel("_to_dense")
def to_dense(self: Tensor, dtype: torch.dtype | None = None, masked_grad: bool | None = None) -> Tensor:
    """Values added up at their coordinates."""
    values = self._values()
    dense = torch.zeros(tuple(self.shape), dtype=values.dtype, device=values.device)
    if values.numel():
        dense = added(dense, self, 1)
    return dense if dtype is None else dense.to(dtype)


def added(dense: Tensor, sparse: Tensor, alpha: Any) -> Tensor:
    """dense + alpha * sparse."""
    values = sparse._values()
    values = values if alpha == 1 else values * alpha
    kind = torch.promote_types(dense.dtype, values.dtype)
    where = tuple(sparse._indices().unbind(0))
    if not where:
        return dense.to(kind) + values.sum(0)
    if kind == torch.bool:
        return dense.to(torch.int32).index_put(where, values.to(torch.int32), accumulate=True).to(torch.bool)
    return dense.to(kind).index_put(where, values.to(kind), accumulate=True)


@kernel("_coalesce")
def coalesce(self: Tensor) -> Tensor:
    """Coordinates in order, each once, with the sum of its values."""
    if self.is_coalesced() or self._nnz() < 2:
        return made(self._indices(), self._values(), self.shape, coalesced=True)
    flat, _ = places(self)
    distinct, which = torch.unique(flat, return_inverse=True)
    values = self._values()
    narrow = values.dtype == torch.bool
    total = torch.zeros((distinct.shape[0], *values.shape[1:]), dtype=torch.int32 if narrow else values.dtype,
                        device=values.device)  # fmt: skip
    total = total.index_add(0, which, values.to(total.dtype)).to(values.dtype)
    rows, rest = [], distinct
    for dim in reversed(range(self.sparse_dim())):
        rows.append(rest % self.shape[dim])
        rest = rest // self.shape[dim]
    return made(torch.stack(rows[::-1]), total, self.shape, coalesced=True)


# -- sums --------------------------------------------------------------------------------------------------------------


@kernel("add.Tensor")
def add(self: Tensor, other: Tensor, *, alpha: Any = 1) -> Tensor:
    """Sums of sparse with sparse (sparse) or with dense tensors (dense)."""
    if is_coo(self) and is_coo(other):
        if self.shape != other.shape or self.sparse_dim() != other.sparse_dim():
            raise RuntimeError(
                f"add of sparse tensors needs equal shapes and sparse dims, got {list(self.shape)} ({self.sparse_dim()}) "
                f"and {list(other.shape)} ({other.sparse_dim()})"
            )
        kind = torch.promote_types(self.dtype, other.dtype)
        scaled = other._values() if alpha == 1 else other._values() * alpha
        indices = torch.cat([self._indices(), other._indices()], 1)
        return made(indices, torch.cat([self._values().to(kind), scaled.to(kind)]), self.shape)
    if is_coo(self):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    return added(self.expand(torch.broadcast_shapes(self.shape, other.shape)), other, alpha)


@kernel("add_.Tensor")
def add_(self: Tensor, other: Tensor, *, alpha: Any = 1) -> Tensor:
    """The same in place: a dense tensor is written, a sparse one gets new parts."""
    return self.copy_(add(self, other, alpha=alpha))


@kernel("sub.Tensor")
def sub(self: Tensor, other: Tensor, *, alpha: Any = 1) -> Tensor:
    """self - alpha * other."""
    return add(self, other, alpha=-alpha)


@kernel("sum")
def total(self: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """The sum of all values."""
    return self._values().sum(dtype=dtype)


@kernel("sum.dim_IntList")
def total_along(self: Tensor, dim: Any, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Sums along dims, sparse unless they are all."""
    if not dim:
        return self._values().sum(dtype=dtype)
    values = self._values() if dtype is None else self._values().to(dtype)
    if dtype is None and not values.is_floating_point() and not values.is_complex():
        values = values.to(torch.int64)
    gone = {d % self.dim() for d in dim}
    kept = [d for d in range(self.sparse_dim()) if d not in gone]
    dense = [d - self.sparse_dim() + 1 for d in gone if d >= self.sparse_dim()]
    values = values.sum(dense, keepdim=keepdim) if dense else values
    if keepdim:
        indices = torch.stack([i if d not in gone else i * 0 for d, i in enumerate(self._indices())])
        return made(indices, values, [1 if d in gone else n for d, n in enumerate(self.shape)])
    size = [n for d, n in enumerate(self.shape) if d not in gone]
    if not kept:
        return values.sum(0)
    return made(self._indices()[kept], values, size)


# -- products ----------------------------------------------------------------------------------------------------------


def product(self: Tensor, dense: Tensor) -> Tensor:
    """[n, m] sparse times [m, k] dense: rows of the dense one, scaled and added up."""
    if self.dim() != 2 or self.dense_dim() or dense.dim() != 2 or self.shape[1] != dense.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({list(self.shape)} and {list(dense.shape)})")
    if self.dtype != dense.dtype:
        raise RuntimeError(f"expected both matrices to have one dtype, but got {self.dtype} and {dense.dtype}")
    row, column = self._indices().unbind(0)
    each = dense[column] * self._values().unsqueeze(1)
    return torch.zeros((self.shape[0], dense.shape[1]), dtype=dense.dtype, device=dense.device).index_add(0, row, each)


@kernel("mm", "_sparse_sparse_matmul")
def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """A product of which one factor is sparse is dense, of which both are is sparse."""
    if is_coo(self) and is_coo(mat2):
        from torch_pjrt.dispatch.sparse_make import to_coo

        return to_coo(product(self, mat2.to_dense()))
    return product(self, mat2) if is_coo(self) else product(mat2.t(), self.t()).t().contiguous()


@kernel("addmm")
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * self + alpha * mat1 @ mat2."""
    if beta == 0:
        result = mm(mat1, mat2)
        return result if alpha == 1 else result * alpha
    return self * beta + mm(mat1, mat2) * alpha


@kernel("mv")
def mv(self: Tensor, vec: Tensor) -> Tensor:
    """A sparse matrix times a dense vector."""
    return product(self, vec.unsqueeze(1)).squeeze(1)


@kernel("mul.Tensor")
def mul(self: Tensor, other: Tensor) -> Tensor:
    """Scaled by a number, or masked by a dense tensor of the same shape."""
    sparse, factor = (self, other) if is_coo(self) else (other, self)
    if is_coo(factor):
        factor = factor.to_dense()
        sparse = sparse.coalesce()
    if not isinstance(factor, Tensor) or factor.dim() == 0:
        return with_values(sparse, sparse._values() * factor)
    dense = factor.expand(sparse.shape)
    return with_values(sparse, sparse._values() * dense[tuple(sparse._indices().unbind(0))])


@kernel("div.Tensor")
def div(self: Tensor, other: Tensor) -> Tensor:
    """Divided by a number."""
    if isinstance(other, Tensor) and other.dim():
        raise RuntimeError("a sparse tensor can be divided by a number only")
    return with_values(self, self._values() / other)


@kernel("mul.out")
def mul_out(self: Tensor, other: Tensor, *, out: Tensor) -> Tensor:
    """The same into a given tensor."""
    return out.copy_(mul(self, other))


@kernel("mul_.Tensor")
def mul_(self: Tensor, other: Tensor) -> Tensor:
    """Scaled in place."""
    return self.copy_(mul(self, other))


@kernel("div_.Tensor")
def div_(self: Tensor, other: Tensor) -> Tensor:
    """Divided in place."""
    return self.copy_(div(self, other))


# -- functions of the values -------------------------------------------------------------------------------------------

# They give 0 for 0, and need the sum at each coordinate: coalesced first, unless they are linear.
LINEAR = "neg conj_physical"
KEEPING_ZERO = """abs sqrt sin tan sinh tanh asin atan asinh atanh expm1 log1p sign sgn relu floor ceil round trunc
    rad2deg deg2rad erf erfinv isnan isinf signbit positive"""


def _of_values(name: str, linear: bool) -> Callable[[Tensor], Tensor]:
    function = getattr(aten, name).default

    def run(self: Tensor) -> Tensor:
        self = self if linear else self.coalesce()
        return with_values(self, function(self._values()))

    return run


for _name in LINEAR.split():
    KERNELS[_name] = _of_values(_name, True)
for _name in KEEPING_ZERO.split():
    if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{_name}", "SparseCPU"):
        KERNELS[_name] = _of_values(_name, False)


@kernel("pow.Tensor_Scalar")
def power(self: Tensor, exponent: Any) -> Tensor:
    """A power above zero."""
    if exponent <= 0:
        raise RuntimeError("a sparse tensor can be raised to a power above zero only")
    self = self.coalesce()
    return with_values(self, self._values() ** exponent)


@kernel("sparse_mask")
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The values of self at the coordinates of mask."""
    dense = self.to_dense() if is_coo(self) else self
    return with_values(mask, dense[tuple(mask._indices().unbind(0))])


@kernel("zeros_like", "empty_like")
def zeros_like(self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
    """No values, or a dense tensor of zeros."""
    return torch.zeros(
        self.shape, dtype=dtype or self.dtype, layout=layout or self.layout, device=device or self.device
    )


@kernel("norm.ScalarOpt_dim")
def norm(self: Tensor, p: Any = 2, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The norm of the values."""
    if dim or keepdim:
        raise RuntimeError("the norm of a sparse tensor is taken over all of it only")
    return torch.norm(self.coalesce()._values(), 2 if p is None else p)


@kernel("cat")
def cat(tensors: list[Tensor], dim: int = 0) -> Tensor:
    """Sparse tensors one after the other along a sparse dim."""
    first = tensors[0]
    if not all(is_coo(t) and t.sparse_dim() == first.sparse_dim() for t in tensors):
        raise RuntimeError("cat of sparse tensors needs COO tensors with the same number of sparse dims")
    dim = dim % first.dim()
    if dim >= first.sparse_dim():
        raise RuntimeError("sparse tensors can be concatenated along sparse dims only")
    kind, at, parts = torch.result_type(first, tensors[-1]), 0, []
    for t in tensors:
        shift = torch.zeros((t.sparse_dim(), 1), dtype=torch.int64, device=t.device)
        shift[dim] = at
        parts.append((t._indices() + shift, t._values().to(kind)))
        at += t.shape[dim]
    size = [at if d == dim else n for d, n in enumerate(first.shape)]
    return made(torch.cat([i for i, _ in parts], 1), torch.cat([v for _, v in parts]), size)


@kernel("index_select")
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices along a dim, by way of a dense tensor."""
    from torch_pjrt.dispatch.sparse_make import to_coo

    return to_coo(self.to_dense().index_select(dim, index), sparse_dim=self.sparse_dim())
