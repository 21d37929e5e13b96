"""Which nodes there are: every (test, op, dtype, mode) that op_db allows and the device has dtypes for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._dynamo import guards
from torch.testing._internal import common_methods_invocations, common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

# torch looks through the stack for its own TestCase at each sample, which takes longer than the samples do.
for _module in (core, common_utils):
    _module.extract_test_fn = lambda: None
# How long Dynamo's guards take is measured, after emptying the processor's caches, for each graph.
guards.profile_guard_manager = lambda *_: 0.0

# Some entries set the seed at each call, which would make random results look as if they were not.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

MODES = ("strict", "fused", "compile")
# How an op runs does not interact with its dtype: the fused mode takes all dtypes, the others one of each kind.
MODE_DTYPES = {
    "strict": frozenset("float32 int64 complex64 bool".split()),
    "compile": frozenset("float32 int64".split()),
}
# For each test, the modes that it runs in.
TESTS = {
    "forward": MODES,
    "backward": MODES,
    "views": ("strict", "fused"),
    "inplace": ("strict", "fused"),
    "out": ("strict", "fused"),
    "errors": ("strict", "fused"),
}
# A few entries have hundreds of samples, one for each combination of sizes (max_pool, logspace): forward and backward run
# all of them in float32, fused; the other nodes a choice of this many each, which differs from dtype to dtype. Dynamo takes
# longer for a sample than everything else together, and compiled graphs are made of the same rows. --every-sample lifts this.
MANY, MANY_COMPILED = 48, 12
DTYPES = tuple(
    getattr(torch, name)
    for name in (
        "float32 bfloat16 float16 float64 complex64 complex128 bool uint8 int8 int16 int32 int64 "
        "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz"
    ).split()
)


@dataclass(frozen=True)
class Node:
    """One node."""

    test: str
    op: str
    dtype: str
    mode: str

    @property
    def limit(self) -> int | None:
        """How many samples it runs at most, unless every one is asked for."""
        whole = self.test in ("forward", "backward") and (self.dtype, self.mode) == ("float32", "fused")
        return None if whole else MANY_COMPILED if self.mode == "compile" else MANY

    @property
    def id(self) -> str:
        """As pytest shows it."""
        return f"{self.op}-{self.dtype}-{self.mode}"


@cache
def entries() -> dict[str, Any]:
    """op_db by full name."""
    return {info.full_name: info for info in op_db}


def _applies(test: str, info: Any, dtype: torch.dtype) -> bool:
    if test == "backward":
        inexact = dtype.is_floating_point or dtype.is_complex
        return info.supports_autograd and inexact and dtype in info.backward_dtypes
    if test == "inplace":
        return info.inplace_variant is not None
    if test == "out":
        return bool(info.supports_out)
    if test == "errors":
        return info.error_inputs_func is not None and dtype is _first(info)
    return True


def _first(info: Any) -> torch.dtype:
    return next(d for d in DTYPES if d in info.dtypes)


def nodes(test: str) -> Iterator[Node]:
    """All nodes of a test."""
    for name, info in entries().items():
        for dtype in DTYPES:
            if dtype in info.dtypes and _applies(test, info, dtype):
                short = str(dtype).removeprefix("torch.")
                for mode in TESTS[test]:
                    if test == "errors" or short in MODE_DTYPES.get(mode, {short}):
                        yield Node(test, name, short, mode)
