"""What the timeline tells of shards: which of them got which home, and how long they were away meanwhile.

Shards that moved together between the same nodes share a line, and so do those that got their first home within half a
minute: they do so one by one, as messages come for them, and would fill the timeline. A move counts from the moment that their messages were held
back (or their home was found dead) to the moment that the new home has started them.
"""

from typing import Any

from sharding_app.core.effects import Note
from sharding_app.core.histogram import Histogram
from sharding_app.core.ids import Incarnation, ShardId, ShardKey
from sharding_app.core.records import Decision

GATHER_SECONDS = 1.0
GATHER_PLACED_SECONDS = 30.0
SHARDS_IN_A_LINE = 200

_Way = tuple[str, Incarnation | None, Incarnation]
"""Type, former home, new home."""


class Moves:
    def __init__(self, out: list[Any]) -> None:
        self.pauses = Histogram()
        self._out = out
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
        """Write what has gathered: moves once nothing more is to come soon, first homes now and then."""
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
            self._out.append(Note(Decision("shards_placed", type_name, f"{numbers} at {home}")))
            return
        pause = max(away for _, away in shards) * 1000
        detail = f"{numbers} from {former} to {home}, away for {pause:.0f} ms at most"
        self._out.append(Note(Decision("shards_moved", type_name, detail)))


def ranges(numbers: list[int]) -> str:
    """1-4,7: ascending numbers in short."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def within(detail: str, number: int) -> bool:
    """Whether a line of this timeline is about that shard."""
    for part in detail.partition(" ")[0].split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and int(first) <= number <= int(last if last.isdecimal() else first):
            return True
    return False
