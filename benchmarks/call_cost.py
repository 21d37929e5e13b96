"""What one call of a compiled function costs on the host, by its number of tensors; and the same call of jax.jit.

The function adds up what it is given, so that the work itself is next to nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch

CALLS = 100


def _microseconds(call: Callable[[], Any], wait: Callable[[], Any], repeats: int) -> float:
    """Median over repeats of the time of a call, when CALLS of them are made before the device is waited for."""
    times = []
    for _ in range(repeats + 1):
        wait()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        wait()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:]) / CALLS * 1e6


def call_costs(count: int, *, repeats: int = 7) -> tuple[float, float]:
    """Microseconds of a call with that many inputs: ours under torch.compile, and jax.jit's."""
    ours = [torch.ones(8, device="pjrt") for _ in range(count)]
    torch._dynamo.reset()
    compiled = torch.compile(lambda *xs: torch.cat(xs).sum(), backend="pjrt", fullgraph=True)
    theirs = [jnp.ones(8) for _ in range(count)]
    jitted = jax.jit(lambda *xs: jnp.concatenate(xs).sum())
    last: list[Any] = []

    def call_jax() -> None:
        last[:] = [jitted(*theirs)]

    with torch.no_grad():
        compiled(*ours)
        call_jax()
        return (
            _microseconds(lambda: compiled(*ours), torch.accelerator.synchronize, repeats),
            _microseconds(call_jax, lambda: jax.block_until_ready(last), repeats),
        )
