"""The three Fourier transforms that torch.fft is made of: complex to complex, real to complex, complex to real.

XLA transforms up to three trailing dims at a time, so dims are moved to the end and taken in groups. `normalization`
is 0 none, 1 by the square root of the number of points, 2 by that number, whichever the direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, constant, wrap_dim
from torch_pjrt.ops.registry import row

Out = tuple[tuple[tuple[int, ...], np.dtype], ...]


def _at_end(x: Array, dims: Sequence[int], fn: Callable[[Array], Array]) -> Array:
    """fn applied with these dims, in this order, as the last ones."""
    order = [d for d in range(x.ndim) if d not in dims] + list(dims)
    if order == list(range(x.ndim)):
        return fn(x)
    return lax.transpose(fn(lax.transpose(x, order)), tuple(np.argsort(order)))


def _complex(x: Array, dims: Sequence[int], forward: bool) -> Array:
    """Unscaled forward, or backward scaled by 1/points (XLA's convention)."""
    kind = lax.FftType.FFT if forward else lax.FftType.IFFT
    for start in range(0, len(dims), 3):
        some = dims[start : start + 3]
        sizes = tuple(x.shape[d] for d in some)
        x = _at_end(x, some, lambda y, sizes=sizes: lax.fft(y, kind, sizes))  # type: ignore[misc]
    return x


def _scaled(x: Array, points: int, normalization: int, built_in: int) -> Array:
    """x times the asked factor over the one that XLA has applied (1/built_in)."""
    factor = {0: 1.0, 1: 1 / math.sqrt(max(points, 1)), 2: 1 / max(points, 1)}[normalization] * built_in
    return x if factor == 1 else lax.mul(x, constant(factor, x))


@row("_fft_c2c")
def fft_c2c(self: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    """Complex to complex."""
    dims = [wrap_dim(d, self.ndim) for d in dim]
    if not dims or self.size == 0:
        return self
    points = math.prod(self.shape[d] for d in dims)
    return _scaled(_complex(self, dims, forward), points, normalization, 1 if forward else points)


@row("_fft_r2c")
def fft_r2c(self: Array, dim: Sequence[int], normalization: int, onesided: bool, out: Out) -> Array:
    """Real to complex; onesided keeps the first half of the last dim of `dim`."""
    dims = [wrap_dim(d, self.ndim) for d in dim]
    points = math.prod(self.shape[d] for d in dims)
    if self.size == 0:
        return lax.full(*out[0][:1], 0, out[0][1])
    if not onesided:
        return _scaled(_complex(as_dtype(self, out[0][1]), dims, True), points, normalization, 1)
    last = dims[-1]
    half = _at_end(self, [last], lambda y: lax.fft(y, lax.FftType.RFFT, (self.shape[last],)))
    return _scaled(_complex(half, dims[:-1], True), points, normalization, 1)


@row("_fft_c2r")
def fft_c2r(self: Array, dim: Sequence[int], normalization: int, last_dim_size: int, out: Out) -> Array:
    """Complex (half of the last dim of `dim`) to real, backward."""
    dims = [wrap_dim(d, self.ndim) for d in dim]
    if self.size == 0:
        return lax.full(*out[0][:1], 0, out[0][1])
    last = dims[-1]
    points = math.prod(self.shape[d] for d in dims[:-1]) * last_dim_size
    whole = _complex(self, dims[:-1], False)
    real = _at_end(whole, [last], lambda y: lax.fft(y, lax.FftType.IRFFT, (last_dim_size,)))
    return _scaled(real, points, normalization, points)
