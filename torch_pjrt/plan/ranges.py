"""A figure with its ends."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Low, middle (geometric), high."""

    low: float
    high: float

    @property
    def mid(self) -> float:
        """The geometric middle."""
        return math.sqrt(self.low * self.high)

    def times(self, factor: float) -> Range:
        """Scaled."""
        return Range(self.low * factor, self.high * factor)

    def overlaps(self, other: Range) -> bool:
        """Whether neither is surely below the other."""
        return self.low <= other.high and other.low <= self.high
