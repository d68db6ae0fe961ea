"""Limits of recovery: how much of the journal one read takes, and when a history is too long."""

import msgspec

SLOW_SECONDS = 1.0
QUICK_SECONDS = 0.25


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
    """The size of the next read: half of the last one after a slow or failed read, up to double
    after a quick one, and somewhat more after any other.

    A read that runs into the server's time limit would run into it again. But the least read takes
    the time of the way to the server, and of all that the server does beside it: a larger read is
    slow if it takes more than twice as long. With small reads alone, the entities that wait would
    become ever more.
    """

    def __init__(self, most: int, least: int = 1) -> None:
        self.size = most
        self._most = most
        self._least = min(least, most)
        self._least_seconds = 0.0
        "How long a least read has taken, or a larger one that took less."

    def took(self, seconds: float) -> None:
        is_least = self.size == self._least
        self._least_seconds = seconds if is_least else min(self._least_seconds, seconds)
        if seconds > max(SLOW_SECONDS, 2 * self._least_seconds):
            self.failed()
        elif seconds < QUICK_SECONDS:
            self.size = min(self._most, self.size * 2)
        else:
            self.size = min(self._most, self.size + 1 + self.size // 4)

    def failed(self) -> None:
        self.size = max(self._least, self.size // 2)

    def share(self, whole: int, least: int = 1) -> int:
        """Return the part of another limit that corresponds to the current size."""
        return max(min(least, whole), whole * self.size // self._most)
