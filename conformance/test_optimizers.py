"""optim_db on the device: parameters and state after five steps, for every set of options and every implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.testing._internal.common_optimizers import optim_db

from conformance.checks import Job, Outcome, run_jobs
from conformance.judging import verdict
from conformance.nodes import Node
from conformance.operands import DEVICE

STEPS = 5
SHAPES = ((3, 4), (4,), (2, 3, 2), ())
FLAGS: dict[str, dict[str, bool]] = {
    "forloop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


@cache
def _entries() -> dict[str, Any]:
    return {info.optim_cls.__name__: info for info in optim_db if not info.only_supports_sparse_grads}


def nodes(test: str) -> Iterator[Node]:
    """One node per optimizer and mode."""
    for name in _entries():
        for mode in ("strict", "fused"):
            yield Node(test, name, "float32", mode)


def _towards(params: list[Any], targets: list[Any]) -> Callable[[], Any]:
    """A closure that sets gradients, for optimizers that search along a line: the squared distance to given points."""

    def run() -> Any:
        total = 0
        for p, target in zip(params, targets, strict=True):
            p.grad = 2 * (p.detach() - target)
            total = total + (p.detach() - target).square().sum()
        return total

    return run


def _train(info: Any, options: dict[str, Any], device: str, dtype: torch.dtype) -> Callable[[], Any]:
    def run() -> Any:
        generator = torch.Generator().manual_seed(3)
        shapes = ((4, 3), (3, 5)) if info.optim_cls.__name__ == "Muon" else SHAPES
        values = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
        params = [torch.nn.Parameter(v.to(torch.float32).to(dtype).to(device)) for v in values]
        rest = {k: v.to(device) if isinstance(v, torch.Tensor) and v.dim() else v for k, v in options.items()}
        optimizer = info.optim_cls(params, **rest)
        targets: list[Any] = []  # the same for all steps: curvature is estimated across them
        for _ in range(STEPS):
            for p in params:
                grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
                p.grad = grad.to(torch.float32).to(dtype).to(device)
            targets = targets or [p.grad for p in params]
            optimizer.step(_towards(params, targets) if info.step_requires_closure else None)
        return [p.detach() for p in params]

    return run


def _check(info: Any) -> Outcome:
    def jobs() -> Iterator[Job]:
        for given in info.optim_inputs_func("cpu"):
            if (
                given.params is not None
                and info.supports_param_groups
                and not isinstance(given.params[0], torch.Tensor)
            ):
                continue
            for kind in info.supported_impls or ("forloop",):
                options = {**given.kwargs, **(FLAGS.get(kind, {}) if info.supported_impls else {})}
                if kind == "fused" and options.get("differentiable") or options.get("capturable"):
                    continue
                yield Job(
                    f"{given.desc} ({kind})",
                    ((), options),
                    _train(info, options, "cpu", torch.float32),
                    _train(info, options, DEVICE, torch.float32),
                    _train(info, options, "cpu", torch.float64),
                )

    return run_jobs(jobs(), Outcome(), batch=8)


def test_optimizer(node: Node, record_property: Any) -> None:
    """Five steps with given gradients."""
    verdict("optimizer", node.op, node.dtype, node.mode, lambda: _check(_entries()[node.op]), record_property)
