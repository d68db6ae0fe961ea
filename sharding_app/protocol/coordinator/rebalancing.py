"""Rounds of rebalancing: the strategy is asked at intervals, and again some time after its moves
are done.

Contract: a round begins when nothing of the former one moves any more, and the type has rested for
as long as that round took: moves delay callers, and calls in between come first. In rounds that
follow each other a shard is chosen once, so that they come to an end whatever the strategy says.
The next interval starts afresh.
"""

from collections.abc import Collection, Iterable
from itertools import chain

from sharding_app.protocol.coordinator.handoff import HandOffs
from sharding_app.protocol.coordinator.tables import Tables
from sharding_app.protocol.ids import ShardId, ShardKey

LONGEST_REST_SECONDS = 1.0


class _Round:
    __slots__ = ("began", "chosen", "ended")

    def __init__(self) -> None:
        self.chosen: set[ShardId] = set()
        "Shards chosen since the interval began, by this round and those before it."
        self.began = 0.0
        self.ended: float | None = None

    def rests(self, now: float) -> bool:
        """Tell whether the round is over and it is too early for the next one."""
        if self.ended is None:
            self.ended = now
        return now - self.ended < min(self.ended - self.began, LONGEST_REST_SECONDS)


class Rebalancing:
    def __init__(self, tables: Tables, handoffs: HandOffs, interval_seconds: float) -> None:
        self.enabled = True
        "False: an operator has paused it."
        self._tables = tables
        self._placement = tables.placement
        self._handoffs = handoffs
        self._interval_seconds = interval_seconds
        self._began_at = float("-inf")
        self._unfinished: dict[str, _Round] = {}
        "Types to ask."

    @property
    def busy(self) -> bool:
        """Whether a round is under way, or another one is to begin soon."""
        return bool(self._unfinished)

    def loaded(self, now: float) -> None:
        self._began_at = now

    def begin(self, now: float, types: Collection[str] | None = None) -> None:
        """Ask the strategies of these types, or of all, which shards should move."""
        for name in self._placement.allocated if types is None else types:
            self._unfinished[name] = _Round()
        self._go_on(now)

    def tick(self, now: float) -> None:
        if now - self._began_at >= self._interval_seconds:
            self._began_at = now
            self.begin(now)
        elif self._unfinished:
            self._go_on(now)

    def _go_on(self, now: float) -> None:
        if not self.enabled or self._placement.all_stops:
            self._unfinished.clear()
        if not self._unfinished:
            return
        moving = _by_type(chain(self._handoffs.active, self._handoffs.queued))
        landing = {name for (name, _), start in self._tables.starting.items() if start.announce}
        for name, round_ in list(self._unfinished.items()):
            if round_.chosen and (name in moving or name in landing or round_.rests(now)):
                continue
            chosen = [
                shard
                for shard in self._placement.to_move(name, moving.get(name, set()))
                if shard not in round_.chosen
            ]
            if not chosen:
                del self._unfinished[name]
                continue
            round_.chosen.update(chosen)
            round_.began, round_.ended = now, None
            self._handoffs.begin([(name, shard) for shard in chosen], now)


def _by_type(keys: Iterable[ShardKey]) -> dict[str, set[ShardId]]:
    found: dict[str, set[ShardId]] = {}
    for name, shard in keys:
        found.setdefault(name, set()).add(shard)
    return found
