"""Projections in a test with the cluster in memory: who waits for one runs its handlers.

Contract: `caught_up()` feeds all events that are new to the projection to its handlers, in this
test's own transaction, and its erasures. So the rows are there when it returns, and change at no
other moment. An error of a handler is raised to the test: the rows of its batch are taken back, and
the batch comes again.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from asgiref.sync import sync_to_async

from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.projections import ProjectionType, projections
from sharding_app.errors import AskTimeout, InvalidCall
from sharding_app.protocol.projection.requests import StoredEvent
from sharding_app.testing.projection import carry_out, in_transaction
from sharding_app.testing.thread import ClusterThread

LOOK_SECONDS = 0.01
"""Between two looks at an event that is not stored yet."""

Key = tuple[int, str]


class _Journal(NamedTuple):
    """The journals of a projection's sources, at one moment."""

    types: dict[int, EntityType]
    rows: dict[Key, dict[int, Committed]]
    now: float
    date: datetime

    def stored(self, key: Key, number: int) -> StoredEvent:
        row, at = self.rows[key][number]
        date = self.date - timedelta(seconds=self.now - at)
        return StoredEvent(*key, number, row.name, row.version, row.payload, date)


class MemoryControl:
    """`entities.projections.Control` of the cluster of one test."""

    def __init__(self, cluster: ClusterThread) -> None:
        self._cluster = cluster
        self._fed: dict[str, dict[Key, tuple[int, Committed]]] = {}
        "The last event of each entity that a projection has handled."

    async def caught_up(
        self, projection: ProjectionType, type_name: str, entity: str, number: int | None, timeout: float
    ) -> None:
        await sync_to_async(self.caught_up_sync)(projection, type_name, entity, number, timeout)

    def caught_up_sync(
        self, projection: ProjectionType, type_name: str, entity: str, number: int | None, timeout: float
    ) -> None:
        begun = time.monotonic()
        while True:
            journal = self._journal(projection)
            self._feed(projection, journal)
            type_ids = [key for key, each in journal.types.items() if each.name == type_name]
            if not type_ids:
                raise InvalidCall(
                    f"the cluster of this test does not know {type_name!r}: declare it before the first call of the test"
                )
            seen, _ = self._fed[projection.name].get((type_ids[0], entity), (0, None))
            if number is None or seen >= number:
                return
            if time.monotonic() - begun >= timeout:
                raise AskTimeout(f"event {number} of {entity!r} was not stored within {timeout:g} s")
            time.sleep(LOOK_SECONDS)

    def live_version(self, title: str) -> int | None:
        return max((each.version for each in projections.all().values() if each.title == title), default=None)

    async def alive_version(self, title: str) -> int | None:
        return self.live_version(title)

    def reset(self, projection: ProjectionType) -> None:
        with in_transaction(projection):
            carry_out(projection.cls().clear)
        self._fed.pop(projection.name, None)

    def _journal(self, projection: ProjectionType) -> _Journal:
        memory = self._cluster.cluster

        async def read() -> _Journal:
            server = memory.server
            numbers = {
                server.cluster.type_ids[each.name]: each
                for each in projection.sources
                if each.name in server.cluster.type_ids
            }
            rows = {key: dict(found) for key, found in server.journal.events.items() if key[0] in numbers}
            return _Journal(numbers, rows, server.now(), server.date())

        return asyncio.run_coroutine_threadsafe(read(), memory.loop).result()

    def _feed(self, projection: ProjectionType, journal: _Journal) -> None:
        fed = self._fed.setdefault(projection.name, {})
        instance = projection.cls()
        for key, (number, last) in list(fed.items()):
            if _is_erased(journal.rows.get(key, {}), number, last):
                erased = projection.erased(journal.types[key[0]], key[1])
                if erased is not None:
                    with in_transaction(projection):
                        carry_out(getattr(instance, erased.method), erased.argument)
                del fed[key]
        found = [
            (each.at, key, number)
            for key, rows in journal.rows.items()
            for number, each in sorted(rows.items())
            if number > fed.get(key, (0, None))[0]
        ]
        # Numbers of one entity are in their order: those that were stored later have later times.
        found.sort(key=lambda each: each[0])
        for place in range(0, len(found), projection.batch_size):
            batch = found[place : place + projection.batch_size]
            events = [journal.stored(key, number) for _, key, number in batch]
            with in_transaction(projection):
                for call in projection.calls(events, journal.types):
                    carry_out(getattr(instance, call.method), call.argument)
            fed.update({key: (number, journal.rows[key][number]) for _, key, number in batch})


def _is_erased(rows: Mapping[int, Committed], number: int, last: Committed) -> bool:
    """Whether an entity was erased since an event: it has none, or others of these numbers."""
    if number in rows:
        return rows[number] is not last
    return not rows or min(rows) <= number  # otherwise a snapshot stands for it
