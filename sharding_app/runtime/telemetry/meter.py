"""Counts and samples of a host's commands, so cheap that they never have to be switched off.

Contract: one comparison for each command, a few operations for each batch of envelopes. One command
at a time is timed, from its arrival to its answer; the next one is chosen from the first batch
after that. Troubles are noted where a command goes wrong anyway.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from sharding_app.ports.clock import Clock
from sharding_app.protocol.histogram import Histogram
from sharding_app.protocol.messages import Deliver

GIVE_UP_SECONDS = 10.0
"""A timed command that is not answered for this long (handed back, say) is forgotten."""
KEPT_TROUBLES = 100
HOT_PLACES = 64
EVERY_COMMANDS = 32
"""One command in this many is sampled for hot entities, and stands for all of them."""
HALVE_AFTER = 2000
SLOW_PLACES = 32
SLOW_SECONDS = 600.0
"""How long a slow command is remembered."""

K = TypeVar("K", bound=Hashable)


class Mishap(NamedTuple):
    at: float
    entity: str
    command: str
    reason: str


class Hottest(Generic[K]):
    """The keys that were counted most of late: a bounded table.

    Newcomers replace the coldest. All counts are halved now and then, so that formerly hot entities
    cool.
    """

    __slots__ = ("_added", "_counts")

    def __init__(self) -> None:
        self._counts: dict[K, int] = {}
        self._added = 0

    def add(self, key: K, weight: int) -> None:
        counts = self._counts
        count = counts.get(key)
        if count is None and len(counts) >= HOT_PLACES:
            coldest = min(counts, key=counts.__getitem__)
            count = counts.pop(coldest)
        counts[key] = (count or 0) + weight
        self._added += 1
        if self._added >= HALVE_AFTER:
            self._added = 0
            self._counts = {each: number // 2 for each, number in counts.items() if number > 1}

    def forget(self, about: Callable[[K], bool]) -> None:
        """Drop the keys of which that is true."""
        self._counts = {key: count for key, count in self._counts.items() if not about(key)}

    def top(self, places: int) -> list[tuple[K, int]]:
        """Return the hottest keys first, with their counts."""
        return sorted(self._counts.items(), key=lambda item: item[1], reverse=True)[:places]


class Slow(NamedTuple):
    seconds: float
    entity: str
    command: str
    at: float


class Slowest:
    """The slowest commands of late: a bounded list."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[Slow] = []

    def add(self, seconds: float, entity: str, command: str, now: float) -> None:
        found = self._found
        if len(found) >= SLOW_PLACES:
            found = self._found = self.top(SLOW_PLACES, now)
        if len(found) >= SLOW_PLACES:
            if seconds <= found[-1].seconds:
                return
            found.pop()
        found.append(Slow(seconds, entity, command, now))

    def forget(self, entity: str) -> None:
        self._found = [each for each in self._found if each.entity != entity]

    def top(self, places: int, now: float) -> list[Slow]:
        """Return the slowest of the last minutes first."""
        fresh = [each for each in self._found if now - each.at <= SLOW_SECONDS]
        return sorted(fresh, key=lambda each: -each.seconds)[:places]


class Meter:
    """The meter of one host."""

    __slots__ = (
        "commands", "hottest", "latency", "shards", "slowest", "troubles", "watched", "_clock", "_looked", "_since",
        "_writers",
    )  # fmt: skip

    def __init__(self, clock: Clock, writers: Hottest[tuple[str, int, int]] | None = None) -> None:
        """`writers`: a table of the node's that names entities first."""
        self._writers = writers
        self.commands = 0
        self.latency = Histogram()
        self.hottest: Hottest[tuple[str, int]] = Hottest()
        self.shards: Hottest[int] = Hottest()
        self.slowest = Slowest()
        self.troubles: deque[Mishap] = deque(maxlen=KEPT_TROUBLES)
        self.watched: Deliver | None = None
        "The command that is timed now. The code that answers compares with it and calls `done`."
        self._clock = clock
        self._looked = 0
        self._since = 0.0

    def batch(self, messages: Sequence[Deliver], now: float) -> None:
        """Count a batch of envelopes."""
        count = len(messages)
        self.commands += count
        chosen = messages[count >> 1]
        if self.commands - self._looked >= EVERY_COMMANDS:
            self.hottest.add((chosen.entity, chosen.shard), self.commands - self._looked)
            self.shards.add(chosen.shard, self.commands - self._looked)
            self._looked = self.commands
        if self.watched is None or now - self._since > GIVE_UP_SECONDS:
            self.watched = chosen
            self._since = now

    def done(self) -> None:
        """Note that the timed command is answered."""
        watched, self.watched = self.watched, None
        now = self._clock.now()
        self.latency.add(now - self._since)
        if watched is not None:
            self.slowest.add(now - self._since, watched.entity, watched.command, now)

    def forget(self, entity: str) -> None:
        """Remove all mentions of an entity that is erased."""
        self.hottest.forget(lambda key: key[0] == entity)
        self.slowest.forget(entity)
        if self._writers is not None:
            self._writers.forget(lambda key: key[0] == entity)
        kept = [each for each in self.troubles if each.entity != entity]
        self.troubles.clear()
        self.troubles.extend(kept)

    def trouble(self, entity: str, command: str, reason: str) -> None:
        self.troubles.append(Mishap(self._clock.now(), entity, command, reason))
