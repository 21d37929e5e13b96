"""What torch's functions that need a known size do while a model is recorded for an export: the same with an open one.

torch.export keeps no size open that such a function takes: nn.LSTM is unrolled over its length, and the number of points of
torch.linspace is a plain int in its schema. A function mode gives these calls to operators of our own (torch.ops.pjrt)
whose sizes may be symbols. Used by export/dynamic.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torch_pjrt.export.recurrent import over_time

Function = Callable[..., Any]
CELLS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _recurrent(cell: str, original: Function) -> Function:
    loops = over_time(cell)

    def call(*args: Any) -> Any:
        packed = not isinstance(args[3], bool)
        return (original if packed else loops)(*args)

    return call


def _points(name: str, original: Function) -> Function:
    """linspace and logspace."""

    def call(start: Any, end: Any, steps: Any, base: Any = 10.0, **options: Any) -> Any:
        device, dtype = options.get("device"), options.get("dtype")
        ends = [start, end, *([base] if name == "logspace" else [])]
        if not isinstance(steps, torch.SymInt):
            return original(start, end, steps, *ends[2:], **options)
        first, last, *bases = (
            e if isinstance(e, torch.Tensor) else torch.full((), e, dtype=torch.float64, device=device) for e in ends
        )
        return getattr(torch.ops.pjrt, name)(first, last, steps, *bases, dtype=dtype)

    return call


class OpenCalls(TorchFunctionMode):
    """While active, the functions of a table take open sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = {getattr(torch, cell): _recurrent(cell, getattr(torch, cell)) for cell in CELLS}
        self.table |= {getattr(torch, n): _points(n, getattr(torch, n)) for n in ("linspace", "logspace")}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One call of a torch function."""
        return self.table.get(function, function)(*args, **(kwargs or {}))
