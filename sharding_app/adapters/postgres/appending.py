"""Append events as rows of one statement: a binary COPY, or a prepared INSERT of one event alone.

A COPY takes two round trips and is parsed each time. With one row the INSERT takes a third less
time, for the server and for us; with more than a few it takes longer (measured). psycopg's own row
writer is as fast here as a buffer packed by hand, so there is no second encoder. It has to be told
how to write bytes (`write_bytes_at_once`).
"""

import struct
from collections.abc import Sequence

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.string import BytesBinaryDumper

from sharding_app.adapters.postgres.arrays import register_arrays
from sharding_app.ports.journal import EventRow, RowRefused

COPY_EVENTS = (
    b"COPY sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id, command, reply,"
    b" partial) FROM STDIN (FORMAT BINARY)"
)
INSERT_EVENT = (
    b"INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id, command, reply,"
    b" partial) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
_PAYLOAD = EventRow._fields.index("payload")

Connection = psycopg.AsyncConnection[tuple[object, ...]]

_AS_IT_IS = "bytea"
"""JSON is sent as the bytes it came in: the server checks them, nothing here decodes or encodes
them again."""
TYPES = (
    "int4", "text", "int8", "int4", "int8", "text", "int4", _AS_IT_IS, "text", "text", _AS_IT_IS, "bool",
)  # fmt: skip

UNWRITABLE = (UnicodeError, OverflowError, TypeError, ValueError, struct.error, psycopg.DataError)
"""Errors of the row writer for a value that the column's type cannot hold."""


async def write_bytes_at_once(connection: Connection) -> None:
    """Have psycopg write bytes with its code in C.

    For a column of the type bytea it would choose its class for the DB-API's `Binary`, of which
    each value takes two Python functions: a third of the time of a row.
    """
    connection.adapters.register_dumper(bytes, BytesBinaryDumper)
    register_arrays(connection.adapters)


async def append_events(connection: Connection, rows: Sequence[EventRow]) -> None:
    """Append all rows or none, as one statement that commits itself. Raises RowRefused or psycopg's
    errors.
    """
    if len(rows) == 1:
        await _insert_event(connection, rows[0])
    else:
        await _copy_events(connection, rows)
    # In a transaction of another task the statement would be done, and not be stored.
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise psycopg.OperationalError("the append was not committed: it stands in an open transaction")


async def _insert_event(connection: Connection, row: EventRow) -> None:
    try:
        values = [*row[:_PAYLOAD], row.payload.decode(), *row[_PAYLOAD + 1 :]]
        await connection.execute(INSERT_EVENT, values)
    except UNWRITABLE as error:
        if isinstance(error, psycopg.Error) and error.sqlstate is not None:
            raise  # the server's own answer
        raise RowRefused(f"{type(error).__name__}: {error}", 0) from error


async def _copy_events(connection: Connection, rows: Sequence[EventRow]) -> None:
    index = -1
    try:
        async with connection.cursor().copy(COPY_EVENTS) as copy:
            copy.set_types(TYPES)
            write_row = copy.write_row
            for index in range(len(rows)):
                await write_row(rows[index])
            index = -1
    except UNWRITABLE as error:
        if index < 0:
            raise
        raise RowRefused(f"{type(error).__name__}: {error}", index) from error


def copy_events_within(cursor: psycopg.Cursor[tuple[object, ...]], rows: Sequence[EventRow]) -> None:
    """Append the rows in the user's open transaction, as its last statement. Raises RowRefused or
    psycopg's errors.
    """
    index = -1
    try:
        with cursor.copy(COPY_EVENTS) as copy:
            copy.set_types(TYPES)
            for index in range(len(rows)):
                copy.write_row(rows[index])
            index = -1
    except UNWRITABLE as error:
        if index < 0:
            raise
        raise RowRefused(f"{type(error).__name__}: {error}", index) from error
