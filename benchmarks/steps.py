"""Training steps in every way that is compared: CPU torch, Inductor, JAX by hand, and the device, eager and compiled."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import torch

from benchmarks import handwritten
from benchmarks.interleave import interleaved
from benchmarks.models import training_step

CPU, INDUCTOR, JAX, LAYERED, EAGER, COMPILED = "CPU torch", "Inductor", "JAX", "JAX layered", "eager", "compiled"
# What is reported of each model: a way, what it is divided by, and the ratio that is aimed at.
RATIOS: tuple[tuple[str, str, dict[str, float]], ...] = (
    (EAGER, CPU, {"mlp": 2.0, "gpt-4": 1.0, "gpt-12": 0.9, "resnet18": 1.3}),
    (COMPILED, CPU, {"gpt-12": 0.85}),
    (COMPILED, INDUCTOR, {"gpt-12": 0.85}),
    (COMPILED, JAX, dict.fromkeys(("mlp", "gpt-4", "gpt-12", "resnet18"), 1.0)),
    (COMPILED, LAYERED, dict.fromkeys(("gpt-4", "gpt-12"), 1.0)),
)


def inductor_missing() -> str | None:
    """Why Inductor cannot run on this machine's CPU, or None."""
    if any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl")):
        return None
    return "Inductor is left out: it needs a C++ compiler, and there is none on the PATH"


def ways(name: str, layers: int) -> dict[str, Callable[[], float]]:
    """Every way of a training step of one model."""
    torch._dynamo.reset()  # else this model's graphs count as recompiles of the last one's
    out = {CPU: training_step(name, "cpu", layers)}
    if inductor_missing() is None:
        out[INDUCTOR] = training_step(name, "cpu", layers, compiled=True)
    out[JAX] = handwritten.training_step(name, layers)
    if name == "gpt":
        out[LAYERED] = handwritten.training_step(name, layers, layered=True)
    out[EAGER] = training_step(name, "pjrt", layers)
    out[COMPILED] = training_step(name, "pjrt", layers, compiled=True)
    return out


def medians(name: str, layers: int, repeats: int) -> dict[str, float]:
    """Median seconds of a step in every way, by turns in one process."""
    return interleaved(ways(name, layers), repeats=repeats, warmup=3)
