"""How a program is spread over several chips: the mesh of `--mesh data=2,model=2`, and which dims of which tensors go along it.

The batch, the first dim of arguments, goes along the axis `data`. Weights go along `model` by their shapes, or by a user's file
of rules. XLA's partitioner does the rest; collectives are read off its result.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_pjrt.errors import BadSettingError
from torch_pjrt.export.trace import Input

DATA, MODEL = "data", "model"
Axes = tuple[str | None, ...]
_COLLECTIVE = re.compile(r"\b(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")


@dataclass(frozen=True, slots=True)
class Mesh:
    """Axes and their sizes, and rules: (pattern of a tensor's name, axes of its dims), the first that matches counts."""

    axes: Mapping[str, int]
    rules: tuple[tuple[str, Axes], ...] = ()

    @property
    def size(self) -> int:
        """How many devices."""
        return math.prod(self.axes.values())

    def dims(self, item: Input, shape: Sequence[int]) -> Axes:
        """The axis of each dim of an input (None: whole on every device)."""
        for pattern, axes in self.rules:
            if re.search(pattern, item.name):
                return self._checked(item, shape, axes)
        if item.kind == "argument":
            return self._along(shape, 0, DATA)
        if item.kind in ("parameter", "state") and len(shape) >= 2:
            return self._along(shape, _split(shape), MODEL)
        return (None,) * len(shape)

    def _along(self, shape: Sequence[int], dim: int, axis: str) -> Axes:
        size = self.axes.get(axis, 1)
        if size == 1 or dim >= len(shape) or shape[dim] % size:
            return (None,) * len(shape)
        return tuple(axis if d == dim else None for d in range(len(shape)))

    def _checked(self, item: Input, shape: Sequence[int], axes: Axes) -> Axes:
        for d, axis in enumerate(axes):
            if axis is not None and (axis not in self.axes or d >= len(shape) or shape[d] % self.axes[axis]):
                raise BadSettingError(
                    f"the rule for {item.name}{list(shape)} puts its dim {d} along {axis}",
                    todo=f"The axes are {self}; a dim must be divisible by its axis.",
                )
        return (*axes, *(None,) * (len(shape) - len(axes)))

    def __str__(self) -> str:
        return ",".join(f"{k}={v}" for k, v in self.axes.items())


def _split(shape: Sequence[int]) -> int:
    """The longer of the two dims of a product, in a stack of experts too: by their number, XLA's partitioner would gather all
    of them for a grouped product. Of kernels the output channels."""
    stacked = len(shape) == 3 and shape[0] < min(shape[1:])
    if len(shape) > 2 and not stacked:
        return 0
    return len(shape) - 2 if shape[-2] >= shape[-1] else len(shape) - 1


def parse_mesh(text: str, rules: str | Path | None = None) -> Mesh:
    """ "data=2,model=4", and a TOML file of `[[rule]]` tables with `match` and `dims` ("" for a dim that stays whole)."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.strip().partition("=")
        if not name.isidentifier() or not size.isdigit() or int(size) < 1 or name in axes:
            raise BadSettingError(f"{text!r} is no mesh", todo="Write it as data=2,model=2.")
        axes[name] = int(size)
    found = []
    if rules is not None:
        try:
            for each in tomllib.loads(Path(rules).read_text(encoding="utf-8"))["rule"]:
                found.append((str(each["match"]), tuple(a or None for a in each["dims"])))
        except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
            raise BadSettingError(
                f"{rules} has no rules: {error}",
                todo='Write [[rule]] tables with match = "name" and dims = ["model", ""].',
            ) from error
    return Mesh(axes, tuple(found))


def collectives(text: str) -> dict[str, int]:
    """How many of each a compiled program's text has; one inside a loop counts once."""
    counts: dict[str, int] = {}
    for name in _COLLECTIVE.findall(text):
        counts[name] = counts.get(name, 0) + 1
    return counts
