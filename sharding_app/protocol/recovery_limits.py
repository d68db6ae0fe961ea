"""Limits of recovery: how much of the journal one read takes, and when a history is too long."""

import msgspec

SLOW_SECONDS = 1.0
SAME = 0.7
"""Half of a read that takes more than this share of its time has taken about as long."""


class RecoveryLimits(msgspec.Struct, frozen=True):
    """Limits of each read of a recovery, and of one entity's history."""

    batch_entities: int = 250
    "Most entities that one statement reads."
    batch_events: int = 1000
    "Most events of each of them in that statement. A longer history goes on in pages."
    batch_rows: int = 10_000
    "Most rows of all of them."
    batch_bytes: int = 8 * 1024 * 1024
    "Most bytes of events and snapshots of all of them; one row alone may be larger."
    page_events: int = 2000
    "Most events in a page of one long history."
    page_bytes: int = 4 * 1024 * 1024
    "Most bytes in a page."
    max_events: int = 10_000_000
    "An entity with more events after its snapshot is not recovered; 0: no limit."
    max_bytes: int = 2 * 1024 * 1024 * 1024
    "Most bytes of these events; 0: no limit."


class Pace:
    """The size of the next read: half of the last one after one that failed or was slow by its
    size, double where that will not be slow either, and else somewhat more.

    A read that runs into the server's time limit would run into it again. But a read takes the time
    of the way to the server too, and of all that the server does beside it. If half as much takes
    about as long, the size is not to blame. With small reads alone, the entities that wait would
    become ever more.
    """

    def __init__(self, most: int, least: int = 1) -> None:
        self.size = most
        self._most = most
        self._least = min(least, most)
        self._halved_after = 0.0
        "How long the read took that was slow, and led to the present size; 0: another one did."
        self._small_seconds = 0.0
        "How long a read takes whatever its size, as far as that is known."

    def took(self, seconds: float) -> None:
        before, size = self._halved_after, self.size
        self._halved_after = 0.0
        self._small_seconds = seconds if size == self._least else min(self._small_seconds, seconds)
        limit = max(SLOW_SECONDS, 2 * self._small_seconds)
        if seconds > limit:
            if not before or seconds <= before * SAME:
                self.failed()
                self._halved_after = seconds
                return
            self._small_seconds, limit = seconds, 2 * seconds
        twice = 2 * seconds - self._small_seconds
        self.size = min(self._most, 2 * size if twice <= limit else size + 1 + size // 4)

    def failed(self) -> None:
        self._halved_after = 0.0
        self.size = max(self._least, self.size // 2)

    def share(self, whole: int, least: int = 1) -> int:
        """Return the part of another limit that corresponds to the current size."""
        return max(min(least, whole), whole * self.size // self._most)
