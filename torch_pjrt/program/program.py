"""What a computation is before it runs: specs of payloads, views of them, steps and Programs.

Everything here is immutable and compared by identity (specs, avals and templates are interned, so a key is a tuple of
small ints). No arrays and no device.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from torch_pjrt.config import settings
from torch_pjrt.ops.dtypes import TO_NUMPY
from torch_pjrt.ops.registry import Row
from torch_pjrt.program.access import AccessPlan


class Spec:
    """Shape (in storage order) and dtype of a payload. Interned: use spec()."""

    __slots__ = ("dtype", "id", "nbytes", "shape", "text")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, number: int):
        self.shape = shape
        self.dtype = dtype
        self.id = number
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.text = f"{dtype.name}{list(shape)}"

    def __repr__(self) -> str:
        return self.text


_specs: dict[tuple[tuple[int, ...], np.dtype], Spec] = {}


def spec(shape: tuple[int, ...], dtype: np.dtype) -> Spec:
    """The one Spec of this shape and NumPy dtype."""
    key = (tuple(shape), dtype)
    found = _specs.get(key)
    if found is None:
        found = _specs.setdefault(key, Spec(key[0], dtype, len(_specs)))
    return found


class Aval:
    """A tensor as an operator sees it: which payload, how it is read, and the tensor's own size, stride, dtype."""

    __slots__ = ("dtype", "np_dtype", "plan", "size", "spec", "stride", "text")

    def __init__(
        self, spec: Spec, plan: AccessPlan | None, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype
    ):
        self.spec = spec
        self.plan = plan
        self.size = size
        self.stride = stride
        self.dtype = dtype
        self.np_dtype = TO_NUMPY[dtype]
        self.text = f"{spec.text}{'' if plan is None else plan}->{list(size)}{list(stride)}"

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class OutSpec:
    """A result: torch's size, stride and dtype, and the payload that holds it (dims in memory order)."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    perm: tuple[int, ...] | None  # logical dims in memory order; None when already row-major
    spec: Spec
    contiguous: bool = field(init=False, default=False)  # not empty, and strides are exactly the row-major ones

    def __post_init__(self) -> None:
        step, strides = 1, []
        for n in reversed(self.size):
            strides.append(step)
            step *= max(n, 1)
        dense = tuple(reversed(strides)) == tuple(self.stride)
        object.__setattr__(self, "contiguous", dense and 0 not in self.size)


def memory_order(size: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dims from slowest to fastest, or None when that is 0, 1, 2, ... (size-1 dims stay where they are best)."""
    dims = [d for d in range(len(size)) if size[d] != 1]
    ordered = sorted(dims, key=lambda d: -stride[d])
    if ordered == dims:
        return None
    supply = iter(ordered)
    return tuple(next(supply) if size[d] != 1 else d for d in range(len(size)))


def _dense(size: tuple[int, ...], stride: tuple[int, ...], perm: tuple[int, ...] | None) -> tuple[int, ...]:
    """The strides if they are those of a dense tensor in that memory order, else the ones that would be."""
    if 0 in size:
        return stride
    dense, step = list(stride), 1
    for d in reversed(perm or range(len(size))):
        if size[d] != 1:
            dense[d] = step
            step *= size[d]
    return stride if dense == list(stride) else tuple(dense)


@functools.lru_cache(maxsize=65536)
def out_spec(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> OutSpec:
    """The OutSpec of a fresh result. Strides with gaps or overlaps (some meta kernels copy an operand's) are made dense."""
    perm = memory_order(size, stride) if 0 not in size else None
    shape = size if perm is None else tuple(size[d] for d in perm)
    stride = _dense(size, stride, perm)
    return OutSpec(size, stride, dtype, perm, spec(shape, TO_NUMPY[dtype]))


# Where an argument of a row comes from. Tuples, because they are compared and printed a lot.
#   ("in", i)            tensor operand i           ("ins", (i, None, ...))  list of tensor operands
#   ("num", j)           0-d operand j              ("const", value)         static
Binding = tuple[str, Any]

_template_ids = itertools.count()


@dataclass(slots=True, eq=False)
class Template:
    """A step without its operands: the row, where its arguments come from, how they are read, what comes out.

    number_kinds has one letter per 0-d operand, in order: i int64, f float64, c complex128, b bool, s a
    seed/offset pair (one uint32[4] operand). Starts of plans come first, then the row's own numbers.
    """

    row: Row
    bindings: tuple[tuple[str, Binding], ...]
    avals: tuple[Aval, ...]
    number_kinds: str
    number_dtypes: tuple[np.dtype | None, ...]  # per number of the row: the dtype a 0-d CPU tensor had, else None
    outs: tuple[OutSpec, ...]
    compute: np.dtype | None  # common dtype of a promoting row
    kept: frozenset[int] = frozenset()  # operands that a promoting row does not cast
    draws: int = 0  # 32-bit words the step takes from the generator
    returns_list: bool = False
    slots: tuple[int | None, ...] | None = None  # which result each return is, when some returns are undefined
    lane: bool = False  # one element of a foreach step: may be reordered among its fellows
    id: int = field(default_factory=lambda: next(_template_ids))
    _text: str | None = None

    single: bool = field(init=False, default=False)  # returns exactly one tensor

    out_bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.out_bytes = sum(o.spec.nbytes for o in self.outs)
        self.single = self.slots is None and len(self.outs) == 1 and not self.returns_list

    @property
    def text(self) -> str:
        """A stable description, the same in every process: what the disk cache's key is made of."""
        if self._text is None:
            self._text = "|".join(
                (
                    self.row.name,
                    repr(self.bindings),
                    repr(self.avals),
                    self.number_kinds,
                    repr(self.number_dtypes),
                    repr([(o.size, o.stride, o.dtype, o.perm) for o in self.outs]),
                    str(self.compute),
                )
            )
        return self._text

    @property
    def num_starts(self) -> int:
        """How many of the numbers belong to access plans."""
        return sum(a.plan.num_starts for a in self.avals if a.plan is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Steps over numbered values: 0..num_inputs-1 are inputs, then every step's results in order."""

    steps: tuple[tuple[Template, tuple[int, ...]], ...]
    in_specs: tuple[Spec, ...]
    outputs: tuple[int, ...]
    donate: tuple[int, ...]
    key: tuple[Any, ...]

    @property
    def number_kinds(self) -> str:
        """The kinds of all 0-d operands of all steps, in order."""
        return "".join(t.number_kinds for t, _ in self.steps)

    @property
    def checked(self) -> bool:
        """Whether an extra int32 output says which step met a bad index (-1: none)."""
        return settings.index_checks and any(t.row.checked for t, _ in self.steps)

    def out_specs(self) -> tuple[Spec, ...]:
        """Specs of the outputs, the check's result not counted."""
        all_specs = list(self.in_specs)
        for template, _ in self.steps:
            all_specs.extend(o.spec for o in template.outs)
        return tuple(all_specs[i] for i in self.outputs)
