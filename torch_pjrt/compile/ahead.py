"""Which sizes a graph will meet next: a guess from the last three that it met, as tensors that nobody has computed.

Owns the option `sizes_ahead`'s guess; graph.py captures it and starts its compiles. Every size, stride and offset of the
arguments has to have grown by a constant step, as in decoding with a growing cache. A wrong guess costs work in another
thread, never a wrong result: what was made for it is found by the same key as everything else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from torch_pjrt.program.program import spec
from torch_pjrt.tensor.storage import UNFILLED, Value, cell_of, new_storage, tensor_over

Facts = tuple[tuple[Any, ...], tuple[int, ...]]  # of all arguments: what stays as it is, and the ints that may grow
_SEEN = 3


class Ahead:
    """The last sizes of one graph. count: how many of the next ones are wanted."""

    def __init__(self, count: int):
        self.count = count
        self.last: object = None
        self.seen: deque[Facts] = deque(maxlen=_SEEN)

    def guesses(self, key: object, args: Sequence[Any]) -> Iterator[list[Any]]:
        """Arguments of the next calls, nearest first, after a call with these; none while no pattern is known.

        key: what tells these arguments' sizes from others'. A size that comes twice in a row counts once.
        """
        if key == self.last:
            return
        self.last = key
        self.seen.append(_facts(args))
        if len(self.seen) < _SEEN:
            return
        (kinds, first), (same, second), (as_well, third) = self.seen
        if not kinds == same == as_well:
            return
        step = [c - b for b, c in zip(second, third, strict=True)]
        if not any(step) or step != [b - a for a, b in zip(first, second, strict=True)]:
            return
        for k in range(1, self.count + 1):
            ints = [c + k * s for c, s in zip(third, step, strict=True)]
            if any(s and n < 2 for n, s in zip(ints, step, strict=True)):  # 0 and 1 are graphs of their own
                return
            yield _arguments(args, ints)


def _ints(tensor: torch.Tensor) -> list[int]:
    cell = cell_of(tensor)
    shape = cell.value.spec.shape
    return [*tensor.shape, *tensor.stride(), *shape, int(tensor.storage_offset()), cell.nbytes]


def _facts(args: Sequence[Any]) -> Facts:
    kinds: list[Any] = []
    ints: list[int] = []
    for arg in args:
        if _of_device(arg):
            kinds.append((arg.dim(), arg.dtype, arg.is_conj(), arg.is_neg(), cell_of(arg).value.spec.dtype))
            ints += _ints(arg)
        elif type(arg) is int:
            kinds.append(int)
            ints.append(arg)
        else:  # the host's tensors are the same at every size, or their part of the graph sends an int
            kinds.append((tuple(arg.shape), arg.dtype) if isinstance(arg, torch.Tensor) else arg)
    return tuple(kinds), tuple(ints)


def _arguments(args: Sequence[Any], ints: Sequence[int]) -> list[Any]:
    """Arguments like these with other ints: tensors without contents."""
    supply = iter(ints)
    out: list[Any] = []
    for arg in args:
        if type(arg) is int:
            out.append(next(supply))
        elif not _of_device(arg):
            out.append(arg)
        else:
            old = cell_of(arg).value.spec
            size, stride = ([next(supply) for _ in range(arg.dim())] for _ in range(2))
            shape = tuple(next(supply) for _ in old.shape)
            offset, nbytes = next(supply), next(supply)
            value = Value(spec(shape, old.dtype), UNFILLED)
            twin = tensor_over(new_storage(value, nbytes), tuple(size), tuple(stride), offset, arg.dtype)
            twin = torch._conj(twin) if arg.is_conj() else twin
            out.append(torch._neg_view(twin) if arg.is_neg() else twin)
    return out


def _of_device(arg: Any) -> bool:
    return isinstance(arg, torch.Tensor) and arg.device.type != "cpu"
