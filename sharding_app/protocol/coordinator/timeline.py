"""Moves of shards, in lines for the timeline: which shards got which home, and how long they were
away.

Shards that moved together between the same nodes share a line. So do shards that got their first
home within half a minute: they get it one by one, as messages come for them, and would fill the
timeline. A move lasts from the moment when the shard's messages were held back (or its home was
found dead) until the new home has started it.
"""

from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.histogram import Histogram
from sharding_app.protocol.ids import Incarnation, ShardId, ShardKey

GATHER_SECONDS = 1.0
GATHER_PLACED_SECONDS = 30.0
SHARDS_IN_A_LINE = 200

_Way = tuple[str, Incarnation | None, Incarnation]
"""Type, former home, new home."""


class Timeline:
    def __init__(self, outbox: Outbox) -> None:
        self.pauses = Histogram()
        self._outbox = outbox
        self._away: dict[ShardKey, tuple[Incarnation, float]] = {}
        self._moved: dict[_Way, list[tuple[ShardId, float]]] = {}
        self._moved_since = 0.0
        self._placed: dict[_Way, list[tuple[ShardId, float]]] = {}
        self._placed_since = 0.0

    def began(self, key: ShardKey, former: Incarnation, now: float) -> None:
        self._away.setdefault(key, (former, now))

    def started(self, key: ShardKey, home: Incarnation, now: float) -> None:
        away = self._away.pop(key, None)
        if away is None:
            if not self._placed:
                self._placed_since = now
            self._placed.setdefault((key[0], None, home), []).append((key[1], 0.0))
        else:
            if not self._moved:
                self._moved_since = now
            self._moved.setdefault((key[0], away[0], home), []).append((key[1], now - away[1]))
            self.pauses.add(now - away[1])

    def tick(self, now: float, *, busy: bool) -> None:
        """Write the gathered lines: moves when no more are due soon, first homes at intervals."""
        if self._moved and (not busy or now - self._moved_since >= GATHER_SECONDS):
            moved, self._moved = self._moved, {}
            self._tell_all(moved)
        if self._placed and now - self._placed_since >= GATHER_PLACED_SECONDS:
            placed, self._placed = self._placed, {}
            self._tell_all(placed)

    def _tell_all(self, done: dict[_Way, list[tuple[ShardId, float]]]) -> None:
        for (type_name, former, home), shards in done.items():
            shards.sort()
            for first in range(0, len(shards), SHARDS_IN_A_LINE):
                self._tell(type_name, former, home, shards[first : first + SHARDS_IN_A_LINE])

    def _tell(
        self,
        type_name: str,
        former: Incarnation | None,
        home: Incarnation,
        shards: list[tuple[ShardId, float]],
    ) -> None:
        numbers = ranges([shard for shard, _ in shards])
        if former is None:
            self._outbox.note("shards_placed", type_name, f"{numbers} at {home}")
            return
        pause = max(away for _, away in shards) * 1000
        detail = f"{numbers} from {former} to {home}, away for {pause:.0f} ms at most"
        self._outbox.note("shards_moved", type_name, detail)


def ranges(numbers: list[int]) -> str:
    """Return ascending numbers in short, like 1-4,7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def within(detail: str, number: int) -> bool:
    """Tell whether a line of this timeline is about that shard."""
    for part in detail.partition(" ")[0].split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and int(first) <= number <= int(last if last.isdecimal() else first):
            return True
    return False
