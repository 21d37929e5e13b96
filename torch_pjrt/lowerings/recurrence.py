"""A whole layer of nn.LSTM, nn.GRU or nn.RNN in one direction, as one loop over time; for exports, forward only.

Its trip count may be a size that stays open (a symbolic size of jax.export). What goes into the gates from the input is
computed before, as one product; the cells are those of rnn.py. export/recurrent.py puts layers and directions together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from torch_pjrt.lowerings.arrays import Array, as_dtype, broadcast_to
from torch_pjrt.lowerings.matmul import Dims, product
from torch_pjrt.lowerings.rnn import gru_cell, lstm_cell
from torch_pjrt.ops.registry import row

SCHEMAS = {
    "recurrence": "(Tensor gates, Tensor[] state, Tensor weight, Tensor? bias, Tensor? projection, Tensor? lengths, "
    "str cell, bool reverse) -> Tensor[]"
}

_BY_ROWS: Dims = (((1,), (1,)), ((), ()))  # x @ weight.T
State = tuple[Array, ...]


def _lstm(gates: Array, hidden: Array, state: State, bias: Array | None) -> State:
    return lstm_cell(gates, hidden, state[1], None, bias)[:2]


def _gru(gates: Array, hidden: Array, state: State, bias: Array | None) -> State:
    return gru_cell(gates, hidden, state[0], None, bias)[:1]


def _elman(squash: Callable[[Array], Array]) -> Callable[..., State]:
    def step(gates: Array, hidden: Array, state: State, bias: Array | None) -> State:
        total = lax.add(gates, hidden if bias is None else lax.add(hidden, broadcast_to(bias, hidden.shape)))
        return (squash(total),)

    return step


CELLS: dict[str, Callable[..., State]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _elman(lax.tanh),
    "rnn_relu": _elman(lambda x: lax.select(lax.le(x, lax.full_like(x, 0)), lax.full_like(x, 0), x)),
}


@row("pjrt::recurrence")
def recurrence(
    gates: Array,
    state: Sequence[Array],
    weight: Array,
    bias: Array | None,
    projection: Array | None,
    lengths: Array | None,
    cell: str,
    reverse: bool,
    precision: Any,
) -> list[Array]:
    """[outputs over time, the last state's parts]. gates: [time, batch, what the input gives them], with its bias.

    lengths: [batch], how many times count of each sequence; afterwards (in reverse: before) the state stays, outputs are 0.
    """
    step = CELLS[cell]

    def by_rows(x: Array, matrix: Array) -> Array:
        return as_dtype(product(x, matrix, _BY_ROWS, precision), x.dtype)

    def advance(before: State, now: tuple[Array, Array]) -> tuple[State, Array]:
        time, given = now
        after = step(given, by_rows(before[0], weight), before, bias)
        if projection is not None:
            after = (by_rows(after[0], projection), *after[1:])
        output = after[0]
        if lengths is not None:
            counts = lax.lt(lax.broadcast(time, lengths.shape), as_dtype(lengths, np.int64))
            mask = [lax.broadcast_in_dim(counts, part.shape, (0,)) for part in after]
            output = lax.select(mask[0], output, lax.full_like(output, 0))
            after = tuple(map(lax.select, mask, after, before))
        return after, output

    times = lax.iota(np.int64, gates.shape[0])
    last, outputs = lax.scan(advance, tuple(state), (times, gates), reverse=reverse)
    return [outputs, *last]
