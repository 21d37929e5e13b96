"""Rewrites CUDA programs to device-agnostic PyTorch, keeping their formatting: what `torch-pjrt port` does.

torch_pjrt/check finds the places and knows the branches; this package knows what to write there. What it leaves is in
`Ported.left`, as findings. Needs libcst (the extra `port`).
"""

from __future__ import annotations

__all__ = ["Ported", "port_text"]

from .ported import Ported, port_text
