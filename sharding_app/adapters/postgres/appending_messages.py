"""Append events together with messages and timers: one call of a function of the server.

As appends of events alone (`appending`), it is one generator on psycopg's libpq: by way of a cursor
each of its 39 parameters is looked up and adapted anew, however many rows there are.
"""

import struct
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import generators
from psycopg.postgres import types
from psycopg.pq import ExecStatus, Format, TransactionStatus

from sharding_app.adapters.postgres.appending import (
    UNWRITABLE,
    Connection,
    Steps,
    check,
    copy_events_within,
)
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
from sharding_app.ports.deliveries import Claim, MessageChanges, Pending, Taking
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
_AGAIN = (Texts, Texts, Times)
_PARAMETERS = [
    each.oid for each in (*_EVENT, Texts, Texts, Texts, *_AGAIN, *_KEY, *_MESSAGE)
] + [types["bool"].oid, Bigints.oid]  # fmt: skip
APPEND = b"SELECT sharding_append_v1(" + b", ".join([b"%b"] * len(_PARAMETERS)) + b")"
_PREPARED = (
    b"SELECT sharding_append_v1("
    + b", ".join(b"$%d" % (place + 1) for place in range(len(_PARAMETERS)))
    + b")"
)
_NAME = b"sharding_append_messages"
_MARK = (Texts, Integers, Integers, Bigints, Texts, Texts, Booleans)
_MARKED_PARAMETERS = [each.oid for each in (*_MARK, Texts)] + _PARAMETERS
APPEND_MARKED = b"SELECT sharding_append_marked_v1(" + b", ".join([b"%b"] * len(_MARKED_PARAMETERS)) + b")"
_PREPARED_MARKED = (
    b"SELECT sharding_append_marked_v1("
    + b", ".join(b"$%d" % (place + 1) for place in range(len(_MARKED_PARAMETERS)))
    + b")"
)
_NAME_MARKED = b"sharding_append_marked"
_BINARY = [Format.BINARY] * len(_PARAMETERS)
_BINARY_MARKED = [Format.BINARY] * len(_MARKED_PARAMETERS)
_BOOLS = {False: b"\0", True: b"\1"}
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_microseconds = struct.Struct("!q").unpack


def append_parameters(
    rows: Sequence[EventRow],
    changes: MessageChanges,
    *,
    repeated: bool = False,
    claim: Claim | None = None,
) -> list[Array | bool]:
    """Return the parameters of `APPEND`, or of `APPEND_MARKED` if it takes foreign rows. Raises
    RowRefused for a value that no column holds.
    """
    takes = changes.takes
    foreign = [each for each in takes if each.foreign is not None]
    if foreign:
        takes = [each for each in takes if each.foreign is None]
    again = [(each.id, *each.again) for each in takes if each.again is not None and not each.park]
    keys = [*changes.cancels]
    keys += [(row.type_id, row.entity, row.key) for row in changes.sends if row.key is not None]
    try:
        return [
            *(_marks(foreign) if foreign else ()),
            *_columns(_EVENT, rows),
            Texts([each.id for each in takes]),
            Texts([each.id for each in takes if each.resumed]),
            Texts([each.id for each in takes if each.park]),
            *_columns(_AGAIN, again),
            *_columns(_KEY, keys),
            *_columns(_MESSAGE, changes.sends),
            repeated,
            Bigints(claim or ()),
        ]
    except UNWRITABLE as error:
        raise RowRefused(f"{type(error).__name__}: {error}", 0 if len(rows) == 1 else None) from error


def _marks(foreign: Sequence[Taking]) -> list[Array]:
    """Return the marks of foreign rows: the first parameters of `APPEND_MARKED`."""
    rows = []
    for each in foreign:
        if each.taker is None:
            raise ValueError(f"the foreign message {each.id!r} names no entity that takes it")
        type_id, shard, epoch, entity = each.taker
        rows.append((each.id, type_id, shard, epoch, entity, each.foreign, each.park))
    return [*_columns(_MARK, rows), Texts([each.id for each in foreign if each.resumed])]


class AppendingMessages:
    """Appends on one line, prepared once on each of its connections."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._marked: Connection | None = None
        "The connection on which the append with marks is prepared."

    async def append(
        self,
        connection: Connection,
        rows: Sequence[EventRow],
        changes: MessageChanges,
        *,
        repeated: bool = False,
        claim: Claim | None = None,
    ) -> datetime:
        """Append all or nothing, as one statement that commits itself, and return the server's
        time. Raises RowRefused or psycopg's errors.
        """
        parameters = append_parameters(rows, changes, repeated=repeated, claim=claim)
        values = [each.data if isinstance(each, Array) else _BOOLS[each] for each in parameters]
        if len(values) > len(_PARAMETERS):
            if self._marked is not connection:
                await connection.wait(
                    _prepare(connection, _NAME_MARKED, _PREPARED_MARKED, _MARKED_PARAMETERS)
                )
                self._marked = connection
            found = await connection.wait(_append(connection, values, _NAME_MARKED, _BINARY_MARKED))
        else:
            if self._connection is not connection:
                await connection.wait(_prepare(connection, _NAME, _PREPARED, _PARAMETERS))
                self._connection = connection
            found = await connection.wait(_append(connection, values, _NAME, _BINARY))
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            raise psycopg.OperationalError("the append was not committed: it stands in an open transaction")
        return found


def _prepare(connection: Connection, name: bytes, statement: bytes, parameters: Sequence[int]) -> Steps:
    pgconn = connection.pgconn
    pgconn.send_prepare(name, statement, parameters)
    check(connection, (yield from generators.execute(pgconn)), ExecStatus.COMMAND_OK)


def _append(
    connection: Connection, values: Sequence[bytes], name: bytes, formats: Sequence[int]
) -> Generator[Any, Any, datetime]:
    pgconn = connection.pgconn
    pgconn.send_query_prepared(name, values, formats, Format.BINARY)
    results = yield from generators.execute(pgconn)
    check(connection, results, ExecStatus.TUPLES_OK)
    time = results[0].get_value(0, 0)
    if time is None:
        raise psycopg.OperationalError("the server did not say when it has appended")
    return _EPOCH + timedelta(microseconds=_microseconds(time)[0])


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
            parameters = append_parameters(rows, changes)
            marked = len(parameters) > len(_PARAMETERS)
            own.execute(APPEND_MARKED if marked else APPEND, parameters, binary=True)
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
