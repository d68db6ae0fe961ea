"""Events that projections handle in a second: differences between two looks of this process."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sharding_app.adapters.django.projections import PartStatus
from sharding_app.operations.projections import ProjectionLook

LEAST_SECONDS = 1.0
"""Looks that are closer together share the one before them."""
STALE_SECONDS = 30.0
"""A former look that is older gives no present rate."""

Key = tuple[str | int, ...]
"""Name and version of a projection, first and last slice of a part, and its journal if that is not
the cluster's own. The whole has all slices, and -1 as the first one.
"""


class _Count(NamedTuple):
    at: float
    events: int


class Rates:
    """For all viewers in this process. From any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[Key, tuple[_Count, _Count]] = {}
        "The counts of the last look, and of one before it."

    def of(self, found: Iterable[ProjectionLook]) -> dict[Key, float | None]:
        """Return the rates of these; None: there is nothing to compare with yet."""
        now = self._clock()
        events: dict[Key, int] = {}
        for each in found:
            events[whole(each)] = each.events
            for part in each.status.parts:
                events[key_of(each, part)] = part.events
        rates = {}
        with self._lock:
            counts = {key: pair for key, pair in self._counts.items() if now - pair[1].at < STALE_SECONDS}
            for key, number in events.items():
                taken = _Count(now, number)
                former, last = counts.get(key, (taken, taken))
                rates[key] = _rate(former, taken)
                counts[key] = (former, last) if now - last.at < LEAST_SECONDS else (last, taken)
            self._counts = counts
        return rates


def key_of(look: ProjectionLook, part: PartStatus) -> Key:
    """Return the key of a part."""
    key = look.name, look.version, part.first_slice, part.last_slice
    return (*key, part.journal) if part.journal else key


def whole(look: ProjectionLook) -> Key:
    """Return the key of a version with all its parts."""
    return look.name, look.version, -1, -1


def _rate(former: _Count, now: _Count) -> float | None:
    seconds = now.at - former.at
    return max(0, now.events - former.events) / seconds if seconds > 0 else None
