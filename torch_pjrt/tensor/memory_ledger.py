"""How many bytes the storages of the device hold now, and held at most.

Cells append signed sizes to a list (atomic, cheap); the list is folded when it is long or when somebody asks.
"""

from __future__ import annotations

import threading


class Ledger:
    """Signed sizes in order of allocation and release. All figures in bytes."""

    _FOLD_AT = 16384

    def __init__(self) -> None:
        self._events: list[int] = []
        self.append = self._events.append
        self._lock = threading.Lock()
        self._now = 0
        self._peak = 0
        self._count = 0
        self._total = 0

    def fold(self) -> None:
        """Take the recorded events into the figures."""
        with self._lock:
            count = len(self._events)
            now, peak = self._now, self._peak
            for size in self._events[:count]:
                now += size
                if size >= 0:
                    self._count += 1
                    self._total += size
                else:
                    self._count -= 1
                if now > peak:
                    peak = now
            del self._events[:count]
            self._now, self._peak = now, peak

    def fold_if_long(self) -> None:
        """Called now and then by the recorder, so that the list stays short."""
        if len(self._events) > self._FOLD_AT:
            self.fold()

    @property
    def allocated(self) -> int:
        """Bytes held by live storages."""
        self.fold()
        return self._now

    @property
    def peak(self) -> int:
        """The most bytes held since the last reset."""
        self.fold()
        return self._peak

    @property
    def allocations(self) -> tuple[int, int]:
        """Live storages, and bytes allocated in all."""
        self.fold()
        return self._count, self._total

    def reset_peak(self) -> None:
        """Start the peak anew from what is held now."""
        self.fold()
        self._peak = self._now


ledger = Ledger()
