"""Comparisons, tests of values, logic, and selection by a mask.

Everything but the selections gives bools; operands are compared in torch's common dtype.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, constant, is_complex, is_float, isnan, signbit
from torch_pjrt.ops.registry import Promote, add_row, row


def _compare(relation: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def compare(self: Array, other: Array) -> Array:
        return relation(self, other)

    return compare


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    for _overload in ("Tensor", "Scalar"):
        add_row(f"{_name}.{_overload}", _compare(getattr(lax, _name)), promote=Promote.DEFAULT)


def truth(x: Array) -> Array:
    """x != 0, as bool."""
    return x if x.dtype == bool else lax.ne(x, constant(0, x))


for _name, _relation in {"and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor}.items():
    add_row(
        f"logical_{_name}",
        lambda self, other, _relation=_relation: _relation(truth(self), truth(other)),
        promote=Promote.DEFAULT,
    )


@row("logical_not", promote=Promote.DEFAULT)
def logical_not(self: Array) -> Array:
    """Whether each element is zero."""
    return lax.bitwise_not(truth(self))


add_row("isnan", lambda self: isnan(self), promote=Promote.DEFAULT)
add_row("signbit", lambda self: signbit(self), promote=Promote.DEFAULT)


def _equals(self: Array, value: float) -> Array:
    return lax.eq(self, constant(value, self)) if is_float(self) else lax.full_like(self, False, dtype=np.bool_)


@row("isinf", promote=Promote.DEFAULT)
def isinf(self: Array) -> Array:
    """Whether each element (or one of its parts, for complex) is infinite."""
    if is_complex(self):
        return lax.bitwise_or(isinf(lax.real(self)), isinf(lax.imag(self)))
    return _equals(lax.abs(self), np.inf) if is_float(self) else _equals(self, np.inf)


@row("isposinf", promote=Promote.DEFAULT)
def isposinf(self: Array) -> Array:
    """Whether each element is plus infinity."""
    return _equals(self, np.inf)


@row("isneginf", promote=Promote.DEFAULT)
def isneginf(self: Array) -> Array:
    """Whether each element is minus infinity."""
    return _equals(self, -np.inf)


@row("where.self", promote=Promote.DEFAULT, keep=("condition",))
def where(condition: Array, self: Array, other: Array) -> Array:
    """self where the condition holds, else other."""
    return lax.select(truth(condition), self, other)


@row("masked_fill.Scalar", "masked_fill.Tensor", promote=Promote.DEFAULT, keep=("mask",))
def masked_fill(self: Array, mask: Array, value: Array) -> Array:
    """value where the mask holds, else self."""
    return lax.select(truth(mask), value, self)
