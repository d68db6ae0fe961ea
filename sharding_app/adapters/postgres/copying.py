"""Events as rows of a binary COPY: the one statement that an append is.

psycopg's own row writer is as fast here as a buffer packed by hand (measured), so there is no second encoder.
"""

import struct
from collections.abc import Sequence

import psycopg

from sharding_app.adapters.postgres.failures import explain, verdict
from sharding_app.ports.journal import EventRow, JournalUnavailable, RowRefused

COPY_EVENTS = (
    b"COPY sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id, command, reply,"
    b" partial) FROM STDIN (FORMAT BINARY)"
)

_AS_IT_IS = "bytea"
"""JSON goes out as the bytes it came in: the server checks them, nothing here decodes or writes them again."""
TYPES = (
    "int4", "text", "int8", "int4", "int8", "text", "int4", _AS_IT_IS, "text", "text", _AS_IT_IS, "bool",
)  # fmt: skip

UNWRITABLE = (UnicodeError, OverflowError, TypeError, ValueError, struct.error, psycopg.DataError)
"""What the row writer raises for a value that the column's type cannot hold."""


async def copy_events(
    connection: psycopg.AsyncConnection[tuple[object, ...]], rows: Sequence[EventRow]
) -> None:
    """Append all rows or none, as one statement. Raises RowRefused, or what psycopg raises."""
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
    """Append the rows in somebody's open transaction, as its last statement. Raises RowRefused, or what psycopg does."""
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


def append_within(cursor: psycopg.Cursor[tuple[object, ...]], rows: Sequence[EventRow]) -> None:
    """`copy_events_within`, with the server's verdict as the journal's errors."""
    try:
        copy_events_within(cursor, rows)
    except psycopg.Error as error:
        raise verdict(error) or JournalUnavailable(explain(error)) from error
