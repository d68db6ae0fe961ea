"""Append events together with messages and timers: one call of a function of the server."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from sharding_app.adapters.postgres.appending import UNWRITABLE, Connection, copy_events_within
from sharding_app.adapters.postgres.arrays import (
    Array,
    Bigints,
    Binaries,
    Booleans,
    Documents,
    Doubles,
    Integers,
    Texts,
    Times,
    register_arrays,
)
from sharding_app.adapters.postgres.errors import explain, verdict
from sharding_app.ports.deliveries import MessageChanges, Pending, Taking
from sharding_app.ports.journal import EventRow, JournalUnavailable, RowRefused

_EVENT = (
    Integers,
    Texts,
    Bigints,
    Integers,
    Bigints,
    Texts,
    Integers,
    Documents,
    Texts,
    Texts,
    Binaries,
    Booleans,
)
_KEY = (Integers, Texts, Texts)
_MESSAGE = (
    Texts, Integers, Integers, Texts, Bigints, Bigints, Integers, Texts, Texts, Texts, Binaries, Times, Doubles,
    Texts, Texts, Texts, Texts,
)  # fmt: skip
_TAKES = 6
_PARAMETERS = len(_EVENT) + _TAKES + len(_KEY) + len(_MESSAGE) + 1
APPEND = b"SELECT sharding_append_v1(" + b", ".join([b"%b"] * _PARAMETERS) + b")"


def append_parameters(
    rows: Sequence[EventRow], changes: MessageChanges, *, repeated: bool = False
) -> list[Array | bool]:
    """Return the parameters of `APPEND`. Raises RowRefused for a value that no column holds."""
    takes = changes.takes
    again = [(each.id, *each.again) for each in takes if each.again is not None]
    keys = [*changes.cancels, *(row.timer for row in changes.sends if row.timer is not None)]
    try:
        return [
            *_columns(_EVENT, rows),
            Texts([each.id for each in takes]),
            Texts([each.id for each in takes if each.resumed]),
            Texts([each.id for each in takes if each.park]),
            *_columns((Texts, Texts, Times), again),
            *_columns(_KEY, keys),
            *_columns(_MESSAGE, changes.sends),
            repeated,
        ]
    except UNWRITABLE as error:
        raise RowRefused(f"{type(error).__name__}: {error}", 0 if len(rows) == 1 else None) from error


async def append_with_messages(
    connection: Connection, rows: Sequence[EventRow], changes: MessageChanges, *, repeated: bool = False
) -> datetime:
    """Append all or nothing, as one statement that commits itself, and return the server's time.
    Raises RowRefused or psycopg's errors.
    """
    parameters = append_parameters(rows, changes, repeated=repeated)
    cursor = await connection.execute(APPEND, parameters, prepare=True, binary=True)
    found = await cursor.fetchone()
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise psycopg.OperationalError("the append was not committed: it stands in an open transaction")
    return _time(found)


def append_within(
    cursor: psycopg.Cursor[tuple[Any, ...]], rows: Sequence[EventRow], changes: MessageChanges | None = None
) -> datetime | None:
    """Append in the user's open transaction, as its last statement. Raises the server's verdict as
    the journal's errors.
    """
    try:
        if not changes:
            copy_events_within(cursor, rows)
            return None
        # The user's cursor may write parameters into the statement's text: these are binary.
        with psycopg.Cursor(cursor.connection) as own:
            register_arrays(own.adapters)
            own.execute(APPEND, append_parameters(rows, changes), binary=True)
            return _time(own.fetchone())
    except psycopg.Error as error:
        raise verdict(error) or JournalUnavailable(explain(error)) from error


def _columns(kinds: Sequence[type[Array]], rows: Sequence[Sequence[Any]]) -> list[Array]:
    if not rows:
        return [kind(()) for kind in kinds]
    return [kind(values) for kind, values in zip(kinds, zip(*rows, strict=True), strict=True)]


def _time(found: tuple[Any, ...] | None) -> datetime:
    if found is None:
        raise psycopg.OperationalError("the server did not say when it has appended")
    return in_utc(found[0])


def in_utc(time: datetime) -> datetime:
    """Return a time of the server's, whatever the time zone of the session."""
    return time.astimezone(UTC)


def pending(row: tuple[Any, ...]) -> Pending:
    """Return a row of `due`."""
    found = Pending(*row)
    return found._replace(due=in_utc(found.due), occasion=found.occasion and in_utc(found.occasion))


def discard_parameters(takes: Sequence[Taking]) -> dict[str, Any]:
    again = [(each.id, *each.again) for each in takes if each.again is not None]
    replies = [(each.id, each.reply) for each in takes if each.reply is not None]
    rows = [row for _, row in replies]
    return {
        "taken": [each.id for each in takes],
        "repeating": [each[0] for each in again],
        "repeats": [each[1] for each in again],
        "dues": [each[2] for each in again],
        "answered": [answered for answered, _ in replies],
        "ids": [row.id for row in rows],
        "types": [row.type_id for row in rows],
        "shards": [row.shard for row in rows],
        "entities": [row.entity for row in rows],
        "epochs": [row.epoch for row in rows],
        "seqs": [row.seq for row in rows],
        "positions": [row.position for row in rows],
        "target_types": [row.target_type for row in rows],
        "targets": [row.target for row in rows],
        "commands": [row.command for row in rows],
        "arguments": [row.args for row in rows],
        "replies_to": [row.reply_to for row in rows],
        "on_failures": [row.on_failure for row in rows],
    }
