"""Sparse tensors on the device: COO and compressed (CSR, CSC) layouts over indices and values that are device tensors.

torch's own C++ classes hold the indices and the values, so what only moves those (making, views of them, copies,
transposition) is torch's CPU code on another key. What computes is written here with dense operators: to_dense, coalesce,
sums, products with dense matrices, and elementwise functions that keep zero. Everything else says what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt.dispatch import sparse_coo, sparse_csr, sparse_make
from torch_pjrt.dispatch.lines import show, user_line
from torch_pjrt.errors import UnsupportedOpError
from torch_pjrt.ops.schema import find_overload

COO, CSR = "SparsePrivateUse1", "SparseCsrPrivateUse1"
_HOST = {
    COO: torch._C.DispatchKeySet(torch._C.DispatchKey.SparseCPU),
    CSR: torch._C.DispatchKeySet(torch._C.DispatchKey.SparseCsrCPU),
}
_libraries: list[torch.library.Library] = []

# What torch's CPU code does with the parts alone, whatever device they are on.
PARTS = {
    COO: """_nnz _indices _values indices values sparse_dim dense_dim _dimI _dimV is_coalesced _coalesced_ clone copy_
        _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors sparse_resize_ sparse_resize_and_clear_
        empty.memory_format copy_sparse_to_sparse_ zero_ resize_as_sparse_ unsqueeze""",
    CSR: """_nnz crow_indices col_indices ccol_indices row_indices values sparse_dim dense_dim clone copy_
        empty.memory_format resize_as_sparse_ _sparse_compressed_tensor_unsafe select.int""",
}


def _on_parts(name: str, key: str) -> Callable[..., Any]:
    op = find_overload(f"aten::{name}" if "." in name else f"aten::{name}.default")
    assert op is not None
    boxed, keys = op._handle.redispatch_boxed, _HOST[key]

    def run(*args: Any, **kwargs: Any) -> Any:
        return boxed(keys, *args, **kwargs)

    return run


def _refusing(layout: str) -> Callable[..., Any]:
    def refuse(op: Any, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOpError(
            f"{op.name()} is not implemented for tensors in the {layout} layout on the device",
            where=show(user_line()),
            todo="Make the operand dense first, x.to_dense(), or run this step on the CPU: x.cpu(). docs/ops.md lists "
            "what sparse tensors can do.",
        )

    return refuse


def register(library: torch.library.Library) -> None:
    """Register everything for both layouts, and the makers of sparse tensors from dense ones."""
    kernels = {COO: sparse_coo.KERNELS, CSR: sparse_csr.KERNELS}
    for key, names in PARTS.items():
        for name in names.split():
            library.impl(name, _on_parts(name, key), key)
        for name, fn in kernels[key].items():
            library.impl(name, fn, key)
        rest = torch.library.Library("_", "IMPL")  # noqa: TOR901 - lives as long as the process
        rest.fallback(_refusing("COO" if key == COO else "compressed"), key)
        _libraries.append(rest)
    for name, fn in sparse_make.KERNELS.items():
        library.impl(name, fn, "PrivateUse1")
