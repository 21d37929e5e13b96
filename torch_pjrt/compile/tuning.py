"""mode="max-autotune": runs a captured graph in two ways, times both in its first calls, and keeps the faster one.

The two ways are one executable for the whole graph, and executables that repeated layers share. Which is faster depends on
the chip and on the graph. Results are those of either way; only the first calls wait for the device.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field

from torch_pjrt.dispatch.launch import Policy
from torch_pjrt.logs import logger
from torch_pjrt.pjrt import buffers

_RUNS = 3  # per way; the first compiles and is not counted
_log = logger("compile")


@dataclass(slots=True)
class Tuning:
    """The trials of one captured graph."""

    times: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    best: bool | None = None  # whether layers share executables; None: still trying
    begin: float = 0.0

    def next(self, policy: Policy) -> Policy:
        """How to run the next call."""
        share = self.best
        if share is None:
            share = len(self.times[True]) < _RUNS
            buffers.barrier()
            self.begin = time.perf_counter()
        return dataclasses.replace(policy, share_layers=share)

    def ran(self, policy: Policy, launches: int) -> None:
        """Note how long the call took. `launches`: how many executables it ran."""
        if self.best is not None:
            return
        share = bool(policy.share_layers)
        if share and launches == 1:  # nothing is repeated, so both ways are the same
            self.best = True
            return
        buffers.barrier()
        self.times[share].append(time.perf_counter() - self.begin)
        if len(self.times[False]) == _RUNS:
            shared, whole = (min(self.times[way][1:]) for way in (True, False))
            self.best = shared <= whole
            _log.info("max-autotune: %.3f ms with shared layers, %.3f ms as one executable", shared * 1e3, whole * 1e3)
