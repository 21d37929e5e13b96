"""Resizing (upsample_*): nearest, linear, cubic and their antialiased forms, forward and backward.

Each is separable, so a row applies one constant band matrix (output position x input position) per dim; the gradient
applies the transposes. The matrices are computed here in the precision in which torch computes source positions.
Sampling at given points is in grid.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings import resize_open
from torch_pjrt.lowerings.arrays import Array, as_dtype, constant, opmath
from torch_pjrt.lowerings.resize_open import Taps, Weights, is_open
from torch_pjrt.ops.registry import add_row

Matrix = np.ndarray[Any, Any]
Open = Taps | Weights  # what stands for a matrix where a size is open
Maker = Callable[..., Matrix | Open]
_MOST_TAPS = 12  # wider bands are applied as a matrix product


def _ratio(size: int, new: int, scale: float | None, corners: bool, real: Any) -> Any:
    """Input positions per output position."""
    if corners:
        return real(size - 1) / real(new - 1) if new > 1 else real(0)
    return real(1.0 / scale) if scale is not None and scale > 0 else real(size) / real(new)


def _filled(size: int, new: int, taps: Sequence[tuple[Any, Any]]) -> Matrix:
    matrix = np.zeros((new, size))
    for index, weight in taps:
        np.add.at(matrix, (np.arange(new), np.clip(index, 0, size - 1)), weight)
    return matrix


def nearest(size: int, new: int, scale: float | None, corners: bool, real: Any, *, shift: float) -> Matrix | Open:
    """Floor of the scaled position (shift 0), or of its centre (shift 1/2); always in float32, as torch does."""
    f = np.float32
    if is_open(size, new):
        return resize_open.nearest(size, new, scale, shift)
    if shift == 0 and new in (size, 2 * size):  # torch then ignores a scale that says otherwise
        return _filled(size, new, [(np.arange(new) // (new // max(size, 1)), 1.0)])
    source = np.floor((np.arange(new, dtype=f) + f(shift)) * f(_ratio(size, new, scale, False, f)))
    return _filled(size, new, [(source.astype(np.int64), 1.0)])


def linear(size: int, new: int, scale: float | None, corners: bool, real: Any) -> Matrix | Open:
    """Two taps."""
    if is_open(size, new):
        return resize_open.linear(size, new, scale, corners, real)
    if new == size:  # torch then copies, whatever the scale
        return np.eye(size)
    at = np.arange(new).astype(real)
    ratio = _ratio(size, new, scale, corners, real)
    source = at * ratio if corners else np.maximum((at + real(0.5)) * ratio - real(0.5), real(0))
    low = np.minimum(source.astype(np.int64), size - 1)
    part = np.clip(source - low.astype(real), 0, 1)
    return _filled(size, new, [(low, 1 - part), (low + 1, part)])


def cubic(size: int, new: int, scale: float | None, corners: bool, real: Any) -> Matrix | Open:
    """Four taps of the cubic convolution kernel with a = -0.75."""
    if is_open(size, new):
        return resize_open.cubic(size, new, scale, corners, real)
    at = np.arange(new).astype(real)
    ratio = _ratio(size, new, scale, corners, real)
    source = at * ratio if corners else (at + real(0.5)) * ratio - real(0.5)
    low = np.floor(source)
    part = source - low
    return _filled(size, new, [(low.astype(np.int64) + k, _keys(np.abs(part - k), -0.75)) for k in (-1, 0, 1, 2)])


def _keys(x: Matrix, a: float) -> Matrix:
    """The cubic convolution kernel (Keys, 1981) at distances x >= 0."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


_FILTERS: dict[str, tuple[int, Callable[[Matrix], Matrix]]] = {
    "bilinear": (2, lambda x: np.maximum(1 - x, 0)),
    "bicubic": (4, lambda x: _keys(x, -0.5)),
    "lanczos": (6, lambda x: np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)),
}


