"""What is compared in place of a raw result: equal values leave an index free, and OpInfo names functions of results.

Facts about single entries are in quirks.py; checks.py makes jobs that use these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from conformance.quirks import TIED, TIED_VALUES


def processing(name: str, sample: Any) -> Callable[[Any], Any] | None:
    """The function of a result that is compared, where it is not the result."""
    if name in TIED:
        return _pointed_at(name, sample)
    function = getattr(sample.output_process_fn_grad, "__name__", "")
    return None if function == "<lambda>" and _is_identity(sample) else sample.output_process_fn_grad


def whoever_won(name: str, sample: Any) -> Callable[[Any], Any] | None:
    """For gradients of operators with free ties: their sums over equal elements of each line."""
    dim = _tied_dim(name, sample) if name in TIED else TIED_VALUES.get(name)
    if dim is None or not sample.input.dim():
        return None

    def lines(x: torch.Tensor) -> torch.Tensor:
        return x.detach().cpu().movedim(dim, -1).reshape(-1, x.shape[dim])

    def run(result: Any) -> Any:
        if not result or result[0] is None or not sample.input.numel():
            return result
        sums = [torch.zeros(0, dtype=torch.float64)]
        for line, gradient in zip(lines(sample.input), lines(result[0]).double(), strict=True):
            values, places = line.unique(return_inverse=True)
            sums.append(torch.zeros(len(values), dtype=torch.float64).index_add(0, places, gradient))
        return torch.cat(sums).to(result[0].device)

    return run


def _tied_dim(name: str, sample: Any) -> int | None:
    """The dim along which equal values leave an index free; None where nothing does."""
    dim = sample.kwargs.get("dim", [*sample.args, None, None][TIED[name]])
    dim = -1 if dim is None else dim
    return None if isinstance(dim, bool) or sample.kwargs.get("stable") else dim


def _pointed_at(name: str, sample: Any) -> Callable[[Any], Any] | None:
    """For (values, indices) with free ties: the values, and those that the indices point at."""
    dim = _tied_dim(name, sample)
    if dim is None:
        return None
    chosen = name in ("kthvalue", "mode")  # one position for each line

    def run(result: Any) -> Any:
        values, indices = (result, result) if isinstance(result, torch.Tensor) else result
        indices = indices.long()  # out= may have made them floats
        source = sample.input.detach().to(indices.device)
        if source.dim() == 0:
            return values, source.expand_as(indices)
        whole = indices if indices.dim() == source.dim() else indices.unsqueeze(dim)
        found = source.gather(dim, whole).reshape(values.shape)
        return found if isinstance(result, torch.Tensor) else (values, found), not chosen and _repeats(indices, dim)

    return run


def _repeats(indices: torch.Tensor, dim: int) -> bool:
    """Whether a position occurs twice along dim, which no order of equal values explains."""
    ordered = indices.cpu().sort(dim).values
    return ordered.shape[dim] > 1 and bool((ordered.diff(dim=dim) == 0).any())


def _is_identity(sample: Any) -> bool:
    token = object()
    try:
        return sample.output_process_fn_grad(token) is token
    except Exception:  # noqa: BLE001 - it looked into the token
        return False
