"""Which sizes of a model may vary, and samples of it at several: the first half of an export with dynamic_shapes.

torch.export records the model with symbolic sizes and proves that its Python code decides nothing by them in the given ranges.
What it recorded is then traced by our own kernels at a few sizes; export/sizes.py finds the one Program behind them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import torch

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.export.sizes import Formulas, unite
from torch_pjrt.export.trace import Read, Traced, trace
from torch_pjrt.export.tree import call_of, put_together, take_apart

# Steps from the example's size to those of the samples, per dim: no dim's are a formula of another's. The last two are far, to
# tell sizes after many strides from each other.
_OFFSETS = (
    (0, 1, 3, 4, 7, 9, 38, 101),
    (0, 5, 2, 11, 1, 8, 67, 46),
    (0, 2, 7, 3, 1, 10, 52, 85),
    (0, 7, 1, 9, 4, 2, 93, 58),
)


@dataclass(frozen=True, slots=True)
class Dim:
    """One size that varies: torch's symbol, the name in the manifest, its range (maximum None: none), the example's size."""

    symbol: str
    name: str
    minimum: int
    maximum: int | None
    example: int

    def samples(self, place: int) -> tuple[int, ...]:
        """Sizes at which the model is recorded; at least 2, since torch takes a size of 1 for a broadcast one."""
        low = max(self.minimum, 2)
        start = max(self.example, low)
        if self.maximum is None:
            return tuple(start + step for step in _OFFSETS[place])
        span = self.maximum - low  # the maximum itself is left out: a slice up to it is the whole
        if span < 3:
            raise InvalidOperandError(
                f"dim {self.name} has the range {self.minimum} to {self.maximum}: too few sizes to tell a formula from",
                todo="Widen the range, or export once per size.",
            )
        return tuple(low + (start - low + step) % span for step in _OFFSETS[place])

    def constraints(self) -> list[str]:
        """What jax.export is told of it."""
        found = [f"{self.name} >= {self.minimum}"] if self.minimum > 1 else []
        return [
            *found,
            f"{self.name} <= {2**31 - 1 if self.maximum is None else self.maximum}",
        ]  # rows ask whether int32 holds it


def is_dynamic(model: Any) -> bool:
    """Whether a model is an exported program with sizes that vary."""
    return isinstance(model, torch.export.ExportedProgram) and bool(_symbols(model))


def exported_program(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """The model as torch.export sees it. Raises InvalidOperandError with torch's reason where sizes cannot vary."""
    if isinstance(model, torch.export.ExportedProgram):
        return model
    module = model if isinstance(model, torch.nn.Module) else _as_module(model)
    shapes = _with_dims(dynamic_shapes)
    try:
        with torch.no_grad():
            return torch.export.export(module, tuple(args), dict(kwargs or {}), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise InvalidOperandError(
            "torch.export cannot record the model with these sizes left open",
            todo="Change dynamic_shapes as torch says, or leave a dim out of it.",
            detail=f"{type(error).__name__}: {error}",
        ) from error


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
    dims = _dims(exported, args, kwargs, dynamic_shapes)
    if len(dims) > len(_OFFSETS):
        raise InvalidOperandError(
            f"{len(dims)} sizes vary ({', '.join(d.name for d in dims)}); at most {len(_OFFSETS)} can",
            todo="Give one name to dims that are equal, or fix some.",
        )
    given: list[torch.Tensor] = []
    tree = take_apart(call_of(args, kwargs), given)
    values = [d.samples(i) for i, d in enumerate(dims)]
    shapes = _input_shapes(exported, given)
    samples = []
    for k in range(len(values[0])):
        sizes = {d.symbol: v[k] for d, v in zip(dims, values, strict=True)}
        tensors = [
            torch.empty([_value(n, sizes) for n in shape], dtype=t.dtype, device="meta")
            for t, shape in zip(given, shapes, strict=True)
        ]
        own_args, own_kwargs = put_together(tree, tensors)
        samples.append(trace(exported, own_args, own_kwargs))
    return Samples(samples, dims, values)


def _as_module(function: Any) -> torch.nn.Module:
    """A function as a module, which is what torch.export takes, with the function's own signature."""
    made: torch.nn.Module = type("Function", (torch.nn.Module,), {"forward": staticmethod(function)})()
    return made


def _with_dims(spec: Any) -> Any:
    """dynamic_shapes as torch takes it: torch has no names without a range, so a name is found again by _names."""
    if isinstance(spec, Mapping):
        return {k: _with_dims(v) for k, v in spec.items()}
    if isinstance(spec, (list, tuple)):
        return type(spec)(_with_dims(v) for v in spec)
    if isinstance(spec, str):
        return torch.export.Dim.DYNAMIC  # open, in the range that the model's own code allows
    return spec


def _leaves(exported: torch.export.ExportedProgram) -> list[Any]:
    """The exported program's own stand-ins for its tensor arguments, in its order."""
    wanted = set(exported.graph_signature.user_inputs)
    found = [n.meta.get("val") for n in exported.graph.nodes if n.op == "placeholder" and n.name in wanted]
    return [v for v in found if isinstance(v, torch.Tensor)]


def _input_shapes(exported: torch.export.ExportedProgram, given: list[torch.Tensor]) -> list[Sequence[Any]]:
    """The (symbolic) shapes of the arguments, in the order of our own tree."""
    args, kwargs = exported.example_inputs
    theirs = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    leaves = dict(zip(map(id, theirs), _leaves(exported), strict=True))
    return [leaves[id(t)].shape for t in given]


def _symbols(exported: torch.export.ExportedProgram) -> list[Any]:
    """The symbols in the shapes of arguments, in order of appearance."""
    found: dict[str, Any] = {}
    for leaf in _leaves(exported):
        for size in leaf.shape:
            for symbol in sorted(getattr(_expression(size), "free_symbols", ()), key=str):
                found.setdefault(str(symbol), symbol)
    return list(found.values())


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _value(size: Any, sizes: Mapping[str, int]) -> int:
    expression = _expression(size)
    if isinstance(expression, int):
        return expression
    return int(expression.subs({s: sizes[str(s)] for s in expression.free_symbols}))


def _dims(exported: torch.export.ExportedProgram, args: Any, kwargs: Any, dynamic_shapes: Any) -> list[Dim]:
    given: list[torch.Tensor] = []
    take_apart(call_of(args, kwargs), given)
    shapes = _input_shapes(exported, given)
    names = _distinct(_names(exported, given, shapes, dynamic_shapes))
    examples = {
        str(symbolic): int(size)
        for tensor, shape in zip(given, shapes, strict=True)
        for size, symbolic in zip(tensor.shape, shape, strict=True)
    }
    dims = []
    for number, symbol in enumerate(_symbols(exported)):
        known = exported.range_constraints.get(symbol)
        low = int(known.lower) if known is not None and _is_finite(known.lower) else 1
        high = int(known.upper) if known is not None and _is_finite(known.upper) else None
        example = examples.get(str(symbol), max(low, 2))
        dims.append(Dim(str(symbol), names.get(str(symbol), f"dim{number}"), max(low, 1), high, example))
    if not dims:
        raise InvalidOperandError(
            "no size of the exported program varies", todo="Leave dynamic_shapes out, or name the dims that vary."
        )
    return dims


def _distinct(names: dict[str, str]) -> dict[str, str]:
    """Names by symbol, each for one symbol: two sizes that the model does not need equal stay two dims."""
    seen: dict[str, int] = {}
    found = {}
    for symbol, name in names.items():
        seen[name] = seen.get(name, 0) + 1
        found[symbol] = name if seen[name] == 1 else f"{name}_{seen[name]}"
    return found


def _is_finite(bound: Any) -> bool:
    text = str(bound)
    return text.lstrip("-").isdigit() and int(text) < 2**62 and not math.isinf(float(text))


def _names(
    exported: torch.export.ExportedProgram, given: list[torch.Tensor], shapes: list[Sequence[Any]], dynamic_shapes: Any
) -> dict[str, str]:
    """Names that the user gave, per symbol: torch keeps none of them."""
    found: dict[str, str] = {}
    args, kwargs = exported.example_inputs
    if isinstance(dynamic_shapes, Mapping):
        names = list(_parameter_names(exported))
        by_argument = {**dict(zip(names, args, strict=False)), **kwargs}
        pairs = [(by_argument.get(k), v) for k, v in dynamic_shapes.items()]
    else:
        pairs = list(zip(args, dynamic_shapes or (), strict=False))
    shape_of = {id(t): s for t, s in zip(given, shapes, strict=True)}
    for value, spec in pairs:
        if isinstance(value, torch.Tensor) and isinstance(spec, (Mapping, list, tuple)):
            for d, wanted in spec.items() if isinstance(spec, Mapping) else enumerate(spec):
                name = wanted if isinstance(wanted, str) else getattr(wanted, "__name__", None)
                symbol = str(shape_of[id(value)][d])
                if name and name.isidentifier() and symbol.isidentifier():
                    found.setdefault(symbol, name)
    return found


def _parameter_names(exported: torch.export.ExportedProgram) -> Sequence[str]:
    """The names of the positional arguments, from the exported module's own signature of calls."""
    wanted = set(exported.graph_signature.user_inputs)
    return [n.name for n in exported.graph.nodes if n.op == "placeholder" and n.name in wanted]
