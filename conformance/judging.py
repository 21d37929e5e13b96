"""Turns an Outcome into a pytest verdict: fallbacks that are not allowed fail, known failures must fail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from conformance.checks import Outcome
from conformance.fallbacks import ALLOWED
from conformance.known_failures import reason_for
from torch_pjrt.counters import counters

SHOWN = 12


@contextlib.contextmanager
def eager_mode(mode: str) -> Iterator[None]:
    """Run in one of the eager modes; compile runs its graphs from the fused one."""
    with torch.pjrt.eager_mode("fused" if mode == "compile" else mode):
        yield


def verdict(test: str, op: str, dtype: str, mode: str, run: Any, record: Any) -> None:
    """Run one node and say how it went."""
    counters.fallbacks.clear()
    torch.manual_seed(0)
    with eager_mode(mode):
        outcome: Outcome = run()
    record("samples", outcome.samples)
    record("whole", not outcome.left_out)
    strays = sorted(name for name in counters.fallbacks if name.rsplit(".", 1)[0].removeprefix("aten::") not in ALLOWED)
    if strays:
        outcome.failures.append(f"ran on the CPU without being listed in fallbacks.py: {', '.join(strays)}")
    reason = reason_for(test, op, dtype, mode)
    if outcome.failures and reason is None:
        shown = "\n".join(outcome.failures[:SHOWN])
        pytest.fail(f"{len(outcome.failures)} of {outcome.samples} samples\n{shown}", pytrace=False)
    if outcome.failures:
        pytest.xfail(reason)
    if outcome.samples == 0:
        pytest.skip("no sample applies")
    if reason is not None:
        pytest.fail(f"passes, but known_failures.py lists it ({reason}): take the entry out", pytrace=False)
