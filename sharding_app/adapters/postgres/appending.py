"""Append events as rows of one statement: a binary COPY, or a prepared INSERT of one event alone.

A COPY takes two round trips and is parsed each time. With one row the INSERT takes a third less
time, for the server and for us; with more than a few it takes longer (measured). psycopg's own row
writer is as fast here as a buffer packed by hand, so there is no second encoder. It has to be told
how to write bytes (`write_bytes_at_once`).

Each append is one generator on psycopg's libpq, waited for once. By way of a cursor it would be
four, and each with its own look-up of types: half of what an append costs this process however many
rows it has (measured).
"""

import struct
from collections.abc import Generator, Sequence
from typing import Any

import psycopg
from psycopg import generators
from psycopg.abc import Transformer
from psycopg.postgres import types
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.types.string import BytesBinaryDumper

from sharding_app.adapters.postgres.arrays import register_arrays
from sharding_app.ports.journal import EventRow, RowRefused

COPY_EVENTS = (
    b"COPY sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id, command, reply,"
    b" partial) FROM STDIN (FORMAT BINARY)"
)
INSERT_EVENT = (
    b"INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id, command, reply,"
    b" partial) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
)
_INSERT_NAME = b"sharding_append"
_int4, _int8, _bool = struct.Struct("!i").pack, struct.Struct("!q").pack, struct.Struct("!?").pack
_CHUNK_BYTES = 256 * 1024
"""libpq takes a COPY in pieces of this size: it makes room for each at once."""

Connection = psycopg.AsyncConnection[tuple[object, ...]]
Steps = Generator[Any, Any, None]

_AS_IT_IS = "bytea"
"""JSON is sent as the bytes it came in: the server checks them, nothing here decodes or encodes
them again."""
TYPES = (
    "int4", "text", "int8", "int4", "int8", "text", "int4", _AS_IT_IS, "text", "text", _AS_IT_IS, "bool",
)  # fmt: skip
_COLUMNS = [types[each].oid for each in TYPES]
_PARAMETERS = [*_COLUMNS[:7], types["json"].oid, *_COLUMNS[8:]]
_BINARY = [Format.BINARY] * len(_COLUMNS)

UNWRITABLE = (UnicodeError, OverflowError, TypeError, ValueError, struct.error, psycopg.DataError)
"""Errors of the row writer for a value that the column's type cannot hold."""


async def write_bytes_at_once(connection: Connection) -> None:
    """Have psycopg write bytes with its code in C.

    For a column of the type bytea it would choose its class for the DB-API's `Binary`, of which
    each value takes two Python functions: a third of the time of a row.
    """
    connection.adapters.register_dumper(bytes, BytesBinaryDumper)
    register_arrays(connection.adapters)


class Appending:
    """Appends on one line, and what it keeps for the line's present connection."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._cursor: psycopg.AsyncCursor[tuple[object, ...]]
        "It runs no statement, but a writer of rows belongs to one."
        self._transformer: Transformer
        "It knows how values of the columns' types are written."
        self._is_prepared = False

    async def append(self, connection: Connection, rows: Sequence[EventRow]) -> None:
        """Append all rows or none, as one statement that commits itself. Raises RowRefused or
        psycopg's errors.
        """
        if self._connection is not connection:
            self._use(connection)
        if len(rows) == 1:
            await self._insert(connection, rows[0])
        else:
            data = self._packed(rows)
            await connection.wait(_copy(connection, data))
        # In a transaction of another task the statement would be done, and not be stored.
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            raise psycopg.OperationalError("the append was not committed: it stands in an open transaction")

    def _use(self, connection: Connection) -> None:
        self._connection, self._cursor, self._is_prepared = connection, connection.cursor(), False
        first = psycopg.AsyncCopy(self._cursor, binary=True)
        first.set_types(_COLUMNS)
        self._transformer = first.formatter.transformer

    async def _insert(self, connection: Connection, row: EventRow) -> None:
        try:
            values = _values(row)
        except UNWRITABLE as error:
            raise RowRefused(f"{type(error).__name__}: {error}", 0) from error
        if not self._is_prepared:
            await connection.wait(_prepare(connection))
            self._is_prepared = True
        await connection.wait(_insert(connection, values))

    def _packed(self, rows: Sequence[EventRow]) -> bytearray:
        """Return the rows as COPY takes them. Nothing is sent, so that no row has to be awaited."""
        formatter = psycopg.AsyncCopy(self._cursor, binary=True).formatter
        formatter.transformer = self._transformer
        data, index = bytearray(), 0
        try:
            for index in range(len(rows)):
                data += formatter.write_row(rows[index])
        except UNWRITABLE as error:
            raise RowRefused(f"{type(error).__name__}: {error}", index) from error
        data += formatter.end()
        return data


def _values(row: EventRow) -> list[bytes | None]:
    """Return the values of a row in the server's binary form."""
    type_id, entity, seq, shard, epoch, name, version, payload, command_id, command, reply, partial = row
    return [
        _int4(type_id),
        entity.encode(),
        _int8(seq),
        _int4(shard),
        _int8(epoch),
        name.encode(),
        _int4(version),
        payload,
        None if command_id is None else command_id.encode(),
        None if command is None else command.encode(),
        reply,
        _bool(partial),
    ]


def _prepare(connection: Connection) -> Steps:
    pgconn = connection.pgconn
    pgconn.send_prepare(_INSERT_NAME, INSERT_EVENT, _PARAMETERS)
    check(connection, (yield from generators.execute(pgconn)), ExecStatus.COMMAND_OK)


def _insert(connection: Connection, values: Sequence[bytes | None]) -> Steps:
    pgconn = connection.pgconn
    pgconn.send_query_prepared(_INSERT_NAME, values, _BINARY)
    check(connection, (yield from generators.execute(pgconn)), ExecStatus.COMMAND_OK)


def _copy(connection: Connection, data: bytearray) -> Steps:
    pgconn = connection.pgconn
    pgconn.send_query(COPY_EVENTS)
    check(connection, (yield from generators.execute(pgconn)), ExecStatus.COPY_IN)
    for start in range(0, len(data), _CHUNK_BYTES):
        end = start + _CHUNK_BYTES
        yield from generators.copy_to(pgconn, data[start:end], flush=end < len(data))
    yield from generators.copy_end(pgconn, None)


def check(connection: Connection, results: Sequence[PGresult], wanted: ExecStatus) -> None:
    """Raise the error of a statement that has not ended as it should."""
    for result in results:
        if result.status != wanted:
            raise psycopg.errors.error_from_result(result, connection.info.encoding)


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
