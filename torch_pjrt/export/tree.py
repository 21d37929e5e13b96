"""Nested arguments and results as plain JSON: dicts, lists, tuples, tensors, and the values that JSON has.

Owns the description of a structure ("tree"), and taking values apart and putting them together by it. No pickle, so a tree
from a stranger builds nothing but these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_pjrt.errors import InvalidOperandError

Tree = Any


def call_of(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Any]:
    """The arguments of a call as one value, whatever the order in which keywords were written."""
    return [list(args), dict(sorted((kwargs or {}).items()))]


def take_apart(value: Any, tensors: list[Any], what: str = "an argument") -> Tree:
    """The tree of a value; its tensors are appended to `tensors` in order. Raises InvalidOperandError for other objects."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, Mapping):
        return {"dict": {str(k): take_apart(v, tensors, f"{what}[{k!r}]") for k, v in value.items()}}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [take_apart(v, tensors, f"{what}[{i}]") for i, v in enumerate(value)]}
    raise InvalidOperandError(
        f"{what} is a {type(value).__name__}; a program takes and gives tensors, numbers, text, lists, tuples and dicts",
        todo="Wrap the model in a function or module that takes and returns those (for a cache: use_cache=False).",
    )


def call_text(tree: Tree) -> str:
    """The tree of a call (see call_of) as one writes it: (tensor 0, [tensor 1], flag=True)."""
    positional, named = (next(iter(part.values())) for part in tree["list"])
    return f"({', '.join([*map(_text, positional), *(f'{k}={_text(v)}' for k, v in named.items())])})"


def _text(tree: Tree) -> str:
    kind, content = next(iter(tree.items()))
    if kind == "tensor":
        return f"tensor {content}"
    if kind == "value":
        return repr(content)
    if kind == "dict":
        return "{" + ", ".join(f"{k!r}: {_text(v)}" for k, v in content.items()) + "}"
    inside = ", ".join(map(_text, content))
    return f"[{inside}]" if kind == "list" else f"({inside})"


def put_together(tree: Tree, tensors: Sequence[Any]) -> Any:
    """The value that a tree describes."""
    kind, content = next(iter(tree.items()))
    if kind == "tensor":
        return tensors[content]
    if kind == "value":
        return content
    if kind == "dict":
        return {k: put_together(v, tensors) for k, v in content.items()}
    made = [put_together(v, tensors) for v in content]
    return made if kind == "list" else tuple(made)
