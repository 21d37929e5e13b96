"""What is to be done with a model: train, prefill, decode or batch-infer, how much of it, and by when."""

from __future__ import annotations

from dataclasses import dataclass

import torch

RECOMPUTE = ("auto", "none", "selective", "full")
KINDS = ("train", "prefill", "decode", "batch-infer")
DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float8": torch.bfloat16,
}
SHORT = {"bf16": "bfloat16", "fp16": "float16", "f16": "float16", "fp32": "float32", "f32": "float32", "fp8": "float8"}


class PlanError(ValueError):
    """A request that cannot be planned. The message says what to change."""


class ModelError(PlanError):
    """A model that cannot be found, built or recorded."""


class MissingExtraError(PlanError):
    """A package that the request needs is not installed. The message has the command that installs it."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One step, and how many. batch: sequences or images over all chips; master: dtype in which training keeps weights.

    recompute: what training computes again in the backward pass: none, selective, full, or auto for the fastest that fits.

    accumulate: parts in which training takes the batch one after the other before it steps.
    quantity: units to process in all; deadline: seconds for those; latency: seconds for one step.
    """

    kind: str = "train"
    batch: int = 1
    sequence: int = 1024
    dtype: str = "bfloat16"
    master: str = "float32"
    recompute: str = "none"
    accumulate: int = 1
    quantity: float | None = None
    deadline: float | None = None
    latency: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PlanError(f"there is no workload {self.kind!r}: choose one of {', '.join(KINDS)}")
        if self.dtype not in DTYPES:
            raise PlanError(f"there is no dtype {self.dtype!r}: choose one of {', '.join((*DTYPES, *SHORT))}")
        if self.recompute not in RECOMPUTE:
            raise PlanError(f"--recompute must be one of {', '.join(RECOMPUTE)}, not {self.recompute!r}")
        if self.kind != "train" and self.recompute not in ("auto", "none"):
            raise PlanError("--recompute is for --workload train")
        for name in ("batch", "sequence"):
            if getattr(self, name) < 1:
                raise PlanError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.accumulate < 1 or self.batch % self.accumulate:
            raise PlanError(f"--accumulate must divide --batch {self.batch}, and {self.accumulate} does not")
        if self.accumulate > 1 and self.kind != "train":
            raise PlanError("--accumulate is for --workload train")
        for name in ("quantity", "deadline", "latency"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise PlanError(f"the {name} must be more than 0, not {value:g}")

    @property
    def together(self) -> int:
        """Sequences, images or samples that are taken at once."""
        return self.batch // self.accumulate

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype of activations. Weights of one byte are counted, not recorded."""
        return DTYPES[self.dtype]

    @property
    def weight_dtype(self) -> torch.dtype:
        """The dtype in which weights are recorded."""
        return DTYPES[self.master] if self.kind == "train" and self.master in DTYPES else self.compute_dtype
