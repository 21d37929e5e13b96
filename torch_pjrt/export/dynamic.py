"""Which sizes of a model may vary: the model as torch.export sees it, and its dims with their names and ranges.

torch.export records the model with symbolic sizes and proves that its Python code decides nothing by them in the given ranges.
export/samples.py then traces what it recorded by our own kernels at a few sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_pjrt.errors import InvalidOperandError
from torch_pjrt.export.open_calls import OpenCalls
from torch_pjrt.export.tree import call_of, take_apart
from torch_pjrt.tensor.runtime import runtime


@dataclass(frozen=True, slots=True)
class Dim:
    """One size that varies: torch's symbol, the name in the manifest, its range (maximum None: none), the example's size."""

    symbol: str
    name: str
    minimum: int
    maximum: int | None
    example: int

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
    runtime()  # operators of our own stand for functions that need known sizes
    module = model if isinstance(model, torch.nn.Module) else _as_module(model)
    shapes = _with_dims(dynamic_shapes)
    try:
        with torch.no_grad(), OpenCalls():
            return torch.export.export(module, tuple(args), dict(kwargs or {}), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise InvalidOperandError(
            "torch.export cannot record the model with these sizes left open",
            todo="Change dynamic_shapes as torch says, or leave a dim out of it.",
            detail=f"{type(error).__name__}: {error}",
        ) from error


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


def input_shapes(exported: torch.export.ExportedProgram, given: list[torch.Tensor]) -> list[Sequence[Any]]:
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
            for symbol in sorted(getattr(expression_of(size), "free_symbols", ()), key=str):
                found.setdefault(str(symbol), symbol)
    return list(found.values())


def expression_of(size: Any) -> Any:
    """A size of torch's as an int or a sympy expression."""
    return size.node.expr if isinstance(size, torch.SymInt) else size


def value_of(size: Any, sizes: Mapping[str, int]) -> int:
    """A symbolic size of torch's where its symbols have these values."""
    expression = expression_of(size)
    if isinstance(expression, int):
        return expression
    return int(expression.subs({s: sizes[str(s)] for s in expression.free_symbols}))


def dims_of(exported: torch.export.ExportedProgram, args: Any, kwargs: Any, dynamic_shapes: Any) -> list[Dim]:
    """The sizes that vary. Raises InvalidOperandError where none does."""
    given: list[torch.Tensor] = []
    take_apart(call_of(args, kwargs), given)
    shapes = input_shapes(exported, given)
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
