"""Padding: constant, reflection and replication, with the gradients of the last two.

The gradients are the transposes of the forwards, so each rule is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype
from torch_pjrt.lowerings.shape import transposed
from torch_pjrt.ops.registry import add_row, row


@row("constant_pad_nd")
def constant_pad_nd(self: Array, pad: Sequence[int], value: Array) -> Array:
    """Pad (or, where negative, crop) the last dims, given as (low, high) pairs from the last dim backwards."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    config = [(0, 0, 0)] * (self.ndim - len(pairs)) + [(low, high, 0) for low, high in pairs]
    return lax.pad(self, as_dtype(value, self.dtype), config)


def _reflected(x: Array, low: int, high: int, dim: int) -> list[Array]:
    size = x.shape[dim]
    left = [lax.rev(lax.slice_in_dim(x, 1, low + 1, axis=dim), (dim,))] if low > 0 else []
    right = [lax.rev(lax.slice_in_dim(x, size - 1 - high, size - 1, axis=dim), (dim,))] if high > 0 else []
    return [*left, x, *right]


def _replicated(x: Array, low: int, high: int, dim: int) -> list[Array]:
    def edge(at: int, count: int) -> list[Array]:
        if count <= 0:
            return []
        shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
        return [lax.broadcast_in_dim(lax.slice_in_dim(x, at, at + 1, axis=dim), shape, range(x.ndim))]

    return [*edge(0, low), x, *edge(x.shape[dim] - 1, high)]


def padded(x: Array, padding: Sequence[int], extend: Callable[[Array, int, int, int], list[Array]]) -> Array:
    """Extend then crop each of the last dims."""
    for index, (low, high) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        dim = x.ndim - 1 - index
        parts = extend(x, low, high, dim)
        x = lax.concatenate(parts, dim) if len(parts) > 1 else x
        x = lax.slice_in_dim(x, max(-low, 0), x.shape[dim] - max(-high, 0), axis=dim)
    return x


def _add(kind: str, rank: int, extend: Callable[[Array, int, int, int], list[Array]]) -> None:
    def forward(self: Array, padding: Sequence[int]) -> Array:
        return padded(self, padding, extend)

    def backward(grad_output: Array, self: Array, padding: Sequence[int]) -> Array:
        if grad_output.size == 0:
            return lax.full_like(self, 0)
        return transposed(partial(padded, padding=padding, extend=extend), self.shape, grad_output)

    add_row(f"{kind}_pad{rank}d", forward)
    add_row(f"{kind}_pad{rank}d_backward", backward)


for _rank in (1, 2, 3):
    _add("reflection", _rank, _reflected)
    _add("replication", _rank, _replicated)
