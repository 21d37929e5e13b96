"""module_db on the device: outputs and gradients of every torch.nn module, against the same module on the CPU.

In mode compile each module is one graph, but where Dynamo breaks it on the CPU as well.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.testing._internal.common_modules import module_db

from conformance.checks import Job, Outcome, nearby, run_jobs
from conformance.judging import verdict
from conformance.nodes import MANY_COMPILED, MODES, Node
from conformance.operands import DEVICE, differentiable, on_cpu, on_device, widened

# Modules with random results in training: judged by form there.
RANDOM = ("Dropout", "RReLU")
# Modules with hundreds of inputs, which run in float32 only.
LARGE = ("nn.Transformer", "nn.MultiheadAttention", "nn.LinearCrossEntropyLoss")
AVERAGE = "without a momentum it divides by the count of batches, which is in a tensor"
# Modules that Dynamo does not take as one graph, and why. Which of their inputs it refuses is asked on the CPU each time.
BROKEN = {
    "nn.BatchNorm1d": AVERAGE,
    "nn.BatchNorm2d": AVERAGE,
    "nn.BatchNorm3d": AVERAGE,
    "nn.GaussianNLLLoss": "it looks for negative variances",
    "nn.LinearCrossEntropyLoss": "it warns of combinations of options",
    "nn.TransformerEncoder": "whether a mask is causal is asked of its values",
    "nn.CTCLoss": "Dynamo takes the operator's shape for one that depends on lengths in tensors",
}
# Modules of whose results torch's meta kernels, and so its compiled modules on the CPU, say another form than its kernels do.
UNLIKE_EAGER = {"nn.MultiLabelMarginLoss": "the loss of one sample, not reduced, is a vector of one"}


@cache
def _entries() -> dict[str, Any]:
    return {f"{info.name}.{i}" if n else info.name: info for i, (n, info) in enumerate(_numbered())}


def _numbered() -> Iterator[tuple[int, Any]]:
    seen: dict[str, int] = {}
    for info in module_db:
        seen[info.name] = seen.get(info.name, -1) + 1
        yield seen[info.name], info


def nodes(test: str) -> Iterator[Node]:
    """float32 in each mode, float64 and bfloat16 in one."""
    for name, info in _entries().items():
        for mode in MODES:
            yield Node(test, name, "float32", mode)
        for dtype in ("float64", "bfloat16"):
            if getattr(torch, dtype) in info.dtypes and not name.startswith(LARGE):
                yield Node(test, name, dtype, "fused")


def _run(
    module: torch.nn.Module,
    place: Callable[[Any], Any],
    dtype: torch.dtype,
    device: str,
    given: Any,
    compile: Callable[[torch.nn.Module], Callable[..., Any]] = lambda module: module,  # noqa: A002 - as torch calls it
) -> Callable[[], Any]:
    def run() -> Any:
        own = copy.deepcopy(module).to(device=device)
        own = own.double() if dtype == torch.float64 else own
        args, kwargs = made = place(given)
        torch.manual_seed(1)
        out = compile(own)(*args, **kwargs)
        results = [o for o in torch.utils._pytree.tree_leaves(out) if isinstance(o, torch.Tensor)]
        outs = [o for o in results if o.requires_grad]
        leaves = [*differentiable(made), *(p for p in own.parameters() if p.requires_grad)]
        if not outs or not leaves:
            return results
        seeds = [torch.linspace(0.5, 1.5, o.numel()).reshape(o.shape).to(o.dtype).to(o.device) for o in outs]
        return [*(r.detach() for r in results), *torch.autograd.grad(outs, leaves, seeds, allow_unused=True)]

    return run


def _compiled(module: torch.nn.Module, *, backend: str = DEVICE, fullgraph: bool = True) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        torch._dynamo.reset()
        with torch._dynamo.config.patch(allow_rnn=True):
            return torch.compile(module, backend=backend, fullgraph=fullgraph, dynamic=False)(*args, **kwargs)

    return run


def _is_whole(module: torch.nn.Module, given: Any) -> bool:
    """Whether Dynamo takes the module as one graph on the CPU."""
    args, kwargs = on_cpu(given)
    try:
        _compiled(copy.deepcopy(module), backend="aot_eager")(*args, **kwargs)
    except (torch._dynamo.exc.Unsupported, GuardOnDataDependentSymNode):
        return False
    return True


def _samples(info: Any, dtype: torch.dtype) -> list[tuple[str, torch.nn.Module, Any]]:
    """What to say of an input, the module, and the input."""

    def found() -> Iterator[tuple[str, torch.nn.Module, Any]]:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            for index, sample in enumerate(info.module_inputs_func(info, "cpu", dtype, True, training)):
                if sample.forward_input is None:
                    continue
                torch.manual_seed(0)
                module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
                module = module.to(dtype).train(training)
                given = (tuple(sample.forward_input.args), dict(sample.forward_input.kwargs))
                if info.is_lazy:
                    module(*on_cpu(given)[0], **on_cpu(given)[1])
                how = "training" if training else "evaluation"
                yield f"{index} ({how}, {sample.desc or 'default'})", module, given

    return list(found())


def _check(name: str, dtype: torch.dtype, compiled: bool, limit: int | None) -> Outcome:
    outcome, refused = Outcome(), 0
    samples = _samples(_entries()[name], dtype)
    if limit is not None and len(samples) > limit:
        outcome.left_out = len(samples) - limit
        samples = [samples[0], *random.Random(name).sample(samples[1:], limit - 1)]

    def jobs() -> Iterator[Job]:
        nonlocal refused
        for label, module, given in samples:
            own: dict[str, Any] = {}
            hosts: dict[str, Any] = {}
            if compiled and name in UNLIKE_EAGER:
                hosts["compile"] = partial(_compiled, backend="aot_eager")
            if compiled:
                whole = name not in BROKEN or _is_whole(module, given)
                refused += not whole
                own["compile"] = partial(_compiled, fullgraph=whole)
            yield Job(
                label,
                given,
                _run(module, on_cpu, dtype, "cpu", given, **hosts),
                _run(module, on_device, dtype, DEVICE, given, **own),
                _run(module, widened, torch.float64, "cpu", given),
                values=not (module.training and _is_random(module)),
                strides=False,
                floor=1.0,  # gradients may cancel
                nearby=nearby(lambda make, m=module, g=given: _run(m, make, _dtype_of(make, dtype), "cpu", g)),
            )

    run_jobs((job for job in jobs() if _runs(job)), outcome, batch=16)
    if compiled and name in BROKEN and not refused:
        outcome.failures.append("Dynamo takes it as one graph on the CPU: take it out of BROKEN")
    return outcome


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


def test_module(node: Node, record_property: Any, pytestconfig: Any) -> None:
    """All inputs of a module, training and evaluation; compiled a choice, since Dynamo takes longer than all the rest."""
    compiled = node.mode == "compile"
    limit = MANY_COMPILED if compiled and not pytestconfig.getoption("every_sample") else None
    run = partial(_check, node.op, getattr(torch, node.dtype), compiled, limit)
    verdict("module", node.op, node.dtype, node.mode, run, record_property)
