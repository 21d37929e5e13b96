"""Integers and bits: bitwise logic, shifts, greatest common divisors; and neighbours of floats, which are bits too.

Rows promote and broadcast; nextafter keeps the narrow dtype, since the next float32 is not the next bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_together, constant, wrap_dims
from torch_pjrt.ops.registry import Promote, add_row, row

Out = tuple[tuple[tuple[int, ...], np.dtype], ...]

for _name, _fn in {
    "and": lambda self, other: lax.bitwise_and(self, other),
    "or": lambda self, other: lax.bitwise_or(self, other),
    "xor": lambda self, other: lax.bitwise_xor(self, other),
}.items():
    for _overload in ("Tensor", "Scalar", "Scalar_Tensor"):
        add_row(f"bitwise_{_name}.{_overload}", _fn, promote=Promote.DEFAULT)


@row("bitwise_not", promote=Promote.DEFAULT)
def bitwise_not(self: Array) -> Array:
    """All bits flipped; logical not for bools."""
    return lax.bitwise_not(self)


_OPERANDS = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
_LEFT = ("__lshift__.Tensor", "__lshift__.Scalar")
_RIGHT = ("__rshift__.Tensor", "__rshift__.Scalar")


@row(*(f"bitwise_left_shift.{n}" for n in _OPERANDS), *_LEFT, promote=Promote.DEFAULT)
def left_shift(self: Array, other: Array) -> Array:
    """self * 2 ** other, wrapping; 0 when other is negative or not below the width."""
    return lax.shift_left(self, other) if self.dtype.kind in "iu" else lax.mul(self, lax.exp2(other))


@row(*(f"bitwise_right_shift.{n}" for n in _OPERANDS), *_RIGHT, promote=Promote.DEFAULT)
def right_shift(self: Array, other: Array) -> Array:
    """self / 2 ** other rounded down; only the sign is left when other is negative or not below the width."""
    if self.dtype.kind == "u":
        return lax.shift_right_logical(self, other)
    return lax.shift_right_arithmetic(self, other) if self.dtype.kind == "i" else lax.div(self, lax.exp2(other))


def _magnitude(x: Array) -> Array:
    return lax.abs(x) if x.dtype.kind == "i" else x


@row("gcd", promote=Promote.DEFAULT)
def gcd(self: Array, other: Array) -> Array:
    """The greatest common divisor, never negative (Euclid's algorithm, all elements at once)."""
    zero, one = constant(0, self), constant(1, self)

    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = state
        done = lax.eq(b, zero)
        return lax.select(done, a, b), lax.select(done, zero, lax.rem(a, lax.select(done, one, b)))

    def more(state: tuple[Array, Array]) -> Array:
        return lax.reduce_or(lax.ne(state[1], zero), tuple(range(self.ndim)))

    return lax.while_loop(more, step, (_magnitude(self), _magnitude(other)))[0]


@row("lcm", promote=Promote.DEFAULT)
def lcm(self: Array, other: Array) -> Array:
    """The least common multiple, 0 if either is 0."""
    zero = constant(0, self)
    common = gcd(self, other)
    none = lax.eq(common, zero)
    return _magnitude(lax.mul(lax.div(self, lax.select(none, constant(1, self), common)), other))


@row("nextafter")
def nextafter(self: Array, other: Array, out: tuple[tuple[tuple[int, ...], np.dtype], ...]) -> Array:
    """The next number after self in the direction of other."""
    return lax.nextafter(*broadcast_together(as_dtype(self, out[0][1]), as_dtype(other, out[0][1])))


@row("hash_tensor")
def hash_tensor(self: Array, out: Out, dim: Sequence[int] = (), keepdim: bool = False, mode: int = 0) -> Array:
    """The elements' 64-bit patterns, combined by exclusive or."""
    wide = as_dtype(self, np.float64 if self.dtype.kind not in "iub" else np.int64)
    bits = wide if wide.dtype == np.uint64 else lax.bitcast_convert_type(wide, np.uint64)
    folded = lax.reduce(bits, np.uint64(0), lax.bitwise_xor, wrap_dims(dim or None, self.ndim))
    return lax.reshape(folded, out[0][0])