def antialiased(size: int, new: int, scale: float | None, corners: bool, real: Any, *, kind: str) -> Matrix | Open:
    """A filter widened by the shrinking ratio, its weights summing to 1."""
    taps, weight = _FILTERS[kind]
    if is_open(size, new):
        return resize_open.antialiased(size, new, scale, corners, real, kind=kind, taps=taps)
    ratio = _ratio(size, new, scale, corners, real)
    support = real(taps * 0.5) * max(ratio, real(1))
    centre = ratio * (np.arange(new).astype(real) + real(0.5))
    low = np.maximum((centre - support + real(0.5)).astype(np.int64), 0)
    high = np.minimum((centre + support + real(0.5)).astype(np.int64), size)
    at = np.arange(size)[None, :]
    inside = (at >= low[:, None]) & (at < high[:, None])
    values = weight(np.abs((at - centre[:, None] + 0.5) / max(ratio, real(1)))) * inside
    total = values.sum(1, keepdims=True)
    return values / np.where(total == 0, 1, total)


def taken(x: Array, index: Matrix, dim: int) -> Array:
    """x at constant positions of a dim: a slice or a broadcast where that suffices, else a gather."""
    size, count = x.shape[dim], len(index)
    steps = np.unique(np.diff(index)) if count > 1 else np.array([1])
    if len(steps) == 1 and steps[0] >= 1:
        return lax.slice_in_dim(x, int(index[0]), int(index[-1]) + 1, int(steps[0]), axis=dim)
    if count % size == 0 and np.array_equal(index, np.arange(count) // (count // size)):
        shape = (*x.shape[: dim + 1], count // size, *x.shape[dim + 1 :])
        kept = [d for d in range(len(shape)) if d != dim + 1]
        return lax.reshape(lax.broadcast_in_dim(x, shape, kept), (*x.shape[:dim], count, *x.shape[dim + 1 :]))
    at = (slice(None),) * dim + (index.astype(np.int32),)
    return x.at[at].get(mode="promise_in_bounds", indices_are_sorted=bool((np.diff(index) >= 0).all()))


def _weighted(x: Array, weight: Matrix, dim: int) -> Array:
    if (weight == 1).all():
        return x
    spread = partial(lax.broadcast_in_dim, shape=x.shape, broadcast_dimensions=(dim,))
    if ((weight == 0) | (weight == 1)).all():
        return lax.select(spread(weight == 1), x, constant(0, x))
    return lax.mul(x, spread(weight.astype(x.dtype)))


def banded(x: Array, matrix: Matrix, dim: int) -> Array:
    """A constant band matrix applied along a dim: a few shifted, weighted copies, or a product when it is wide."""
    size, present = matrix.shape[1], matrix != 0
    first = np.where(present.any(1), present.argmax(1), 0)
    last = np.where(present.any(1), size - 1 - present[:, ::-1].argmax(1), 0)
    taps = int((last - first).max()) + 1
    repeats = matrix.shape[1] // max(matrix.shape[0], 1)
    if taps > 1 and np.array_equal(matrix, np.repeat(np.eye(len(matrix)), repeats, 1)):
        shape = (*x.shape[:dim], len(matrix), repeats, *x.shape[dim + 1 :])
        return lax.reduce_sum(lax.reshape(x, shape), (dim + 1,))
    if taps > _MOST_TAPS:
        numbers = (((dim,), (1,)), ((), ()))
        y = lax.dot_general(x, matrix.astype(x.dtype), numbers, precision=lax.Precision.HIGHEST)
        return lax.transpose(y, (*range(dim), y.ndim - 1, *range(dim, y.ndim - 1)))
    start = np.minimum(first, size - taps)
    total = None
    for k in range(taps):
        part = _weighted(taken(x, start + k, dim), matrix[np.arange(len(matrix)), start + k], dim)
        total = part if total is None else lax.add(total, part)
    return total


def _copies(matrix: Matrix | Open) -> bool:
    """Whether values are copied, not mixed."""
    if isinstance(matrix, Open):
        return matrix.exact
    return bool(((matrix == 0) | (matrix == 1)).all() and (matrix.sum(1) <= 1).all())


def _applied(x: Array, matrix: Matrix | Open, dim: int) -> Array:
    return matrix.applied(x, dim) if isinstance(matrix, Open) else banded(x, matrix, dim)


def _resized(x: Array, matrices: Sequence[Matrix | Open], dtype: np.dtype) -> Array:
    exact = all(map(_copies, matrices))
    whole = dtype.kind in "iu" and not exact  # integers are rounded after each dim, the last dim first, as torch does
    if not exact:
        x = as_dtype(x, np.dtype(np.float32) if whole else opmath(dtype))
    dims = list(enumerate(matrices, start=x.ndim - len(matrices)))
    for dim, matrix in reversed(dims) if whole else dims:
        if isinstance(matrix, Open) or not np.array_equal(matrix, np.eye(x.shape[dim])):
            x = _applied(x, matrix, dim)
            if whole:
                info = np.iinfo(dtype)
                x = lax.floor(lax.add(x, constant(0.5, x)))
                x = lax.clamp(np.float32(info.min), x, np.float32(info.max))
    return as_dtype(x, dtype)


def _in_fixed_point(matrix: Matrix) -> tuple[Matrix, int]:
    """Weights as torch has them for bytes: 16-bit integers with as many binary places as the largest leaves room for."""
    largest = float(matrix.max(initial=0))
    places = next((p for p in range(22) if int(0.5 + largest * 2.0 ** (p + 1)) >= 1 << 15), 22)
    return np.trunc(matrix * 2.0**places + np.copysign(0.5, matrix)).astype(np.int32), places


def _resized_bytes(x: Array, matrices: Sequence[Matrix | Open]) -> Array:
    """Images of bytes, in integers; rounded after each dim, the last dim first, as torch does."""
    for dim, matrix in reversed(list(enumerate(matrices, start=x.ndim - len(matrices)))):
        wide = as_dtype(x, np.dtype(np.int32))
        if isinstance(matrix, Open):
            total = matrix.of_bytes(wide, dim)
        elif np.array_equal(matrix, np.eye(x.shape[dim])):
            continue
        else:
            weights, places = _in_fixed_point(matrix)
            total = banded(wide, weights, dim)
            total = lax.add(total, constant((1 << places) >> 1, total))
            total = lax.shift_right_arithmetic(total, constant(places, total))
        x = as_dtype(lax.clamp(np.int32(0), total, np.int32(255)), np.dtype(np.uint8))
    return x


def _matrices(make: Maker, old: Sequence[int], new: Sequence[int], corners: bool, scales: Any, dtype: Any) -> list[Any]:
    real = np.float64 if dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        return [make(o, n, s, corners, real) for o, n, s in zip(old, new, scales, strict=True)]


def _add(name: str, rank: int, make: Maker) -> None:
    names = ("scales",) if rank == 1 else ("scales_d", "scales_h", "scales_w")[3 - rank :]

    def forward(self: Array, output_size: Sequence[int], align_corners: bool = False, **scales: float | None) -> Array:
        given = [scales[n] for n in names]
        matrices = partial(_matrices, make, self.shape[2:], output_size, align_corners, given)
        if self.dtype == np.uint8 and rank == 2 and "nearest" not in name:
            return _resized_bytes(self, matrices(np.float64))
        return _resized(self, matrices(self.dtype), self.dtype)

    def backward(
        grad_output: Array,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool = False,
        **scales: Any,
    ) -> Array:
        given = [scales[n] for n in names]
        matrices = _matrices(make, input_size[2:], output_size, align_corners, given, grad_output.dtype)
        wide = as_dtype(grad_output, opmath(grad_output.dtype))
        return as_dtype(_resized(wide, [m.T for m in matrices], wide.dtype), grad_output.dtype)

    add_row(name, forward, static=names)
    add_row(f"{name}_backward", backward, static=names)


for _rank in (1, 2, 3):
    _add(f"upsample_nearest{_rank}d", _rank, partial(nearest, shift=0.0))
    _add(f"_upsample_nearest_exact{_rank}d", _rank, partial(nearest, shift=0.5))
for _name, _rank in (("linear1d", 1), ("bilinear2d", 2), ("trilinear3d", 3)):
    _add(f"upsample_{_name}", _rank, linear)
_add("upsample_bicubic2d", 2, cubic)
for _kind in _FILTERS:
    _add(f"_upsample_{_kind}2d_aa", 2, partial(antialiased, kind=_kind))
