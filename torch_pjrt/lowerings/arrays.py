"""Small array operations that several families share: casts, broadcasts, dims, masks.

Only what at least two families use belongs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

Array = Any


def as_dtype(x: Array, dtype: Any) -> Array:
    """x converted to a NumPy dtype (unchanged if it has it).

    A bool becomes a float by way of an integer: of a product with a bool that was converted at once XLA makes a selection,
    in which infinity times False is 0, not NaN, and -1 times False is 0, not -0. What float8_e4m3fn cannot hold becomes its
    largest number, as in torch; XLA would make NaN of it.
    """
    if x.dtype == dtype:
        return x
    if np.dtype(dtype).name == "float8_e4m3fn":
        if x.dtype.kind in "iub" or x.dtype.itemsize == 1:
            x = lax.convert_element_type(x, np.float32)
        most = lax.full_like(x, 448)
        x = lax.clamp(lax.neg(most), x, most)
    if x.dtype == np.bool_ and np.dtype(dtype).kind not in "iub":
        x = lax.convert_element_type(x, np.int32)
    return lax.convert_element_type(x, dtype)


def like(number: Array | float, x: Array) -> Array:
    """A number (Python or 0-d array) as an array of x's shape and dtype."""
    return lax.broadcast(lax.convert_element_type(number, x.dtype), x.shape)


def constant(value: complex, x: Array) -> Array:
    """A Python constant as an array of x's shape and dtype."""
    return lax.full_like(x, value)


def is_float(x: Array) -> bool:
    """Real floating point, the narrow kinds included."""
    return np.issubdtype(x.dtype, np.floating) or x.dtype.name.startswith(("bfloat16", "float8"))


def is_complex(x: Array) -> bool:
    """complex64 or complex128."""
    return bool(np.issubdtype(x.dtype, np.complexfloating))


def isnan(x: Array) -> Array:
    """Whether each element is not a number (never, for integers)."""
    return lax.ne(x, x) if is_float(x) or is_complex(x) else lax.full_like(x, False, dtype=np.bool_)


def signbit(x: Array) -> Array:
    """The sign bit, also of -0.0 and NaN. Read through float32, whose bits every chip can see."""
    if x.dtype.kind in "ub":
        return lax.full_like(x, False, dtype=np.bool_)
    if x.dtype.kind == "i":
        return lax.lt(x, constant(0, x))
    bits = lax.bitcast_convert_type(lax.convert_element_type(x, np.float32), np.int32)
    return lax.lt(bits, constant(0, bits))


def computed_first(x: Array, platform: str = "cpu") -> Array:
    """x as a buffer of its own, before what takes it: for what is written into a part of an array.

    XLA:CPU (jaxlib 0.10) writes in place also where the same fused loop computes x from that array, and then reads what it
    has already overwritten (openxla/xla issue 49176). Elsewhere, x stays as it is. platform: what is compiled for.
    """
    return lax.optimization_barrier(x) if platform in ("cpu", "") else x


def computed_once(x: Array) -> Array:
    """x as one buffer for all that read it: for what is compared with an element of itself.

    Else XLA computes a cheap x again in each loop that takes it. Whether `a * b + c` is rounded once or twice differs between
    its loops and its reductions, and then no element equals the largest.
    """
    return lax.optimization_barrier(x) if x.dtype.kind not in "biu" else x


def opmath(dtype: np.dtype) -> np.dtype:
    """The dtype to accumulate in: float32 for floats narrower than that, else the dtype."""
    narrow = dtype == np.float16 or dtype.name.startswith(("bfloat16", "float8"))
    return np.dtype(np.float32) if narrow else dtype


def wrap_dim(dim: int, rank: int) -> int:
    """A possibly negative dim as 0..rank-1 (rank 0 counts as 1)."""
    return dim % max(rank, 1)


def wrap_dims(dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Dims to reduce as sorted non-negative ones; None or () mean all."""
    if dims is None or dims == () or dims == []:
        return tuple(range(rank))
    if isinstance(dims, int):
        dims = (dims,)
    return tuple(sorted({wrap_dim(d, rank) for d in dims})) if rank else ()


def keep_dims(x: Array, dims: Sequence[int], shape: Sequence[int]) -> Array:
    """A reduced array with the reduced dims put back as size 1; shape is the unreduced one."""
    return lax.reshape(x, tuple(1 if d in dims else n for d, n in enumerate(shape)))


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    """NumPy-style broadcast (dims aligned from the right)."""
    if tuple(x.shape) == tuple(shape):
        return x
    return lax.broadcast_in_dim(x, tuple(shape), tuple(range(len(shape) - x.ndim, len(shape))))


def broadcast_together(*arrays: Array) -> list[Array]:
    """All arrays broadcast to their common shape."""
    shape = lax.broadcast_shapes(*(a.shape for a in arrays))
    return [broadcast_to(a, shape) for a in arrays]


def iota(shape: Sequence[int], dim: int, dtype: Any = np.int64) -> Array:
    """The position along one dim, for every element."""
    return lax.broadcasted_iota(dtype, tuple(shape), dim)
