"""Commits wake the workers of projections: the home that has committed events of a followed type
tells the workers of their parts.

Contract: at most one wake-up is under way for each part, and the next one follows after a pause, in
which commits are joined. The first after a quiet time is sent at once. A wake-up that is lost costs
the worker's poll. A type that no projection follows pays nothing: its commits do not come here.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.projections import ProjectionType
from sharding_app.entities.registry import registry
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import EntityId
from sharding_app.protocol.projection.slices import part_of, slice_of
from sharding_app.runtime.journal.commits import OnCommit
from sharding_app.runtime.projections.worker import workers_of

Ask = Callable[[Call], "asyncio.Future[bytes]"]
WAKE_SECONDS = 2.0
PAUSE_SECONDS = 0.01
"""Between the answer of a part's worker and its next wake-up. Without it, a stream of commits asks
a worker as fast as it answers, which costs a call for each of a few commits.
"""


class Waking:
    """The wake-ups of one node."""

    def __init__(self, projections: Iterable[ProjectionType], ask: Ask, on_commit: OnCommit) -> None:
        self._projections = list(projections)
        self._ask = ask
        self._on_commit = on_commit
        self._followers: dict[int, list[_Follower]] = {}
        "By the number of the type."
        self._by_name: dict[str, _Follower] = {}

    def host(self, entity_type: EntityType, type_id: int) -> None:
        """Take in that this node hosts a type."""
        for each in self._projections:
            if entity_type.name not in {source.name for source in each.sources}:
                continue
            if not self._followers:
                self._on_commit.append(self._committed)
            follower = self._by_name.setdefault(each.name, _Follower(each, self._ask))
            self._followers.setdefault(type_id, []).append(follower)

    def _committed(self, rows: Sequence[EventRow]) -> None:
        for row in rows:
            for each in self._followers.get(row.type_id, ()):
                each.wake(row.entity)


class _Follower:
    """A projection, and the wake-ups of its parts."""

    def __init__(self, projection: ProjectionType, ask: Ask) -> None:
        self._type = workers_of(projection)
        self._parts = projection.parts
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._busy: set[int] = set()
        "Parts whose worker has not answered yet, or has answered just now."
        self._due: set[int] = set()
        "Parts that have to be woken once they are not busy."

    def wake(self, entity: EntityId) -> None:
        if len(self._due) == self._parts:
            return
        part = part_of(slice_of(entity), self._parts)
        if part in self._busy:
            self._due.add(part)
        else:
            self._send(part)

    def _send(self, part: int) -> None:
        self._due.discard(part)
        self._busy.add(part)
        handler = registry.get(self._type).handler("wake")
        asked = self._ask(Call(self._type, str(part), "wake", handler.encode((), {}), timeout=WAKE_SECONDS))
        asked.add_done_callback(lambda future: self._answered(part, future))

    def _answered(self, part: int, future: "asyncio.Future[bytes]") -> None:
        if future.cancelled():
            self._busy.discard(part)
            return
        self._loop.call_later(PAUSE_SECONDS, self._rested, part)
        if future.exception() is None:
            parts = registry.get(self._type).handler("wake").decode_result(future.result())
            if parts and parts != self._parts:
                # Their number was changed, so what was committed may be another worker's.
                self._parts = parts
                self._due = set(range(parts))
        elif part > 0:
            # There may be fewer by now: the first one tells how many.
            self._due.add(0)
        for each in sorted(self._due - self._busy):
            self._send(each)

    def _rested(self, part: int) -> None:
        self._busy.discard(part)
        if part in self._due:
            self._send(part)
