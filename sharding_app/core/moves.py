"""What the timeline tells of shards: which of them got which home, and how long they were away meanwhile.

Shards that moved together between the same nodes share a line. A move counts from the moment that their messages were held
back (or their home was found dead) to the moment that the new home has started them.
"""

from typing import Any

from sharding_app.core.effects import Note
from sharding_app.core.ids import Incarnation, ShardId, ShardKey
from sharding_app.core.records import Decision

GATHER_SECONDS = 1.0
SHARDS_IN_A_LINE = 200


class Moves:
    def __init__(self, out: list[Any]) -> None:
        self._out = out
        self._away: dict[ShardKey, tuple[Incarnation, float]] = {}
        self._done: dict[tuple[str, Incarnation | None, Incarnation], list[tuple[ShardId, float]]] = {}
        self._since = 0.0

    def began(self, key: ShardKey, former: Incarnation, now: float) -> None:
        self._away.setdefault(key, (former, now))

    def started(self, key: ShardKey, home: Incarnation, now: float) -> None:
        former, since = self._away.pop(key, (None, now))
        if not self._done:
            self._since = now
        self._done.setdefault((key[0], former, home), []).append((key[1], now - since))

    def tick(self, now: float, *, busy: bool) -> None:
        """Write what has gathered, once nothing more is to come soon."""
        if not self._done or (busy and now - self._since < GATHER_SECONDS):
            return
        done, self._done = self._done, {}
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
