"""One model on the device against CPU torch: outputs, gradients and buffers of one step, eager and compiled.

Owns what counts as a pass: as near to the CPU's float64 result as CPU torch in float32 is (tests/models/agreement.py says
how near), no fallback, and nothing compiled when the same step is run again.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters as dynamo_counters

from conformance.models import transformer, vision
from tests.models.agreement import FLOOR, TIMES, distance, host, joined
from tests.models.zoo import placed

Tensors = dict[str, torch.Tensor]
Facts = dict[str, Any]
NAMES = (*transformer.TEXT, *vision.VISION)


@dataclass(slots=True)
class Step:
    """What a forward and a backward pass gave, on the CPU in float64."""

    outputs: torch.Tensor
    gradients: Tensors
    buffers: torch.Tensor


def build(name: str) -> tuple[nn.Module, dict[str, Any], Callable[[Any], torch.Tensor]]:
    """A model in training mode without dropout, its inputs, and its loss; the same at every call."""
    vision.declare_missing_operators()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = vision.build(vision.VISION[name]) if name in vision.VISION else transformer.build(transformer.TEXT[name])
    for module in made[0].modules():
        for attribute in ("p", "drop_prob", "dropout"):
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
    return made[0].train(), made[1], made[2]


def step(
    model: nn.Module, call: Callable[..., Any], inputs: dict[str, Any], loss: Callable[[Any], torch.Tensor]
) -> Step:
    """One forward and backward pass through `call`, which is the model or what was compiled of it."""
    model.zero_grad(set_to_none=True)
    result = call(**inputs)
    loss(result).backward()
    leaves = [t for t in torch.utils._pytree.tree_leaves(_plain(result)) if isinstance(t, torch.Tensor)]
    return Step(
        joined([t for t in leaves if t.is_floating_point()]),
        {n: host(p.grad) for n, p in model.named_parameters() if p.grad is not None},
        joined([b for b in model.buffers() if b.is_floating_point()]),
    )


def _plain(result: Any) -> Any:
    """A model output's tensors, without caches."""
    if isinstance(result, dict):
        return [v for k, v in result.items() if "past_key_values" not in k and "cache" not in k]
    return result


def examine(name: str) -> Facts:
    """Everything that the table says of a model."""
    model, inputs, loss = build(name)
    facts: Facts = {"parameters": sum(p.numel() for p in model.parameters())}
    double = copy.deepcopy(model).double()
    if hasattr(double, "set_experts_implementation"):
        double.set_experts_implementation("batched_mm")  # torch's grouped matrix product refuses float64
    truth = step(double, double, placed(inputs, torch.float64), loss)
    theirs = copy.deepcopy(model)
    cpu = step(theirs, theirs, inputs, loss)
    facts["eager"] = _attempt(model, inputs, loss, cpu, truth, lambda ours: ours)
    facts["compile"] = _attempt(model, inputs, loss, cpu, truth, lambda ours: torch.compile(ours, fullgraph=True))
    if "error" in facts["compile"]:
        facts["broken"] = _breaks(model, inputs, loss, cpu, truth)
    return facts


def _attempt(
    model: nn.Module,
    inputs: dict[str, Any],
    loss: Callable[[Any], torch.Tensor],
    cpu: Step,
    truth: Step,
    make: Callable[[nn.Module], Callable[..., Any]],
) -> Facts:
    """One way of running the model on the device, judged."""
    torch._dynamo.reset()
    torch.pjrt.synchronize()
    torch.pjrt.reset_stats()
    begin = time.perf_counter()
    try:
        ours = copy.deepcopy(model).to("pjrt")
        call, on_device = make(ours), placed(inputs, "pjrt")
        found = step(ours, call, on_device, loss)
        first = torch.pjrt.stats()
        step(ours, call, on_device, loss)
        second = torch.pjrt.stats()
    except Exception as error:  # noqa: BLE001 - whatever a model raises is a row of the table
        text = re.sub(r'"[^"\n]*/site-packages/', '"', f"{type(error).__name__}: {error}")
        return {"error": text[:2000]}
    forward, backward, misses = _judge(found, cpu, truth)
    again = second["compiles"] - first["compiles"]
    return {
        "forward": forward,
        "backward": backward,
        "misses": misses,
        "fallbacks": second["fallbacks"],
        "host_reads": sum(first["host_reads"].values()),
        "programs": first["compiles"] + first["disk_hits"],
        "again": again,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def _judge(ours: Step, cpu: Step, truth: Step) -> tuple[Facts, Facts, list[str]]:
    """(forward, backward, what missed): our error and the CPU's of outputs and of all gradients, each part checked."""
    misses: list[str] = []

    def check(what: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale: float = 0.0) -> tuple[float, float]:
        if a.shape != c.shape:
            misses.append(f"{what}: shape {tuple(a.shape)}, not {tuple(c.shape)}")
            return float("inf"), 0.0
        mine, theirs = distance(a, c, scale), distance(b, c, scale)
        if not mine <= TIMES * theirs + FLOOR:
            misses.append(f"{what}: {mine:.1e}, the CPU {theirs:.1e}")
        return mine, theirs

    forward = check("outputs", ours.outputs, cpu.outputs, truth.outputs)
    check("buffers", ours.buffers, cpu.buffers, truth.buffers)
    if ours.gradients.keys() != truth.gradients.keys():
        misses.append(f"gradients of {sorted(ours.gradients.keys() ^ truth.gradients.keys())[:3]}")
        return _errors(forward), _errors((float("inf"), 0.0)), misses
    # A gradient that is zero but for rounding (a key's bias) is judged on the scale of the others.
    scale = 1e-2 * max(float(g.norm()) for g in truth.gradients.values())
    for n, gradient in truth.gradients.items():
        check(f"gradient of {n}", ours.gradients[n], cpu.gradients[n], gradient, scale)
    whole = [torch.cat([g.flatten() for g in s.gradients.values()]) for s in (ours, cpu, truth)]
    return _errors(forward), _errors(check("gradients", *whole)), misses


def _errors(pair: tuple[float, float]) -> Facts:
    return {"error": pair[0], "cpu_error": pair[1]}


def _breaks(
    model: nn.Module, inputs: dict[str, Any], loss: Callable[[Any], torch.Tensor], cpu: Step, truth: Step
) -> Facts:
    """What is known of a model that has no full graph: how it does with graph breaks, and whether the CPU has one."""
    dynamo_counters.clear()
    facts = _attempt(model, inputs, loss, cpu, truth, lambda ours: torch.compile(ours))
    facts["breaks"] = sum(dynamo_counters["graph_break"].values())
    facts["why"] = [reason[:300] for reason in list(dynamo_counters["graph_break"])[:4]]
    torch._dynamo.reset()
    theirs = copy.deepcopy(model)
    try:
        step(theirs, torch.compile(theirs, fullgraph=True, backend="aot_eager"), inputs, loss)
        facts["cpu"] = "full graph"
    except Exception as error:  # noqa: BLE001 - whatever a model raises
        facts["cpu"] = f"{type(error).__name__}: {error}"[:500]
    return facts
