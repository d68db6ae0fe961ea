"""Deletes events that a type need not keep: behind each new snapshot, and, since many entities are
never called again, on a way along all snapshots of the type.

Contract: the statement that deletes decides which events may go, however late it executes: only
those that a kept snapshot covers and that all projections have passed, oldest first, and never the
newest one. So no fence is needed, and two nodes on the same way do no harm. The oldest node that
hosts the type goes alone, a page at a time, with a pause after each. It leaves out entities that do
not lie in the journal: a move compares the copy that it makes of them with its source.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from sharding_app.entities.entity_type import EntityType
from sharding_app.ports.journal import TRIM_LIMIT, Journal, JournalUnavailable, RowRefused
from sharding_app.ports.store import ClusterStore, StoreUnavailable
from sharding_app.protocol.ids import Incarnation

logger = logging.getLogger("sharding.journal")

PAGE_SNAPSHOTS = 200
"""Snapshots that one turn looks at."""
TURN_EVENTS = 2 * TRIM_LIMIT
"""Events after which a turn ends, once an entity is done."""
TURN_SECONDS = 1.0
"""Pause between two turns."""
DAY_SECONDS = 86_400.0
ALL = 2**63 - 1


class Retention:
    def __init__(
        self, entity_type: EntityType, type_id: int, journal: Journal, command_window_seconds: float
    ) -> None:
        settings = entity_type.settings
        self.counters: Counter[str] = Counter()
        self.lying: Callable[[], Awaitable[Callable[[str], bool]]] | None = None
        """Returns which entities lie in this journal, if there are others. Raises
        StoreUnavailable."""
        # An id is remembered for one window, and a retry may have been under way for another.
        self.window_seconds = 2 * command_window_seconds
        self.deletes = entity_type.kind == "event_sourced" and bool(settings.delete_events)
        self._seconds = max(self.window_seconds, (settings.keep_events_days or 0) * DAY_SECONDS)
        self._events = settings.keep_events or 1
        self._snapshots = settings.keep_snapshots or 1
        self._name = entity_type.name
        self._type_id = type_id
        self._journal = journal
        self._after = ""
        "The last entity that has been looked at."

    async def behind(self, entity: str, number: int) -> int:
        """Delete snapshots that are too many, and events behind a number, where the type deletes
        them; return the number of events. A piece at a time, so that others get their turn on the
        connection. Rows that the server does not give up stay. Raises JournalUnavailable.
        """
        before, count = number if self.deletes else 0, 0
        while True:
            try:
                gone = await self._journal.trim(
                    self._type_id, entity, before, self._snapshots, self._seconds, keep_events=self._events
                )
            except RowRefused as refused:
                # A table of the user's may refer to them, for example.
                logger.warning(
                    "old events of an entity of %s are not deleted: %s", self._name, refused.reason,
                    extra={"action": "trim_refused", "entity_type": self._name},
                )  # fmt: skip
                return count
            self.counters["events_trimmed"] += gone
            count += gone
            if gone < TRIM_LIMIT:
                return count

    async def run(self, store: ClusterStore, me: Incarnation, interval_seconds: float) -> None:
        """Go along all snapshots of the type again and again."""
        pause = interval_seconds
        while True:
            await asyncio.sleep(pause)
            try:
                if self._after or await self._is_mine(store, me):
                    await self.turn()
                pause = TURN_SECONDS if self._after else interval_seconds
            except (JournalUnavailable, StoreUnavailable):
                pause = interval_seconds

    async def _is_mine(self, store: ClusterStore, me: Incarnation) -> bool:
        _, members = await store.members()
        hosts = (each.incarnation for each in members if each.locks and self._name in each.types)
        return next(hosts, None) == me

    async def turn(self) -> None:
        """Look at a page of snapshots, and delete events of their entities. Raises
        JournalUnavailable, StoreUnavailable.
        """
        page = await self._journal.trimmable(
            self._type_id, self._after, self._seconds, self._events, PAGE_SNAPSHOTS
        )
        lies_here = None if self.lying is None or not page.entities else await self.lying()
        count = 0
        for entity in page.entities:
            if lies_here is not None and not lies_here(entity):
                continue
            self._after = entity  # one that fails holds up no others
            count += await self.behind(entity, ALL)
            if count >= TURN_EVENTS:
                return
        self._after = page.last
        if not page.last:
            self.counters["retention_rounds"] += 1
