"""Retries and reports of entities that cannot be recovered, or whose constructor raises.

Contract: a caller of such an entity gets the error at once. After the first failure the next
message tries again. After each further one in a row messages are refused with the error of the last
attempt, without a read, until a growing back-off is over. An entity that runs without a message
(remembered, or a singleton) is tried again by itself while its shard is here. One success forgets
all failures.
"""

import asyncio
from collections.abc import Callable, Iterator

from sharding_app.errors import ShardingError
from sharding_app.protocol.messages import FailedStart
from sharding_app.protocol.supervision import Supervision
from sharding_app.runtime.journal.commits import Resident, ResidentShard

MAX_KEPT = 1000
"""Limit for entities that only messages start. Others beyond it are forgotten, and read again."""
REPORTED = 20
SHORTEST_SECONDS = 0.1
"""Shortest delay before an entity is tried again by itself."""


class _Failed:
    __slots__ = ("attempts", "error", "failure", "retry_at", "runs", "shard", "since", "timer")

    def __init__(self, shard: ResidentShard, now: float) -> None:
        self.shard = shard
        self.attempts = 0
        self.runs = False
        "Of a worker: it runs again, and is not forgiven yet."
        self.error = ""
        self.failure: ShardingError | None = None
        self.retry_at = self.since = now
        self.timer: asyncio.TimerHandle | None = None


class FailedStarts:
    def __init__(
        self,
        supervision: Supervision,
        now: Callable[[], float],
        start: Callable[[ResidentShard, str], None],
        *,
        runs_again: bool,
    ) -> None:
        """`start` starts an entity without a message, if its shard is still here."""
        self.runs_again = runs_again
        self._supervision = supervision
        self._now = now
        self._start = start
        self._failed: dict[str, _Failed] = {}
        self._of: dict[ResidentShard, dict[str, None]] = {}
        """Of each shard, those of its entities: a node may give up many shards at once, with many
        such entities."""

    def __bool__(self) -> bool:
        return bool(self._failed)

    def failed(self, slot: Resident, error: BaseException, failure: ShardingError) -> None:
        """Record a failed attempt. `failure` is the error for callers."""
        now = self._now()
        known = self._remove(slot.id)
        if known is None or known.shard is not slot.shard or self._is_over(known, now):
            self._forgotten(known)
            known = _Failed(slot.shard, now)
        self._failed[slot.id] = known
        self._of.setdefault(slot.shard, {})[slot.id] = None
        known.attempts += 1
        known.runs = False
        known.error, known.failure = type(error).__qualname__, failure
        delay = self._supervision.delay(known.attempts)
        if self.runs_again:
            delay = max(delay, SHORTEST_SECONDS)
            if known.timer is not None:
                known.timer.cancel()
            known.timer = asyncio.get_running_loop().call_later(delay, self._again, slot.shard, slot.id)
        elif len(self._failed) > MAX_KEPT:
            self._remove(next(iter(self._failed)))
        known.retry_at = now + delay

    def refusal(self, slot: Resident) -> ShardingError | None:
        """Return the error for a message that comes before the next attempt is due, else None."""
        known = self._failed.get(slot.id)
        if known is None or known.shard is not slot.shard or self._now() >= known.retry_at:
            return None
        return known.failure if known.attempts > 1 else None

    def forget(self, entity: str) -> None:
        """Forget an entity that has started or is erased."""
        self._forgotten(self._remove(entity))

    def runs(self, entity: str) -> None:
        """Note that a worker runs. Its failures are not forgotten yet: `run` may fail again."""
        known = self._failed.get(entity)
        if known is not None:
            known.runs = True

    def left(self, shard: ResidentShard) -> None:
        """Forget the entities of a shard that has left. Its next home tries them."""
        for entity in self.of(shard):
            self.forget(entity)

    def of(self, shard: ResidentShard) -> list[str]:
        """Return the entities of a shard that are to be tried again."""
        return list(self._of.get(shard, ()))

    def report(self) -> tuple[int, list[FailedStart]]:
        """Return the number of entities that cannot start, and details of some."""
        now = self._now()
        for entity in [entity for entity, known in self._failed.items() if self._is_over(known, now)]:
            self.forget(entity)
        failed = {entity: known for entity, known in self._failed.items() if not known.runs}
        return len(failed), list(self._some(failed, now))

    def _some(self, failed: dict[str, _Failed], now: float) -> Iterator[FailedStart]:
        for entity, known in list(failed.items())[:REPORTED]:
            yield FailedStart(
                entity,
                known.shard.number,
                known.error,
                known.attempts,
                max(0.0, now - known.since),
                max(0.0, known.retry_at - now) if self.runs_again else -1.0,
            )

    def _is_over(self, known: _Failed, now: float) -> bool:
        """Whether an entity that only messages start has been left alone for long."""
        return not self.runs_again and now - known.retry_at > self._supervision.forgive_after_seconds

    def _again(self, shard: ResidentShard, entity: str) -> None:
        known = self._failed.get(entity)
        if known is not None and known.shard is shard:
            known.timer = None
            self._start(shard, entity)

    def _remove(self, entity: str) -> _Failed | None:
        known = self._failed.pop(entity, None)
        if known is not None:
            of_shard = self._of[known.shard]
            del of_shard[entity]
            if not of_shard:
                del self._of[known.shard]
        return known

    @staticmethod
    def _forgotten(known: _Failed | None) -> None:
        if known is not None and known.timer is not None:
            known.timer.cancel()
