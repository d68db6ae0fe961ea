"""A server that answers with errors: whom they concern, and the rows that it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sharding_app.ports.journal import EventRow, RowRefused
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.messages import NoHome
from sharding_app.runtime.asking.regions import RegionClient
from sharding_app.runtime.journal.appender import RETRY_SECONDS, Appender
from sharding_app.runtime.journal.commits import NotCommitted
from sharding_app.runtime.journal.locked import LockedShards
from sharding_app.runtime.journal.stuck import Stuck
from tests.simulation.mistakes.mistake import Mistake, async_nothing


def _refuses_all(real: Any) -> Any:
    async def isolate(self: Appender, batch: list[Any], refused: RowRefused) -> None:
        self._fail(batch, batch, NotCommitted.REFUSED, refused.reason)

    return isolate


def _never_gives_in(real: Any) -> Any:
    async def gave_in(self: Appender, lasted: float) -> bool:
        await asyncio.sleep(RETRY_SECONDS)
        return False

    return gave_in


def _takes_and_forgets(real: Any) -> Any:
    def take(self: Stuck[Any], busy: Any) -> list[Any]:
        real(self, busy)
        return []

    return take


def _takes_it_for_done(real: Any) -> Any:
    async def settle(self: Appender, rows: Sequence[EventRow]) -> bool:
        await real(self, rows)
        return True

    return settle


def _obeys_late_words(real: Any) -> Any:
    def not_there(self: RegionClient, message: NoHome) -> list[ShardId]:
        return message.shards

    return not_there


REFUSING: dict[str, Mistake] = {
    "one_refused_row_fails_all": Mistake((8,), Appender, "_isolate", _refuses_all),
    "one_closed_entity_holds_up_all": Mistake((10,), Appender, "_gave_in", _never_gives_in),
    "late_refusals_are_obeyed": Mistake((8,), RegionClient, "_not_there", _obeys_late_words),
    "stuck_commits_are_forgotten": Mistake((8, 10), Stuck, "take", _takes_and_forgets),
    "an_error_is_taken_for_done": Mistake((3, 4), Appender, "_settle", _takes_it_for_done),
    "locked_shards_are_never_free": Mistake((8, 10), LockedShards, "_look", lambda _: async_nothing),
}
