"""Makes operands: OpInfo's samples, copied to the device or widened to float64, strides kept; and views of larger tensors.

Every maker takes a CPU tensor and gives a leaf of the same values, so that a gradient lands on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from conformance.accuracy import WIDE
from conformance.quirks import HOST_OPERANDS

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
DEVICE = "pjrt"


def arguments_of(sample: Any) -> Arguments:
    """A sample as (args, kwargs)."""
    return (sample.input, *sample.args), dict(sample.kwargs)


def is_factory(arguments: Arguments) -> bool:
    """Whether no operand says which device is meant."""
    return not any(isinstance(x, (torch.Tensor, torch.device)) for x in tree_leaves(arguments))


def _like(source: torch.Tensor, device: str, dtype: torch.dtype) -> torch.Tensor:
    """A copy with the same strides; overlapping and odd ones become contiguous."""
    if source.layout != torch.strided:
        return source.detach().to(device=device, dtype=dtype)
    with torch.no_grad():
        source = source.detach().resolve_conj().resolve_neg()
        out = torch.empty_strided(source.shape, _roomy(source), dtype=dtype, device=device)
        out.copy_(source if dtype == source.dtype else source.to(dtype))
    return out


def _roomy(source: torch.Tensor) -> tuple[int, ...]:
    if (
        0 in source.stride()
        and source.numel() > 1
        and any(s == 0 and n > 1 for s, n in zip(source.stride(), source.shape))
    ):  # noqa: B905
        return torch.empty(source.shape, device="meta").stride()
    return source.stride()


def _moved(value: Any, device: str, change: Callable[[torch.dtype], torch.dtype], seen: dict[int, torch.Tensor]) -> Any:
    def one(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if id(x) not in seen:
                out = _like(x, device, change(x.dtype))
                seen[id(x)] = out.requires_grad_(x.requires_grad) if x.requires_grad else out
            return seen[id(x)]
        if isinstance(x, torch.dtype):
            return change(x)
        if isinstance(x, torch.device) or (isinstance(x, str) and x == "cpu"):
            return torch.device(device)
        return x

    return tree_map(one, value)


def on_device(arguments: Arguments) -> Arguments:
    """Copies on the device."""
    return _moved(arguments, DEVICE, lambda d: d, {})


def keeping(name: str, make: Callable[[Arguments], Arguments]) -> Callable[[Arguments], Arguments]:
    """`make`, but for operands of an entry that torch wants on the CPU whatever the device."""
    places = HOST_OPERANDS.get(name, ())

    def run(arguments: Arguments) -> Arguments:
        args, kwargs = make(arguments)
        return tuple(arguments[0][i] if i in places else a for i, a in enumerate(args)), kwargs

    return run if places else make


def on_cpu(arguments: Arguments) -> Arguments:
    """Copies on the CPU."""
    return _moved(arguments, "cpu", lambda d: d, {})


def widened(arguments: Arguments) -> Arguments:
    """Copies on the CPU in float64 or complex128, integers as they are."""
    return _moved(arguments, "cpu", lambda d: WIDE.get(d, d), {})


def nudged(arguments: Arguments, draw: int) -> Arguments:
    """Copies on the CPU whose inexact numbers are up to two units in the last place off, other ones for each draw."""
    generator = torch.Generator().manual_seed(draw)
    made = on_cpu(arguments)

    def move(x: torch.Tensor) -> None:
        if x.layout == torch.strided and (x.is_floating_point() or x.is_complex()):
            steps = torch.randint(-2, 3, x.shape, generator=generator)
            x.copy_(x.to(WIDE.get(x.dtype, x.dtype)) * (1 + steps * torch.finfo(x.dtype).eps))

    with torch.no_grad():
        for x in {id(leaf): leaf for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)}.values():
            move(x)
    return made


# -- views -------------------------------------------------------------------------------------------------------------


def _every_second(x: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor twice as long in its last dim, every second one, one in."""
    room = torch.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), dtype=x.dtype, device=x.device)
    return room[..., 1::2]


def _transposed(x: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor seen with its dims reversed."""
    return torch.zeros(tuple(reversed(x.shape)), dtype=x.dtype, device=x.device).permute(*reversed(range(x.dim())))


def _inner(x: torch.Tensor) -> torch.Tensor:
    """The middle of a tensor one larger at both ends of its first dim."""
    return torch.zeros((x.shape[0] + 2, *x.shape[1:]), dtype=x.dtype, device=x.device)[1:-1]


VIEWS = (_every_second, _transposed, _inner)


def through_views(arguments: Arguments, device: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
    """Copies that are real views, made on the device itself by `make` and then filled."""

    def one(x: Any) -> Any:
        if isinstance(x, (torch.device, str)):
            return torch.device(device) if str(x) == "cpu" else x
        if not isinstance(x, torch.Tensor):
            return x
        if x.layout != torch.strided or x.dim() == 0:
            return _like(x, device, x.dtype)
        with torch.no_grad():
            view = make(torch.empty(x.shape, dtype=x.dtype, device=device))
            view.copy_(x.detach())
        return view

    return tree_map(one, arguments)


def differentiable(value: Any) -> list[torch.Tensor]:
    """The tensors that ask for a gradient, each once."""
    found: dict[int, torch.Tensor] = {}
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            found[id(leaf)] = leaf
    return list(found.values())


def batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Slices of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
