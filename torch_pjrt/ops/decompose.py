"""Operators that are other operators: our list first, then torch's decomposition table.

Owns the order of the two and the list of torch's decompositions that are not to be used. Ours are below and in the other
decompose_*.py, which load_rows() imports.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

DECOMPOSITIONS: dict[str, Callable[..., Any]] = {}
REFUSED: frozenset[str] = frozenset()


def decomposition(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a function of tensors, written with other operators, that is these overloads ("aten::x.default")."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            DECOMPOSITIONS[name] = fn
        return fn

    return register


@cache
def decomposition_of(op: OpOverload) -> Callable[..., Any] | None:
    """The decomposition of an overload, or None."""
    name = f"{op._schema.name}.{op._overloadname}"
    if name in DECOMPOSITIONS:
        return DECOMPOSITIONS[name]
    if name in REFUSED:
        return None
    from torch._decomp import decomposition_table

    return decomposition_table.get(op)


@decomposition("aten::_to_dense.default")
def _to_dense(self: torch.Tensor, dtype: torch.dtype | None = None, masked_grad: bool | None = None) -> torch.Tensor:
    """A strided tensor is dense already."""
    return self if dtype is None else self.to(dtype)
