"""What one cached eager op costs on the host, all included: dispatch, recording, flush, launch of its share."""

from __future__ import annotations

import statistics
import time

import torch

OPS = 1000


def _chain(x: torch.Tensor) -> None:
    y = x
    for _ in range(OPS // 2):
        y = (y + x).relu()
    y.sum().item()


def host_cost(mode: str, *, repeats: int = 9) -> float:
    """Microseconds per op of a chain of adds and relus on [8, 8] float32, whose own work is negligible."""
    with torch.pjrt.eager_mode(mode):
        x = torch.full((8, 8), 0.001, device="pjrt")
        times = []
        for _ in range(repeats + 2):
            begin = time.perf_counter()
            _chain(x)
            times.append(time.perf_counter() - begin)
    return statistics.median(times[2:]) / OPS * 1e6


def cpu_cost(*, repeats: int = 9) -> float:
    """The same chain on CPU torch, microseconds per op."""
    x = torch.full((8, 8), 0.001)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        _chain(x)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) / OPS * 1e6
