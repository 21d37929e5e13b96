"""One model on the device against CPU torch: outputs, gradients and buffers of one step, eager and compiled.

Owns what counts as a pass: agreement (conformance/models/steps.py), no fallback, and nothing compiled when the same step is
run again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters as dynamo_counters

from conformance.models.cases import Case, build
from conformance.models.steps import Facts, Reference, Step, step

Make = Callable[[nn.Module], Callable[..., Any]]


def examine(name: str) -> Facts:
    """Everything that the table says of a model."""
    case = build(name)
    reference = Reference(case)
    facts: Facts = {"parameters": sum(p.numel() for p in case.model.parameters())}
    facts["eager"] = attempt(case, reference, lambda ours: ours)
    facts["compile"] = attempt(case, reference, lambda ours: torch.compile(ours, fullgraph=True))
    if "error" in facts["compile"]:
        facts["broken"] = _breaks(case, reference)
    return facts


def attempt(case: Case, reference: Reference, make: Make) -> Facts:
    """One way of running the model on the device, judged; in float64 too where float32 does not tell."""
    begin = time.process_time()
    try:
        found, facts = _run(case, make)
        facts |= reference.judge(found)
        if facts["misses"] or not reference.tells():
            facts |= reference.judge_widely(found)
            double = reference.judge_double(_run(case.to(torch.float64), make)[0])
            facts["misses"] += [f"float64 {miss}" for miss in double.pop("misses")]
            facts["double"] = double
    except Exception as error:  # noqa: BLE001 - whatever a model raises is a row of the table
        text = re.sub(r'"[^"\n]*/site-packages/', '"', f"{type(error).__name__}: {error}")
        return {"error": text[:2000]}
    return facts | {"seconds": round(time.process_time() - begin, 1)}


def _run(case: Case, make: Make) -> tuple[Step, Facts]:
    """Two steps on the device: what the first gave, and what was compiled, read and done elsewhere."""
    torch._dynamo.reset()
    torch.pjrt.synchronize()
    torch.pjrt.reset_stats()
    ours = case.to("pjrt")
    call = make(ours.model)
    found = step(ours, call)
    first = torch.pjrt.stats()
    step(ours, call)
    second = torch.pjrt.stats()
    return found, {
        "fallbacks": second["fallbacks"],
        "host_reads": sum(first["host_reads"].values()),
        "programs": first["compiles"] + first["disk_hits"],
        "again": second["compiles"] - first["compiles"],
    }


def _breaks(case: Case, reference: Reference) -> Facts:
    """What is known of a model that has no full graph: how it does with graph breaks, and how CPU tensors do."""
    facts = attempt(case, reference, lambda ours: torch.compile(ours))
    if "error" not in facts:
        facts["breaks"], facts["why"] = graph_breaks(case.to("pjrt"), None)
    facts["cpu_breaks"], facts["cpu"] = graph_breaks(case.to("cpu"), "eager")
    return facts


def graph_breaks(case: Case, backend: str | None) -> tuple[int, list[str]]:
    """How often Dynamo leaves the graph in one step with a backend (None: the device's), and why."""
    torch._dynamo.reset()
    dynamo_counters.clear()
    step(case, torch.compile(case.model, **({"backend": backend} if backend else {})))
    reasons = dynamo_counters["graph_break"]
    return sum(reasons.values()), [reason.splitlines()[0][:100] for reason in list(reasons)[:4]]
