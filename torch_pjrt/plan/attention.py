"""Whether attention's scores reach memory on a chip, as this package runs there today, and how that is known.

This package lowers attention to two products and a softmax; it has no flash kernel for any platform yet. Whether the scores
are written is then up to the platform's compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_pjrt.plan.assumptions import Assumptions
from torch_pjrt.plan.chips import Chip


@dataclass(frozen=True, slots=True)
class Attention:
    """fused: the scores stay on the chip."""

    fused: bool
    basis: str


_KNOWN = {
    "tpu": Attention(
        False,
        "scores are written: programs compiled by libtpu for TPU v6e count their traffic in cost_analysis; flash attention on "
        "TPU is a Pallas kernel that this package does not call yet",
    ),
    "nvidia": Attention(
        False,
        "scores are written: programs compiled by XLA for H100 hold them as buffers and call no attention kernel; XLA took its "
        "rewriting of attention to cuDNN out in 2025 (openxla/xla issue 23389)",
    ),
    "amd": Attention(
        False,
        "taken as written: XLA's rewriting of attention was for NVIDIA, and is gone (openxla/xla issue 23389)",
    ),
    "neuron": Attention(
        False, "taken as written: what Trainium's compiler makes of it cannot be seen here, as it is on no public index"
    ),
    "cpu": Attention(False, "scores are written: XLA's programs for the CPU count their traffic in cost_analysis"),
}
_VENDORS = {"NVIDIA": "nvidia", "AMD": "amd", "AWS": "neuron", "Google": "tpu"}


def of(chip: Chip, assumed: Assumptions) -> Attention:
    """What holds for a chip; what the user assumes comes first."""
    row = assumed.rows["fused-attention"]
    if row.given:
        return Attention(bool(row.high), "given by the user")
    return _KNOWN.get(_VENDORS.get(chip.vendor, ""), _KNOWN["cpu"])
