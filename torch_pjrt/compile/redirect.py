"""Sends graphs on our device that torch.compile would give to Inductor to our backend, and all other graphs on to Inductor.

torch.compile itself stays as it is: the object that it makes for its default backend is asked, per graph, where the
graph's tensors are. torch has no registration for a device's default backend; this stands in for one.
"""

from __future__ import annotations

from typing import Any

import torch

_applied = False


def apply() -> None:
    """Install once. Does nothing on a torch whose default backend is made otherwise."""
    global _applied
    wrapper = getattr(torch, "_TorchCompileInductorWrapper", None)
    if _applied or wrapper is None:
        return
    _applied = True
    original = wrapper.__call__

    def call(self: Any, graph: Any, inputs: Any) -> Any:
        from torch_pjrt.compile.backend import on_device, pjrt

        return pjrt(graph, inputs) if on_device(graph, inputs) else original(self, graph, inputs)

    wrapper.__call__ = call
