"""Counts of what the package did: compiles, cache hits, launches, flushes, host reads, fallbacks.

One process-wide object. Everything that costs time or leaves the device is counted here, so that nothing is silent;
`forbidden` turns a kind of event into an error (torch.pjrt.fail_on).
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Counters:
    """Process-wide counters. Times in seconds."""

    compiles: int = 0
    cache_hits: int = 0
    disk_hits: int = 0
    compile_seconds: float = 0.0
    captures: int = 0  # of graphs of torch.compile, one per size
    captures_dropped: int = 0
    compiles_ahead: int = 0  # of `compiles`: before anybody needed them
    captures_ahead: int = 0  # of `captures`: for sizes that had not come yet
    captures_ahead_used: int = 0  # of those: whose size has come
    trace_hits: int = 0  # graphs of torch.compile whose traces came from the disk
    trace_misses: int = 0  # that were traced, and kept
    trace_bypasses: int = 0  # that are traced in every process
    programs_launched: int = 0
    recorded_ops: int = 0
    flushes: Counter[str] = field(default_factory=Counter)
    host_reads: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    fallback_lines: Counter[str] = field(default_factory=Counter)
    wide_dtypes: Counter[str] = field(default_factory=Counter)
    causes: deque[str] = field(default_factory=lambda: deque(maxlen=1000))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def as_dict(self) -> dict[str, Any]:
        """A copy, with plain dicts."""
        return {
            "compiles": self.compiles,
            "cache_hits": self.cache_hits,
            "disk_hits": self.disk_hits,
            "compile_seconds": self.compile_seconds,
            "captures": self.captures,
            "captures_dropped": self.captures_dropped,
            "compiles_ahead": self.compiles_ahead,
            "captures_ahead": self.captures_ahead,
            "captures_ahead_used": self.captures_ahead_used,
            "trace_hits": self.trace_hits,
            "trace_misses": self.trace_misses,
            "trace_bypasses": self.trace_bypasses,
            "programs_launched": self.programs_launched,
            "recorded_ops": self.recorded_ops,
            "flushes": dict(self.flushes),
            "host_reads": dict(self.host_reads),
            "fallbacks": dict(self.fallbacks),
            "fallback_lines": dict(self.fallback_lines),
            "wide_dtypes": dict(self.wide_dtypes),
        }

    def reset(self) -> None:
        """All counters to zero."""
        self.compiles = self.cache_hits = self.disk_hits = self.programs_launched = self.recorded_ops = 0
        self.captures = self.captures_dropped = 0
        self.compiles_ahead = self.captures_ahead = self.captures_ahead_used = 0
        self.trace_hits = self.trace_misses = self.trace_bypasses = 0
        self.compile_seconds = 0.0
        for counter in (self.flushes, self.host_reads, self.fallbacks, self.fallback_lines, self.wide_dtypes):
            counter.clear()
        self.causes.clear()


@dataclass(slots=True)
class Forbidden:
    """Which events raise at present."""

    recompile: bool = False
    fallback: bool = False
    host_read: bool = False


counters = Counters()
forbidden = Forbidden()
