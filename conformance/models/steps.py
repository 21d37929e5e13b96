"""One forward and backward pass, and how near one is to another.

Owns what counts as agreement. In float32: as near to the CPU's float64 result as CPU torch is (tests/models/agreement.py
says how near). Where that says little, because CPU torch itself is far off or a maximum or a ReLU has two nearly equal
sides: within EXACT in float64, and in float32 as near as CPU torch is with its weights changed in the last places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from conformance.models.cases import Case
from tests.models.agreement import FLOOR, TIMES, distance, host, joined

TELLING = 1e-4
EXACT = 1e-8
NUDGES = 6
Facts = dict[str, Any]


@dataclass(slots=True)
class Step:
    """What a forward and a backward pass gave, on the CPU in float64."""

    outputs: torch.Tensor
    gradients: dict[str, torch.Tensor]
    buffers: torch.Tensor

    def whole(self) -> torch.Tensor:
        """All gradients as one vector."""
        return torch.cat([g.flatten() for g in self.gradients.values()])


def step(case: Case, call: Callable[..., Any] | None = None) -> Step:
    """One forward and backward pass through `call`, which is the model or what was compiled of it."""
    case.model.zero_grad(set_to_none=True)
    result = (case.model if call is None else call)(**case.inputs)
    case.loss(result).backward()
    leaves = [t for t in torch.utils._pytree.tree_leaves(_plain(result)) if isinstance(t, torch.Tensor)]
    return Step(
        joined([t for t in leaves if t.is_floating_point()]),
        {n: host(p.grad) for n, p in case.model.named_parameters() if p.grad is not None},
        joined([b for b in case.model.buffers() if b.is_floating_point()]),
    )


def _plain(result: Any) -> Any:
    """A model output's tensors, without caches."""
    if isinstance(result, dict):
        return [v for k, v in result.items() if "past_key_values" not in k and "cache" not in k]
    return result


class Reference:
    """What the CPU gives for a case, in float64 and in float32."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.truth = step(case.to(torch.float64))
        self.cpu = step(case.to("cpu"))
        self._spread: list[Step] = []

    def tells(self) -> bool:
        """Whether float32 is near enough to float64 on the CPU for an error elsewhere to be seen."""
        return distance(self.cpu.whole(), self.truth.whole()) <= TELLING

    def spread(self) -> list[Step]:
        """The CPU's float32 result, and those with its weights changed in the last places."""
        if not self._spread:
            self._spread = [self.cpu, *(step(self.case.nudged(seed)) for seed in range(NUDGES))]
        return self._spread

    def judge(self, ours: Step) -> Facts:
        """A float32 step beside CPU torch's."""
        return compare(ours, [self.cpu], self.truth, lambda theirs: TIMES * theirs + FLOOR)

    def judge_widely(self, ours: Step) -> Facts:
        """A float32 step beside CPU torch's with its weights changed in the last places."""
        return compare(ours, self.spread(), self.truth, lambda theirs: TIMES * theirs + FLOOR)

    def judge_double(self, ours: Step) -> Facts:
        """A float64 step, which has to be the CPU's."""
        return compare(ours, [self.truth], self.truth, lambda theirs: EXACT)


def compare(ours: Step, cpu: Sequence[Step], truth: Step, allowed: Callable[[float], float]) -> Facts:
    """Our error and the CPU's, of outputs and of all gradients, and what misses: each gradient and buffer is checked."""
    misses: list[str] = []

    def check(what: str, a: torch.Tensor, b: list[torch.Tensor], c: torch.Tensor, scale: float = 0.0) -> Facts:
        if a.shape != c.shape:
            misses.append(f"{what}: shape {tuple(a.shape)}, not {tuple(c.shape)}")
            return {"error": float("inf"), "cpu_error": 0.0}
        mine, theirs = distance(a, c, scale), max(distance(each, c, scale) for each in b)
        if not mine <= allowed(theirs):
            misses.append(f"{what}: {mine:.1e}, the CPU {theirs:.1e}")
        return {"error": mine, "cpu_error": theirs}

    forward = check("outputs", ours.outputs, [s.outputs for s in cpu], truth.outputs)
    check("buffers", ours.buffers, [s.buffers for s in cpu], truth.buffers)
    if ours.gradients.keys() != truth.gradients.keys():
        misses.append(f"gradients of {sorted(ours.gradients.keys() ^ truth.gradients.keys())[:3]}")
        return {"forward": forward, "backward": {"error": float("inf"), "cpu_error": 0.0}, "misses": misses}
    # A gradient that is zero but for rounding (a key's bias) is judged on the scale of the others.
    scale = 1e-2 * max(float(g.norm()) for g in truth.gradients.values())
    for n, gradient in truth.gradients.items():
        check(f"gradient of {n}", ours.gradients[n], [s.gradients[n] for s in cpu], gradient, scale)
    backward = check("gradients", ours.whole(), [s.whole() for s in cpu], truth.whole())
    return {"forward": forward, "backward": backward, "misses": misses}
