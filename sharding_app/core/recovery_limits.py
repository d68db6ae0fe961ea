"""How much of the journal a recovery takes at a time, and when a history is too long for it."""

import msgspec

SLOW_SECONDS = 1.0
QUICK_SECONDS = 0.25


class RecoveryLimits(msgspec.Struct, frozen=True):
    """Of one node, but for the first two for each type by itself."""

    batch_entities: int = 250
    "Entities that are wanted together are read by one statement: so many at most."
    batch_events: int = 1000
    "Of each of them in that statement. What is longer goes on in pages."
    batch_rows: int = 10_000
    "Of all of them."
    batch_bytes: int = 8 * 1024 * 1024
    "The same in bytes of events and snapshots; one row alone may be larger."
    page_events: int = 2000
    "Of one long history at a time."
    page_bytes: int = 4 * 1024 * 1024
    "The same in bytes."
    max_events: int = 10_000_000
    "An entity with more of them after its snapshot is not recovered; 0: no such limit."
    max_bytes: int = 2 * 1024 * 1024 * 1024
    "The same in bytes of its events; 0: no such limit."


class Pace:
    """The size of the next read: half of the last one after a slow or a failed one, up to double after a quick one.

    A read that runs into the server's time limit would run into it again.
    """

    def __init__(self, most: int, least: int = 1) -> None:
        self.size = most
        self._most = most
        self._least = min(least, most)

    def took(self, seconds: float) -> None:
        if seconds > SLOW_SECONDS:
            self.failed()
        elif seconds < QUICK_SECONDS:
            self.size = min(self._most, self.size * 2)

    def failed(self) -> None:
        self.size = max(self._least, self.size // 2)

    def share(self, whole: int, least: int = 1) -> int:
        """As much of something else as the size is of the largest one."""
        return max(min(least, whole), whole * self.size // self._most)
