"""Arithmetic on equal-shaped arrays: the binary family and its integer rules.

Rows here promote and broadcast, so every array (and every Scalar) arrives with one shape and one dtype.
"""

from __future__ import annotations

from typing import Any

from jax import lax

from torch_pjrt.lowerings.arrays import Array, is_complex
from torch_pjrt.ops.registry import Promote, row


@row("add.Tensor", "add.Scalar", promote=Promote.DEFAULT)
def add(self: Array, other: Array, alpha: Any) -> Array:
    """self + alpha * other; logical or for bools."""
    if self.dtype == bool:
        return lax.bitwise_or(self, lax.bitwise_and(alpha, other))
    return lax.add(self, lax.mul(alpha, other))


@row("mul.Tensor", "mul.Scalar", promote=Promote.DEFAULT)
def mul(self: Array, other: Array) -> Array:
    """self * other; logical and for bools."""
    return lax.bitwise_and(self, other) if self.dtype == bool else lax.mul(self, other)


@row("abs", promote=Promote.DEFAULT)
def absolute(self: Array) -> Array:
    """|self|; real for complex."""
    return lax.abs(self) if is_complex(self) or self.dtype.kind != "u" else self
