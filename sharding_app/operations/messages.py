"""What an operator does with messages and timers: each is one statement on the rows.

Contract: the row decides. A delivery that is under way has locked it, or finds it changed. So
either the operator's change comes first, and the delivery stores nothing, or its effect is
committed, and the operator is told that the row was gone. A target that is in memory only stores
nothing, and may have taken a message that is discarded.

The owners' homes are told after the commit. They look by themselves too, within a minute.

Each row lies in one journal, so each journal is one transaction. A message to an entity in another
journal has its effect there before its row goes: one that is discarded in between has taken effect.
"""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from django.db import DatabaseError, connections, transaction

from sharding_app import wiring
from sharding_app.adapters.django.database import bounded_reads, run_query
from sharding_app.errors import ShardingError
from sharding_app.operations.each_journal import ONE_JOURNAL, Down, JournalsDown, ask
from sharding_app.protocol.builtin_commands import DUE
from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import EntityId


class Changed(NamedTuple):
    """A row that was changed or deleted, with its owner."""

    id: str
    type: str
    entity: EntityId


class PartlyDone(DatabaseError):
    """Some journals did not answer: nothing is changed there."""

    def __init__(self, changed: Sequence[Changed], down: Sequence[Down]) -> None:
        super().__init__(str(JournalsDown(down)))
        self.changed = tuple(changed)
        self.down = tuple(down)


def run_now(messages: Sequence[str], *, parked: bool, journals: Sequence[str] = ONE_JOURNAL) -> list[Changed]:
    """Let messages and timers go out at once: parked ones, or those that wait. Failures count from
    0 again. Raises PartlyDone, DatabaseError or ReadTooLong.
    """
    return _change("operator_run", messages, {"parked": parked}, journals)


def discard(messages: Sequence[str], journals: Sequence[str] = ONE_JOURNAL) -> list[Changed]:
    """Delete messages and timers. Raises as `run_now`."""
    return _change("operator_discard", messages, {}, journals)


def _change(
    query: str, ids: Sequence[str], more: dict[str, object], journals: Sequence[str]
) -> list[Changed]:
    asked = ask(journals, lambda alias: _change_in(alias, query, {"ids": list(ids), **more}))
    # A copy that a move has made is changed with its message, whichever of the two is in force.
    changed = [*{each.id: each for some in asked.found.values() for each in some}.values()]
    if asked.down and len(changed) < len(ids):
        raise PartlyDone(changed, asked.down)
    return changed


def _change_in(alias: str, query: str, params: dict[str, object]) -> list[Changed]:
    with bounded_reads(alias):
        with connections[alias].cursor() as cursor:
            found = [Changed(*row) for row in run_query(cursor, query, params)]
        transaction.on_commit(partial(tell, found), using=alias, robust=True)
    return found


def tell(changed: Sequence[Changed]) -> None:
    """Tell the homes of the owners that rows were changed."""
    portal = wiring.portal()
    for each in changed:
        with contextlib.suppress(ShardingError):
            portal.tell(Call(each.type, each.entity, DUE, each.id.encode(), tell=True))
