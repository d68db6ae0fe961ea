"""Rounds of rebalancing: the strategy is asked at intervals, and again some time after what it chose has moved.

Contract: a round begins when nothing of the former one moves any more, and all has rested for as long as that one took:
moving costs everybody time, and what is asked for meanwhile comes first. In rounds that follow each other a shard is
chosen once, so that they come to an end whatever the strategy says; the next interval begins anew.
"""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import TYPE_CHECKING

from sharding_app.core.ids import ShardId, ShardKey

if TYPE_CHECKING:
    from sharding_app.core.coordinator import Coordinator

LONGEST_REST_SECONDS = 1.0


class _Round:
    __slots__ = ("began", "chosen", "ended")

    def __init__(self) -> None:
        self.chosen: set[ShardId] = set()
        "Since the interval began, by this round and those before it."
        self.began = 0.0
        self.ended: float | None = None

    def rests(self, now: float) -> bool:
        """It is over, and it is too early for the next one."""
        if self.ended is None:
            self.ended = now
        return now - self.ended < min(self.ended - self.began, LONGEST_REST_SECONDS)


class Rounds:
    """A part of the coordinator."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self.enabled = True
        "False: an operator has paused it."
        self._coordinator = coordinator
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
        for name in self._coordinator.placement.allocated if types is None else types:
            self._unfinished[name] = _Round()
        self._go_on(now)

    def tick(self, now: float) -> None:
        if now - self._began_at >= self._coordinator.settings.rebalance_interval_seconds:
            self._began_at = now
            self.begin(now)
        elif self._unfinished:
            self._go_on(now)

    def _go_on(self, now: float) -> None:
        if not self.enabled or self._coordinator.placement.all_stops:
            self._unfinished.clear()
        if not self._unfinished:
            return
        handoffs, placement = self._coordinator.handoffs, self._coordinator.placement
        moving = _by_type(chain(handoffs.active, handoffs.queued))
        landing = {name for (name, _), start in self._coordinator.starting.items() if start.announce}
        for name, round_ in list(self._unfinished.items()):
            if round_.chosen and (name in moving or name in landing or round_.rests(now)):
                continue
            chosen = [
                shard
                for shard in placement.to_move(name, moving.get(name, set()))
                if shard not in round_.chosen
            ]
            if not chosen:
                del self._unfinished[name]
                continue
            round_.chosen.update(chosen)
            round_.began, round_.ended = now, None
            handoffs.begin([(name, shard) for shard in chosen], now)


def _by_type(keys: Iterable[ShardKey]) -> dict[str, set[ShardId]]:
    found: dict[str, set[ShardId]] = {}
    for name, shard in keys:
        found.setdefault(name, set()).add(shard)
    return found
