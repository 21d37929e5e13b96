"""A model recorded at several of its sizes, and the one Program behind them: the middle of an export with dynamic_shapes.

torch.export has recorded the model (export/dynamic.py); what it took for granted is checked at each of the samples.
export/sizes.py compares them. Called by export/write.py.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import torch

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.export.dynamic import Dim, dims_of, expression_of, input_shapes, value_of
from torch_pjrt.export.formulas import Formulas
from torch_pjrt.export.sizes import unite
from torch_pjrt.export.trace import Read, Traced, trace
from torch_pjrt.export.tree import call_of, put_together, take_apart

# Steps from the example's size to those of the samples, per dim: no dim's are a formula of another's.
_NEAR = ((0, 1, 3, 4, 7, 9), (0, 5, 2, 11, 1, 8), (0, 2, 7, 3, 1, 10), (0, 7, 1, 9, 4, 2))
# Steps from the largest example's size to those of two samples far away, which tell sizes after many strides from each other.
# The dim with the smallest example gets the largest: of two dims, either is the larger in two samples at least.
_FAR = ((38, 101), (52, 118), (67, 146), (93, 185))
_FAR_END = 1 << 20  # stands for the end of a range that has none


@dataclass(frozen=True, slots=True)
class Samples:
    """An exported program recorded at several sizes; values: per dim, the sizes."""

    traced: list[Traced]
    dims: list[Dim]
    values: list[tuple[int, ...]]

    def united(self, dims: Sequence[Dim]) -> tuple[Traced, list[Read]]:
        """The Program for all sizes in the ranges of `dims`, and how its results are read."""
        constraints = [c for d in dims for c in d.constraints()]
        names = jax.export.symbolic_shape(", ".join(d.name for d in dims), constraints=constraints)
        return unite(self.traced, Formulas(list(zip(self.values, names, strict=True))))

    def ranges(self) -> list[list[Dim]]:
        """The dims with the ranges to try, the widest first.

        torch sets sizes 0 and 1 apart and so never says that a size may be 1; most programs are right there all the same.
        """
        wide = [dataclasses.replace(d, minimum=1) if d.minimum <= 2 else d for d in self.dims]
        one_narrow = [[*wide[:k], d, *wide[k + 1 :]] for k, d in enumerate(self.dims) if wide[k] != d]
        return [wide, *one_narrow, *([self.dims] if len(one_narrow) > 1 else [])]


def trace_samples(exported: torch.export.ExportedProgram, dynamic_shapes: Any = None) -> Samples:
    """Record an exported program at several of its sizes."""
    args, kwargs = exported.example_inputs
    dims = dims_of(exported, args, kwargs, dynamic_shapes)
    if len(dims) > len(_NEAR):
        raise InvalidOperandError(
            f"{len(dims)} sizes vary ({', '.join(d.name for d in dims)}); at most {len(_NEAR)} can",
            todo="Give one name to dims that are equal, or fix some.",
        )
    given: list[torch.Tensor] = []
    tree = take_apart(call_of(args, kwargs), given)
    falling = sorted(range(len(dims)), key=lambda i: -_start(dims[i]))
    top = _start(dims[falling[0]])
    values = [_samples(d, i, falling.index(i), top) for i, d in enumerate(dims)]
    _see_both_orders(exported, dims, values)
    shapes = input_shapes(exported, given)
    samples = []
    module = exported.module()
    for k in range(len(values[0])):
        sizes = {d.symbol: v[k] for d, v in zip(dims, values, strict=True)}
        tensors = [
            torch.empty([value_of(n, sizes) for n in shape], dtype=t.dtype, device="meta")
            for t, shape in zip(given, shapes, strict=True)
        ]
        own_args, own_kwargs = put_together(tree, tensors)
        _heed_guards(module, (tuple(own_args), {name: own_kwargs[name] for name in kwargs}))
        samples.append(trace(exported, own_args, own_kwargs))
    return Samples(samples, dims, values)


def _heed_guards(module: torch.fx.GraphModule, call: Any) -> None:
    """Raise where torch.export took something for granted that does not hold for this call; it does not always say so."""
    for node in module.graph.nodes:
        if node.name.startswith("_guards"):
            inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
            given = dict(zip(inputs, torch.utils._pytree.tree_leaves(call), strict=True))
            try:
                module.get_submodule(node.target)(*(given[n] for n in node.args))
            except Exception as error:
                raise InvalidOperandError(
                    "the model decides something by a size that is to stay open",
                    todo="Give the dim a range in which it holds, or leave it out of dynamic_shapes.",
                    detail=f"{type(error).__name__}: {error}",
                ) from error


def _see_both_orders(exported: torch.export.ExportedProgram, dims: list[Dim], values: list[tuple[int, ...]]) -> None:
    """Raise where torch has the smaller or larger of sizes, and a side of it that may come is not among the samples."""
    names = {d.symbol: d.name for d in dims}
    samples = [dict(zip(names, each, strict=True)) for each in zip(*values, strict=True)]
    ends = [(d.minimum, _FAR_END if d.maximum is None else d.maximum) for d in dims]
    corners = [dict(zip(names, each, strict=True)) for each in itertools.product(*ends)]
    for choice in _choices(exported):
        if any(str(s) not in names for s in choice.free_symbols):
            continue
        for side in choice.args:
            seen, possible = (
                sum(value_of(side, sizes) == value_of(choice, sizes) for sizes in tried) for tried in (samples, corners)
            )
            if possible and seen < 2:
                text = str(choice.subs({s: s.func(names[str(s)]) for s in choice.free_symbols}))
                raise InvalidOperandError(
                    f"a size is {text}, and the sizes near the examples do not show all sides of it",
                    todo="Give an example in which they are nearer to each other, or a wider range.",
                )


def _choices(exported: torch.export.ExportedProgram) -> set[Any]:
    """What is the smaller or the larger of sizes, among all sizes that torch.export has seen."""
    found: set[Any] = set()
    for node in exported.graph.nodes:
        for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
            for size in value.shape if isinstance(value, torch.Tensor) else (value,):
                if isinstance(size, torch.SymInt):
                    found |= {e for e in _parts(expression_of(size)) if e.func.__name__ in ("Min", "Max")}
    return found


def _parts(expression: Any) -> Iterator[Any]:
    """A sympy expression and all that it is made of."""
    yield expression
    for part in expression.args:
        yield from _parts(part)


def _start(dim: Dim) -> int:
    """The first sample's size; at least 2, since torch takes a size of 1 for a broadcast one."""
    return max(dim.example, dim.minimum, 2)


def _samples(dim: Dim, place: int, rank: int, top: int) -> tuple[int, ...]:
    """Sizes at which the model is recorded. rank: how many dims have a larger example; top: the largest of these."""
    low = max(dim.minimum, 2)
    steps = (*_NEAR[place], *(top - _start(dim) + step for step in _FAR[rank]))
    if dim.maximum is None:
        return tuple(_start(dim) + step for step in steps)
    span = dim.maximum - low  # the maximum itself is left out: a slice up to it is the whole
    if span < 3:
        raise InvalidOperandError(
            f"dim {dim.name} has the range {dim.minimum} to {dim.maximum}: too few sizes to tell a formula from",
            todo="Widen the range, or export once per size.",
        )
    return tuple(low + (_start(dim) - low + step) % span for step in steps)
