"""Counts of values by fixed bounds: cheap to add to, cheap to send, the same in every node so that
they add up.
"""

from bisect import bisect_left
from collections.abc import Sequence

_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
SECONDS = (*(round(step * 10.0**power, 9) for power in range(-5, 1) for step in _STEPS), 10.0)
"""Upper bounds of durations, from 10 µs to 10 s. Longer ones are counted behind the last bound."""
ROWS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 4000.0)
"""Upper bounds of batch sizes."""


class Histogram:
    """Counts of values by bounds.

    There is one more count than bounds: the last is for values beyond.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


def quantile(counts: Sequence[int], part: float, bounds: Sequence[float] = SECONDS) -> float | None:
    """Estimate a quantile from counts, interpolating between two bounds; None: no values."""
    total = sum(counts)
    if total <= 0:
        return None
    wanted = part * total
    seen, low = 0, 0.0
    for count, high in zip(counts, bounds, strict=False):  # the last count is of values beyond
        if count and seen + count >= wanted:
            return low + (high - low) * (wanted - seen) / count
        seen, low = seen + count, high
    return bounds[-1]


def difference(now: Sequence[int], before: Sequence[int]) -> list[int]:
    """Return the counts between two readings; all of `now` if they do not fit together."""
    if len(now) != len(before) or any(a < b for a, b in zip(now, before, strict=True)):
        return list(now)
    return [a - b for a, b in zip(now, before, strict=True)]


def added(parts: Sequence[Sequence[int]]) -> list[int]:
    """Add up the counts of several nodes, without those of another release, which counts by other
    bounds.
    """
    if not parts:
        return []
    size = len(parts[0])
    return [sum(each) for each in zip(*(part for part in parts if len(part) == size), strict=True)]
