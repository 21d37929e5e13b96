"""nn.LSTM, nn.GRU and nn.RNN for exports: their layers and directions, each one loop (lowerings/recurrence.py).

torch would unroll them over time, which takes a length that is known. The functions here have the arguments of torch.lstm
and its likes; export/open_calls.py puts them in their places while a model is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional as F

Tensor = torch.Tensor


def _layer_weights(params: Sequence[Tensor], has_biases: bool, projected: bool) -> Iterator[tuple[Tensor | None, ...]]:
    """Per layer and direction: weights of input and state, their biases, the projection."""
    count = 2 + 2 * has_biases + projected
    for start in range(0, len(params), count):
        weights = params[start : start + count]
        biases = weights[2:4] if has_biases else (None, None)
        yield (*weights[:2], *biases, weights[-1] if projected else None)


def _stacked(
    cell: str,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Iterator[tuple[Any, ...]],
    *,
    lengths: Tensor | None,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
) -> tuple[Tensor, list[Tensor]]:
    """All layers over x [time, batch, features]; states: each [layers * directions, batch, width], as is what is returned."""
    found: list[Sequence[Tensor]] = []
    for layer in range(num_layers):
        outputs = []
        for reverse in (False, True)[: 1 + bidirectional]:
            input_weight, weight, input_bias, bias, projection = next(weights)
            gates = F.linear(x, input_weight, input_bias)
            own = [s[len(found)] for s in states]
            output, *last = torch.ops.pjrt.recurrence(gates, own, weight, bias, projection, lengths, cell, reverse)
            outputs.append(output)
            found.append(last)
        x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        if dropout and layer < num_layers - 1:
            x = F.dropout(x, dropout, training=True)
    return x, [torch.stack(parts) for parts in zip(*found, strict=True)]


def over_time(cell: str) -> Callable[..., tuple[Tensor, ...]]:
    """torch.lstm, gru, rnn_tanh or rnn_relu for a tensor of equally long sequences."""

    def call(
        input: Tensor,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        states: Sequence[Tensor] = hx if cell == "lstm" else (hx,)
        projected = cell == "lstm" and states[0].shape[-1] != states[1].shape[-1]
        output, last = _stacked(
            cell,
            input.transpose(0, 1) if batch_first else input,
            states,
            _layer_weights(params, has_biases, projected),
            lengths=None,
            num_layers=num_layers,
            dropout=dropout if train else 0.0,
            bidirectional=bidirectional,
        )
        return (output.transpose(0, 1) if batch_first else output, *last)

    return call
