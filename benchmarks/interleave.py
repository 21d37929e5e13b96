"""Times two or more ways of doing the same thing by turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def interleaved(ways: dict[str, Callable[[], object]], *, repeats: int, warmup: int = 2) -> dict[str, float]:
    """Median seconds of each way; they are run in turn, `repeats` times after `warmup` untimed rounds."""
    for _ in range(warmup):
        for run in ways.values():
            run()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, run in ways.items():
            begin = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(t) for name, t in times.items()}
