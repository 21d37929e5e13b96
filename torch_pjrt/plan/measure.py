"""Runs the workload on the present device with random weights, and says how long a step takes.

Owns the making of values and the timing; calibration.py keeps the result. Meant for a model that fits the machine.
"""

from __future__ import annotations

import datetime
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import torch

from torch_pjrt.plan.calibration import Entry, Machine
from torch_pjrt.plan.chips import chips
from torch_pjrt.plan.families import Subject
from torch_pjrt.plan.workload import ModelError, PlanError, Workload

# What a plugin calls a chip, in part, and what it is here.
KINDS = {
    "TPU v5 lite": "tpu-v5e",
    "TPU v5e": "tpu-v5e",
    "TPU v5p": "tpu-v5p",
    "TPU v5": "tpu-v5p",
    "TPU v6": "tpu-v6e",
    "TPU7x": "tpu-7x",
    "A100": "a100",
    "L4": "l4",
    "H100": "h100",
    "H200": "h200",
    "GB200": "gb200",
    "GB300": "gb300",
    "B200": "b200",
    "MI300X": "mi300x",
    "MI325X": "mi325x",
    "MI355X": "mi355x",
}


_SIDE, _STREAMED = 1024, 1 << 24  # of the products and the arrays that a machine's rates are measured with


def present_chip() -> tuple[str, str]:
    """The name of the chip that is here, and what its plugin calls it. "cpu" is no packaged chip."""
    kind = jax.devices()[0].device_kind
    for text, name in KINDS.items():
        if text.lower() in kind.lower() and name in chips():
            return name, kind
    return kind, kind


def run(subject: Subject, workload: Workload, *, steps: int = 5, middle: float | None = None) -> Entry:
    """Warm up once, then time some steps; each waits for its result."""
    if steps < 1:
        raise PlanError("--measure needs at least one step")
    step = _ready(subject, workload)
    try:
        step()
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
    except Exception as error:
        raise ModelError(f"{subject.name} does not run here: {type(error).__name__}: {error}") from error
    chip, kind = present_chip()
    return Entry(
        chip,
        subject.name,
        workload.kind,
        workload.batch,
        workload.sequence,
        workload.dtype,
        1,
        statistics.median(times),
        min(times),
        max(times),
        middle,
        datetime.date.today().isoformat(),
        kind,
    )


def machine(dtype: str) -> Machine | None:
    """What this device reaches in large products and in streaming memory; None where it is a packaged chip."""
    from torch_pjrt.tensor.storage import device as present

    name, kind = present_chip()
    if name in chips():
        return None
    where = torch.device(present())
    rates = {}
    for key in dict.fromkeys(("float32", "bfloat16" if dtype == "float8" else dtype)):
        a = torch.randn(_SIDE, _SIDE).to(getattr(torch, key)).to(where)
        rates["bfloat16" if key == "float16" else key] = 2 * _SIDE**3 / _quickest(a.matmul, a)
    x = torch.randn(_STREAMED).to(where)
    bandwidth = 2 * x.nbytes / _quickest(x.mul, 1.5)
    stats = jax.devices()[0].memory_stats() or {}
    memory = stats.get("bytes_limit") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(name, kind, rates, bandwidth, float(memory), datetime.date.today().isoformat())


def _quickest(work: Callable[..., torch.Tensor], *args: Any, times: int = 4) -> float:
    _wait(work(*args))
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        _wait(work(*args))
        found.append(time.perf_counter() - begin)
    return min(found)


def _filled(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    if value.device.type != "meta":
        return value.to(device)
    if value.is_floating_point():
        return (torch.randn(value.shape, dtype=torch.float32) * 0.02).to(value.dtype).to(device)
    return torch.zeros(value.shape, dtype=value.dtype, device=device)


def _ready(subject: Subject, workload: Workload) -> Callable[[], None]:
    from torch_pjrt.export.trace import default_loss
    from torch_pjrt.tensor.storage import device as present

    torch.manual_seed(0)
    model, device = subject.model, torch.device(present())
    train = workload.kind == "train"
    if isinstance(model, torch.nn.Module):
        values = {name: _filled(t, device) for name, t in (*model.named_parameters(), *model.named_buffers())}
        model = model.to_empty(device=device)
        with torch.no_grad():
            for name, t in (*model.named_parameters(), *model.named_buffers()):
                t.copy_(values[name])
        model.train(train)
    args = [_filled(a, device) if isinstance(a, torch.Tensor) else a for a in subject.args]
    kwargs: dict[str, Any] = {
        k: _filled(v, device) if isinstance(v, torch.Tensor) else v for k, v in subject.kwargs.items()
    }
    if not train:

        def infer() -> None:
            with torch.no_grad():
                _wait(model(*args, **kwargs))

        return infer
    make = subject.optimizer or (lambda p: torch.optim.AdamW(p, lr=1e-4))
    optimizer = make([p for p in model.parameters() if p.requires_grad])

    def step() -> None:
        optimizer.zero_grad()
        loss = default_loss(model(*args, **kwargs))
        loss.backward()
        optimizer.step()
        loss.item()
        _wait(next(model.parameters()))

    return step


def _wait(result: Any) -> None:
    for leaf in torch.utils._pytree.tree_leaves(result):
        if isinstance(leaf, torch.Tensor):
            leaf.detach().flatten()[:1].float().sum().item()
