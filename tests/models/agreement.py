"""What it means that a model on the device agrees with CPU torch.

The truth is a float64 run on the CPU. The device may be at most TIMES further from it than float32 CPU torch is, plus a
floor of a few units in the last place, since either run can be exact by luck.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

from tests.models.zoo import Inputs, placed

TIMES = 4.0
FLOOR = 4e-6
STEPS = 2

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Training:
    """What a run of STEPS steps gave, on the CPU in float64."""

    losses: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    weights: torch.Tensor
    buffers: torch.Tensor


@dataclass
class Run:
    """A model, its inputs and its optimizer on one device in one dtype."""

    model: nn.Module
    inputs: Inputs
    optimizer: torch.optim.Optimizer

    def step(self, gradients: Tensors | None = None) -> tuple[float, torch.Tensor]:
        """One training step; the first may keep its gradients."""
        self.optimizer.zero_grad()
        result = self.model(**self.inputs)
        result.loss.backward()
        if gradients is not None:
            gradients |= {n: host(p.grad) for n, p in self.model.named_parameters() if p.grad is not None}
        self.optimizer.step()
        return result.loss.item(), host(logits_of(result))


def host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU in float64."""
    return tensor.detach().to("cpu", torch.float64)


def logits_of(result: object) -> torch.Tensor:
    """The main output of a model."""
    for name in ("logits", "logits_per_image"):
        if getattr(result, name, None) is not None:
            return getattr(result, name)  # type: ignore[no-any-return]
    raise AssertionError(f"{type(result)} has no known output")


def start(model: nn.Module, inputs: Inputs, device: str, dtype: torch.dtype = torch.float32) -> Run:
    """A copy of the model, and its inputs, ready to train."""
    model = copy.deepcopy(model).to(device, dtype)
    if dtype is torch.float64 and hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("batched_mm")  # torch's grouped matrix product refuses float64
    return Run(model, placed(inputs, device, dtype), torch.optim.AdamW(model.parameters(), lr=1e-3))


def train(run: Run) -> Training:
    """STEPS steps from the start."""
    gradients: Tensors = {}
    kept = [run.step(gradients if i == 0 else None) for i in range(STEPS)]
    return Training(
        torch.tensor([loss for loss, _ in kept], dtype=torch.float64),
        torch.stack([logits for _, logits in kept]),
        gradients,
        joined(list(run.model.parameters())),
        joined([b for b in run.model.buffers() if b.is_floating_point()]),
    )


def joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([host(t).flatten() for t in tensors]) if tensors else torch.zeros(1, dtype=torch.float64)


def distance(a: torch.Tensor, b: torch.Tensor, scale: float = 0.0) -> float:
    """The norm of the difference, relative to the norm of b (at least `scale`)."""
    norm = max(float(b.norm()), scale)
    return float((a - b).norm()) / norm if norm else float((a - b).norm())


def check(name: str, ours: torch.Tensor, cpu: torch.Tensor, truth: torch.Tensor, scale: float = 0.0) -> None:
    """Fail unless ours is about as near to the truth as the CPU's."""
    assert ours.shape == truth.shape, f"{name}: shape {tuple(ours.shape)}, not {tuple(truth.shape)}"
    mine, theirs = distance(ours, truth, scale), distance(cpu, truth, scale)
    assert mine <= TIMES * theirs + FLOOR, f"{name}: error {mine:.2e} on the device, {theirs:.2e} on the CPU"


def compare(ours: Training, cpu: Training, truth: Training) -> None:
    """Check losses, outputs, every gradient, weights and buffers."""
    check("logits", ours.logits, cpu.logits, truth.logits)
    check("losses", ours.losses, cpu.losses, truth.losses)
    assert ours.gradients.keys() == truth.gradients.keys()
    # A gradient that is zero but for rounding (a key's bias) is judged on the scale of the others.
    scale = 1e-2 * max(float(g.norm()) for g in truth.gradients.values())
    for n, gradient in truth.gradients.items():
        check(f"gradient of {n}", ours.gradients[n], cpu.gradients[n], gradient, scale)
    check("weights", ours.weights, cpu.weights, truth.weights)
    check("buffers", ours.buffers, cpu.buffers, truth.buffers)
