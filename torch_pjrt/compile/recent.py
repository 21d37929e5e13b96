"""How the arguments of a graph's last calls lay: whether the next ones lie alike is asked in a few passes, most of them in C.

Owns the short cut in front of bind (captured.py), which for hundreds of arguments costs as much as the launch of their
program. It says yes only where bind would give the same key, and sends everything else there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch

from torch_pjrt.compile.captured import Captured, Signature
from torch_pjrt.compile.positions import Numbers
from torch_pjrt.tensor.storage import Cell

TensorGuards: Any
try:  # private to Dynamo
    from torch._C._dynamo.guards import TensorGuards
except ImportError:
    TensorGuards = None

_offset_of = torch.Tensor.storage_offset


class Recent:
    """Arguments that lay in one way, and what they were found to be: key, starts, capture and its numbers."""

    def __init__(
        self,
        args: Sequence[Any],
        cells: Sequence[Cell],
        key: Signature,
        starts: tuple[int, ...],
        captured: Captured,
        numbers: Numbers | None,
    ):
        self.found = key, starts, captured, numbers
        places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        plain = sorted(set(range(len(args))) - set(places))
        # else there are tensors of the host, or this torch has no such class: bind says the same, at a higher cost
        self.usable = len(places) == len(cells) > 0 and TensorGuards is not None
        if not self.usable:
            return
        tensors = [args[i] for i in places]
        self.tensors_of: Callable[[Sequence[Any]], Sequence[Any]] | None = _picker(places) if plain else None
        self.plain_of = _picker(plain) if plain else None
        self.plain = [(type(args[i]), args[i]) for i in plain]
        self.count = len(args)
        self.offsets = list(map(_offset_of, tensors))
        self.specs = [c.value.spec for c in cells]
        # torch asserts nothing of these two, but reads them
        self.check = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check

    def cells(self, args: Sequence[Any]) -> list[Cell] | None:
        """The Cells of these arguments, if they lie as those did."""
        if not self.usable or len(args) != self.count:
            return None
        tensors = args
        if self.tensors_of is not None and self.plain_of is not None:
            if [(type(a), a) for a in self.plain_of(args)] != self.plain:
                return None
            tensors = self.tensors_of(args)
        try:
            if list(map(_offset_of, tensors)) != self.offsets or not self.check(*tensors):
                return None
            cells = [t.untyped_storage()._pjrt for t in tensors]
        except (AttributeError, TypeError):  # not a tensor, or one whose storage torch made by itself
            return None
        return cells if [c.value.spec for c in cells] == self.specs else None


def _picker(places: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that picks the items at these places."""
    if len(places) == 1:
        (place,) = places
        return lambda args: (args[place],)
    return itemgetter(*places)
