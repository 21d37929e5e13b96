"""module_db on the device: outputs and gradients of every torch.nn module, against the same module on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db

from conformance.checks import Job, Outcome, nearby, run_jobs
from conformance.judging import verdict
from conformance.nodes import Node
from conformance.operands import DEVICE, differentiable, on_cpu, on_device, widened

# Modules with random results in training: judged by form there.
RANDOM = ("Dropout", "RReLU")
# Modules with hundreds of inputs, which run in float32 only.
LARGE = ("nn.Transformer", "nn.MultiheadAttention", "nn.LinearCrossEntropyLoss")


@cache
def _entries() -> dict[str, Any]:
    return {f"{info.name}.{i}" if n else info.name: info for i, (n, info) in enumerate(_numbered())}


def _numbered() -> Iterator[tuple[int, Any]]:
    seen: dict[str, int] = {}
    for info in module_db:
        seen[info.name] = seen.get(info.name, -1) + 1
        yield seen[info.name], info


def nodes(test: str) -> Iterator[Node]:
    """float32 in each mode of running, float64 and bfloat16 in one; torch.compile has its own tests of models."""
    for name, info in _entries().items():
        for mode in ("strict", "fused"):
            yield Node(test, name, "float32", mode)
        for dtype in ("float64", "bfloat16"):
            if getattr(torch, dtype) in info.dtypes and not name.startswith(LARGE):
                yield Node(test, name, dtype, "fused")


def _run(
    module: torch.nn.Module, place: Callable[[Any], Any], dtype: torch.dtype, device: str, given: Any
) -> Callable[[], Any]:
    def run() -> Any:
        own = copy.deepcopy(module).to(device=device)
        own = own.double() if dtype == torch.float64 else own
        args, kwargs = made = place(given)
        torch.manual_seed(1)
        out = own(*args, **kwargs)
        results = [o for o in torch.utils._pytree.tree_leaves(out) if isinstance(o, torch.Tensor)]
        outs = [o for o in results if o.requires_grad]
        leaves = [*differentiable(made), *(p for p in own.parameters() if p.requires_grad)]
        if not outs or not leaves:
            return results
        seeds = [torch.linspace(0.5, 1.5, o.numel()).reshape(o.shape).to(o.dtype).to(o.device) for o in outs]
        return [*(r.detach() for r in results), *torch.autograd.grad(outs, leaves, seeds, allow_unused=True)]

    return run


def _check(info: Any, dtype: torch.dtype) -> Outcome:
    def jobs() -> Iterator[Job]:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            samples = info.module_inputs_func(info, "cpu", dtype, True, training)
            for index, sample in enumerate(samples):
                if sample.forward_input is None:
                    continue
                torch.manual_seed(0)
                module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
                module = module.to(dtype).train(training)
                given = (tuple(sample.forward_input.args), dict(sample.forward_input.kwargs))
                if info.is_lazy:
                    module(*on_cpu(given)[0], **on_cpu(given)[1])
                yield Job(
                    f"{index} ({'training' if training else 'evaluation'}, {sample.desc or 'default'})",
                    given,
                    _run(module, on_cpu, dtype, "cpu", given),
                    _run(module, on_device, dtype, DEVICE, given),
                    _run(module, widened, torch.float64, "cpu", given),
                    values=not (training and _is_random(module)),
                    strides=False,
                    floor=1.0,  # gradients may cancel
                    nearby=nearby(lambda make, m=module, g=given: _run(m, make, _dtype_of(make, dtype), "cpu", g)),
                )

    return run_jobs((job for job in jobs() if _runs(job)), Outcome(), batch=16)


def _dtype_of(make: Callable[[Any], Any], dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a maker of operands wants the module's parameters."""
    made = make(((torch.zeros((), dtype=dtype),), {}))
    return made[0][0].dtype  # type: ignore[no-any-return]


def _runs(job: Job) -> bool:
    """Whether CPU torch accepts the module's inputs in this dtype."""
    try:
        job.on_host()
    except Exception:  # noqa: BLE001 - a fault of the database
        return False
    return True


def _is_random(module: torch.nn.Module) -> bool:
    """Whether a part of the module draws numbers in training."""
    parts = list(module.modules())
    drawing = (m for m in parts if any(word in type(m).__name__ for word in RANDOM) and getattr(m, "p", 1) != 0)
    rates = (rate for m in parts if isinstance(rate := getattr(m, "dropout", 0), (int, float)))
    return any(True for _ in drawing) or any(rate > 0 for rate in rates)


def test_module(node: Node, record_property: Any) -> None:
    """All inputs of a module, training and evaluation."""
    info = _entries()[node.op]
    verdict("module", node.op, node.dtype, node.mode, lambda: _check(info, getattr(torch, node.dtype)), record_property)
