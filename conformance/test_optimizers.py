"""optim_db on the device: parameters after five steps, for every set of options and every implementation, also of those
that only accelerators have (capturable, rates in tensors). Under torch.compile the rate changes at each step.
"""

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
DECAY = 0.75  # of the rate at each step, where it changes
SHAPES = ((3, 4), (4,), (2, 3, 2), ())
# Updates in bfloat16, which Dynamo multiplies by a rate in a tensor before it adds them to float32: rounded once more, on the
# CPU too, whose step Dynamo traces here as well.
NARROW = ("Muon",)
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
        for mode in ("strict", "fused", "compile"):
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


def _train(
    info: Any,
    options: dict[str, Any],
    device: str,
    dtype: torch.dtype,
    *,
    decay: float = 1.0,
    backend: str | None = None,
) -> Callable[[], Any]:
    def run() -> Any:
        generator = torch.Generator().manual_seed(3)
        shapes = ((4, 3), (3, 5)) if info.optim_cls.__name__ == "Muon" else SHAPES
        values = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
        params = [torch.nn.Parameter(v.to(torch.float32).to(dtype).to(device)) for v in values]
        rest = {k: v.to(device) if isinstance(v, torch.Tensor) and v.dim() else v for k, v in options.items()}
        optimizer = info.optim_cls(params, **rest)
        if backend is not None:
            torch._dynamo.reset()
            optimizer.step = torch.compile(optimizer.step, backend=backend)
        targets: list[Any] = []  # the same for all steps: curvature is estimated across them
        for _ in range(STEPS):
            for p in params:
                grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
                p.grad = grad.to(torch.float32).to(dtype).to(device)
            targets = targets or [p.grad for p in params]
            optimizer.step(_towards(params, targets) if info.step_requires_closure else None)
            _slow_down(optimizer, decay)
        return [p.detach() for p in params]

    return run


def _slow_down(optimizer: torch.optim.Optimizer, decay: float) -> None:
    """Multiply the rate, as a scheduler does: in its tensor where it is one."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].mul_(decay)
        else:
            group["lr"] *= decay


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """The same options for the CPU, which has neither capturable steps nor, in all implementations, rates in tensors."""

    def number(x: Any) -> Any:
        return x.item() if isinstance(x, torch.Tensor) and x.numel() == 1 else x

    rest = {k: v for k, v in options.items() if k != "capturable"}
    return torch.utils._pytree.tree_map(number, rest)  # type: ignore[no-any-return]


def _copied(options: dict[str, Any]) -> dict[str, Any]:
    """Options with tensors of their own, since a rate in a tensor is written to."""
    return torch.utils._pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, options)  # type: ignore[no-any-return]


def _options(info: Any) -> Iterator[tuple[str, dict[str, Any], float]]:
    """What to say, the options, and how the rate changes."""
    for given in info.optim_inputs_func("cuda"):
        if given.params is not None and info.supports_param_groups and not isinstance(given.params[0], torch.Tensor):
            continue
        for kind in info.supported_impls or ("forloop",):
            options = {**given.kwargs, **(FLAGS.get(kind, {}) if info.supported_impls else {})}
            if not (kind == "fused" and options.get("differentiable")):
                yield f"{given.desc} ({kind})", options, 1.0
    if not info.step_requires_closure:  # a rate in a tensor is for steps without foreach, or capturable ones
        for kind in info.supported_impls or ("forloop",):
            options = FLAGS.get(kind, {}) if info.supported_impls else {}
            if info.has_capturable_arg:
                options = options | {"capturable": True}
            yield f"the rate changes ({kind})", options | {"lr": torch.tensor(0.01)}, DECAY


def _check(info: Any, compiled: bool) -> Outcome:
    def jobs() -> Iterator[Job]:
        for name, options, decay in _options(info):
            backend = DEVICE if compiled else None
            narrow = compiled and info.optim_cls.__name__ in NARROW and isinstance(options.get("lr"), torch.Tensor)
            plain = _copied(options) if narrow else _plain(options)
            yield Job(
                name,
                ((), options),
                _train(info, plain, "cpu", torch.float32, decay=decay, backend="eager" if narrow else None),
                lambda o=options, d=decay, b=backend: _train(
                    info, _copied(o), DEVICE, torch.float32, decay=d, backend=b
                )(),
                _train(info, _plain(options), "cpu", torch.float64, decay=decay),
            )

    return run_jobs(jobs(), Outcome(), batch=8)


def test_optimizer(node: Node, record_property: Any) -> None:
    """Five steps with given gradients."""
    info, compiled = _entries()[node.op], node.mode == "compile"
    verdict("optimizer", node.op, node.dtype, node.mode, lambda: _check(info, compiled), record_property)
