"""What an operator does with messages and timers: each is one statement on the rows.

Contract: the row decides. A delivery that is under way has locked it, or finds it changed. So
either the operator's change comes first, and the delivery stores nothing, or its effect is
committed, and the operator is told that the row was gone. A target that is in memory only stores
nothing, and may have taken a message that is discarded.

A change counts when a synchronous standby has it, whatever the role has been set to.

The owners' homes are told after the commit. They look by themselves too, within a minute.

Each row lies in one journal, so each journal is one transaction. A message to an entity in another
journal has its effect there before its row goes: one that is discarded in between has taken effect.

While a shard changes over to another journal, a row may be found in a copy, and come back from
where the move has put it. So a change counts only in the journal in which the shard lies, and only
if the shard was not closed meanwhile.
"""

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from django.db import DatabaseError, Error, connections, transaction

from sharding_app import wiring
from sharding_app.adapters.django.database import bounded_reads, journal_alias, run_query, secure_here
from sharding_app.errors import ShardingError
from sharding_app.operations.each_journal import ONE_JOURNAL, Down, JournalsDown, ask
from sharding_app.protocol.builtin_commands import DUE
from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import EntityId, ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN


class Changed(NamedTuple):
    """A row that was changed or deleted, with its owner."""

    id: str
    type: str
    entity: EntityId


class PartlyDone(DatabaseError):
    """Some journals did not answer: nothing is changed there. Or some rows are `moving`, with their
    shards, to another journal: these may be changed, or not.
    """

    def __init__(self, changed: Sequence[Changed], down: Sequence[Down], moving: int = 0) -> None:
        super().__init__(str(JournalsDown(down)))
        self.changed = tuple(changed)
        self.down = tuple(down)
        self.moving = moving


class AnswerLost(Exception):
    """The answer to a commit, or of its standby, was lost: some rows may be changed, or none."""


class _Row(NamedTuple):
    """A row that was changed or deleted in a journal."""

    changed: Changed
    type_id: int
    shard: ShardId
    outside: bool


def run_now(messages: Sequence[str], *, parked: bool, journals: Sequence[str] = ONE_JOURNAL) -> list[Changed]:
    """Let messages and timers go out at once: parked ones, or those that wait. Failures count from
    0 again. Raises PartlyDone, AnswerLost, DatabaseError or ReadTooLong.
    """
    return _change("operator_run", messages, {"parked": parked}, journals)


def discard(messages: Sequence[str], journals: Sequence[str] = ONE_JOURNAL) -> list[Changed]:
    """Delete messages and timers. Raises as `run_now`."""
    return _change("operator_discard", messages, {}, journals)


def _change(
    query: str, ids: Sequence[str], more: dict[str, object], journals: Sequence[str]
) -> list[Changed]:
    several = [*journals] != [CLUSTERS_OWN]
    closings = dict(_read("operator_closings", {})) if several else {}
    asked = ask(journals, lambda alias: _change_in(alias, query, {"ids": list(ids), **more}))
    found = [(name, row) for name, rows in asked.found.items() for row in rows]
    if several:
        found = _counting(found, closings)
    changed = [row.changed for _, row in found]
    moving = {row.changed.id for rows in asked.found.values() for row in rows} - {each.id for each in changed}
    if moving or (asked.down and len(changed) < len(ids)):
        raise PartlyDone(changed, asked.down, len(moving))
    return changed


def _counting(found: list[tuple[str, _Row]], closings: dict[int, int]) -> list[tuple[str, _Row]]:
    """Return the rows of shards that lie in the journal, and were not closed since `closings`."""
    shards = sorted({(row.type_id, row.shard) for _, row in found if not row.outside})
    wanted = {"types": [each for each, _ in shards], "shards": [each for _, each in shards]}
    places = {
        (number, shard): journal
        for number, shard, journal, closed in _read("operator_places", wanted)
        if closed == closings.get(number)
    }
    return [
        (name, row)
        for name, row in found
        if (row.outside and name == CLUSTERS_OWN) or places.get((row.type_id, row.shard)) == name
    ]


def _read(query: str, params: Mapping[str, object]) -> list[tuple[Any, ...]]:
    alias = journal_alias()
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        return run_query(cursor, query, params)


def _change_in(alias: str, query: str, params: dict[str, object]) -> list[_Row]:
    connection = connections[alias]
    is_left_to_commit = False
    try:
        with bounded_reads(alias):
            with connection.cursor() as cursor:
                found = [_Row(Changed(*row[:3]), *row[3:]) for row in run_query(cursor, query, params)]
            transaction.on_commit(partial(tell, [row.changed for row in found]), using=alias, robust=True)
            is_left_to_commit = True
        if found:
            secure_here(alias)
    except Error as error:
        if is_left_to_commit:
            raise AnswerLost(*error.args) from error
        raise
    return found


def tell(changed: Sequence[Changed]) -> None:
    """Tell the homes of the owners that rows were changed."""
    portal = wiring.portal()
    for each in changed:
        with contextlib.suppress(ShardingError):
            portal.tell(Call(each.type, each.entity, DUE, each.id.encode(), tell=True))
