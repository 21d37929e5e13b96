"""A model ready to be run: its weights, its inputs and its loss, the same at every call.

Owns what is done to every model so that a run can be compared: no dropout, and no weight so near to zero at the start that
it hides the gradients of what lies behind it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from conformance.models import transformer, vision
from tests.models.zoo import placed

NAMES = (*transformer.TEXT, *vision.VISION)
ASLEEP = 1e-3
ULPS = 8


@dataclass(frozen=True, slots=True)
class Case:
    """A model in training mode, its inputs, and the loss of what it gives."""

    model: nn.Module
    inputs: dict[str, Any]
    loss: Callable[[Any], torch.Tensor]

    def to(self, *where: Any) -> Case:
        """A copy on a device or in a dtype."""
        model = copy.deepcopy(self.model).to(*where)
        if torch.float64 in where and hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("batched_mm")  # torch's grouped matrix product refuses float64
        return replace(self, model=model, inputs=placed(self.inputs, *where))

    def nudged(self, seed: int) -> Case:
        """A copy whose weights are changed at random, by at most ULPS units in the last place."""
        model, generator = copy.deepcopy(self.model), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in model.parameters():
                drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float64) * 2 - 1
                weight.mul_(1 + drawn * ULPS * 2**-23)
        return replace(self, model=model)


def build(name: str) -> Case:
    """A model of the table."""
    vision.declare_missing_operators()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = vision.build(vision.VISION[name]) if name in vision.VISION else transformer.build(transformer.TEXT[name])
        wake(made[0])
    for module in made[0].modules():
        for attribute in ("p", "drop_prob", "dropout"):
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
    return Case(made[0].train(), made[1], made[2])


def wake(model: nn.Module) -> None:
    """Draw anew the weights that begin at zero or nearly: a layer's scale, a block's last norm, a head."""
    for name, weight in model.named_parameters():
        if name.endswith("bias") or not weight.numel() or float(weight.detach().abs().max()) > ASLEEP:
            continue
        if weight.numel() == max(weight.shape, default=1):
            nn.init.uniform_(weight, 0.1, 0.5)
        else:
            nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
