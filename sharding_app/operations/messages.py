"""What an operator does with messages and timers: each is one statement on the rows.

Contract: the row decides. A delivery that is under way has locked it, or finds it changed. So
either the operator's change comes first, and the delivery stores nothing, or its effect is
committed, and the operator is told that the row was gone. A target that is in memory only stores
nothing, and may have taken a message that is discarded.

The owners' homes are told after the commit. They look by themselves too, within a minute.
"""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from django.db import connections, transaction

from sharding_app import wiring
from sharding_app.adapters.django.database import bounded_reads, journal_alias, run_query
from sharding_app.errors import ShardingError
from sharding_app.protocol.builtin_commands import DUE
from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import EntityId


class Changed(NamedTuple):
    """A row that was changed or deleted, with its owner."""

    id: str
    type: str
    entity: EntityId


def run_now(messages: Sequence[str], *, parked: bool) -> list[Changed]:
    """Let messages and timers go out at once: parked ones, or those that wait. Failures count from
    0 again. Raises DatabaseError or ReadTooLong.
    """
    return _change("operator_run", {"ids": list(messages), "parked": parked})


def discard(messages: Sequence[str]) -> list[Changed]:
    """Delete messages and timers. Raises as `run_now`."""
    return _change("operator_discard", {"ids": list(messages)})


def _change(query: str, params: dict[str, object]) -> list[Changed]:
    alias = journal_alias()
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
