"""Commits wake the workers of projections: the home that has committed events of a followed type
tells the workers of their parts.

Contract: at most one wake-up is under way for each part, however many commits there are; one more
follows if something was committed in between. A wake-up that is lost costs the worker's poll. A
type that no projection follows pays nothing: its commits do not come here.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.projections import ProjectionType
from sharding_app.entities.registry import registry
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.call import Call
from sharding_app.protocol.projection.slices import part_of, slice_of
from sharding_app.runtime.journal.commits import OnCommit
from sharding_app.runtime.projections.worker import workers_of

Ask = Callable[[Call], "asyncio.Future[bytes]"]
WAKE_SECONDS = 2.0


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
                each.wake(slice_of(row.entity))


class _Follower:
    """A projection, and the wake-ups of its parts."""

    def __init__(self, projection: ProjectionType, ask: Ask) -> None:
        self._type = workers_of(projection)
        self._parts = projection.parts
        self._ask = ask
        self._under_way: set[int] = set()
        self._again: set[int] = set()

    def wake(self, slice_: int) -> None:
        part = part_of(slice_, self._parts)
        if part in self._under_way:
            self._again.add(part)
        else:
            self._send(part)

    def _send(self, part: int) -> None:
        self._under_way.add(part)
        handler = registry.get(self._type).handler("wake")
        asked = self._ask(Call(self._type, str(part), "wake", handler.encode((), {}), timeout=WAKE_SECONDS))
        asked.add_done_callback(lambda future: self._answered(part, future))

    def _answered(self, part: int, future: "asyncio.Future[bytes]") -> None:
        self._under_way.discard(part)
        if future.cancelled():
            return
        if future.exception() is None:
            parts = registry.get(self._type).handler("wake").decode_result(future.result())
            if parts and parts != self._parts:
                # Their number was changed, so what was committed may be another worker's.
                self._parts = parts
                self._again.update(range(parts))
        elif part > 0:
            # There may be fewer by now: the first one tells how many.
            self._again.add(0)
        again, self._again = self._again, set()
        for each in again:
            if each not in self._under_way:
                self._send(each)
            else:
                self._again.add(each)
