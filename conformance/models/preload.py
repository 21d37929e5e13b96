"""Imports what every model needs, once, in the process that the others are forked from. Creates no client and no tensor."""

from __future__ import annotations

import contextlib

import torch._dynamo
import torch._functorch.aot_autograd
import torch._inductor.compile_fx  # noqa: F401
import transformers  # noqa: F401

from conformance.models import judge, vision  # noqa: F401

vision.declare_missing_operators()
with contextlib.suppress(ImportError):
    import timm  # noqa: F401
