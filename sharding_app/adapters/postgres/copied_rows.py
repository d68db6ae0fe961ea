"""Rows of some shards of a type, copied from one journal database to another while nodes write.

Contract: copying a range of rows is repeatable, and it copies what one snapshot of the source
shows. A note that is taken in that snapshot covers changes that the snapshot shows, and every later
change leaves another note. The notes are made by triggers (`moving`).
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from psycopg import sql

from sharding_app.adapters.postgres.deletion import next_rows
from sharding_app.adapters.postgres.further_journals import Connection, rows
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.protocol.ids import EntityId, Epoch, ShardId

ROWS_AT_FIRST = 2_000
ROWS_AT_LEAST = 2_000
"""Smaller pieces may take longer than nodes take to write as many rows."""
NOTES_AT_ONCE = 2_000
NOT_CLEARED = "not cleared"
"""Before the walk along the first table: what the target had is not deleted yet."""

COLUMNS = {
    "event": "type_id, entity, seq, shard, epoch, name, version, payload, command_id, command, reply, partial, at",
    "snapshot": "type_id, entity, seq, shard, epoch, state, at",
}

EACH = sql.SQL("")
"""No condition: all rows."""

Range = tuple[EntityId, int, int, ShardId]
"""An entity, the first and the last number of its rows that are meant, and its shard."""


class Different(Exception):
    """The copy is not the same as its source."""


class RowCopy:
    """Events and snapshots of the shards that are `moving`; the caller takes out those that are
    done.
    """

    def __init__(
        self,
        type_id: int,
        shard_of: Callable[[EntityId, ShardId], ShardId],
        shards: Sequence[ShardId],
        source: Connection,
        target: Connection,
        hold: Callable[[Sequence[ShardId]], Mapping[ShardId, Epoch]],
    ) -> None:
        """`shard_of`: returns an entity's shard; it is given the one that stands in a row of it.
        `hold`: holds the target's rows of shards to the end of its transaction, and returns their
        epochs.
        """
        self.moving = set(shards)
        self._type_id = type_id
        self._shard_of = shard_of
        self._source = source
        self._target = target
        self._hold = hold

    def all(self, table: str) -> Iterator[int]:
        """Copy all rows of a table, from where a former call has come to; what the target had is
        deleted by then. Yields how many ranges are copied.
        """
        ((walking, entity, seq),) = self._source.execute(
            "SELECT walking, entity, seq FROM sharding_moving WHERE type_id = %s", [self._type_id]
        ).fetchall()
        if walking == NOT_CLEARED:
            walking = "event"
        if walking != table:
            return  # it is done
        limit, copied = ROWS_AT_FIRST, 0
        while True:
            began = time.monotonic()
            page = self._page(self._source, table, (entity, seq), limit)
            if not page:
                break
            if ranges := self._of_moving(page):
                self._put({table: ranges})
                copied += len(ranges)
            entity, seq = page[-1][0], page[-1][2]
            self._walked(table, entity, seq)
            limit = max(ROWS_AT_LEAST, next_rows(limit, time.monotonic() - began))
            yield copied
        self._walked({"event": "snapshot", "snapshot": ""}[table], "", 0)

    def _walked(self, table: str, entity: EntityId, seq: int) -> None:
        self._source.execute(
            "UPDATE sharding_moving SET walking = %s, entity = %s, seq = %s WHERE type_id = %s",
            [table, entity, seq, self._type_id],
        )

    def _page(self, where: Connection, table: str, after: tuple[str, int], limit: int) -> list[Range]:
        values = {"type_id": self._type_id, "entity": after[0], "seq": after[1], "limit": limit}
        with where.transaction():
            where.execute("SET LOCAL enable_seqscan = off")  # along the key, however large the page
            return [
                (entity, first, last, self._shard_of(entity, written))
                for entity, first, last, written in rows(where, f"copy_walk_{table}s", values)
            ]

    def _walk(self, where: Connection, table: str) -> Iterator[list[Range]]:
        """Walk along all rows of the shards."""
        after = ("", 0)
        while page := self._page(where, table, after, ROWS_AT_FIRST):
            after = (page[-1][0], page[-1][2])
            if found := self._of_moving(page):
                yield found

    def _of_moving(self, ranges: Sequence[Range]) -> list[Range]:
        return [each for each in ranges if each[3] in self.moving]

    def _shards_of(self, ranges: Sequence[Range]) -> list[ShardId]:
        return sorted({each[3] for each in ranges})

    def _put(self, tables: Mapping[str, Sequence[Range]]) -> None:
        """Copy these rows as the source shows them now, in place of those that the target has."""
        for table, ranges in tables.items():
            selected = _select(table, self._type_id, ranges)
            stage(self._source, selected, self._target, table, COLUMNS[table])
        with self._target.transaction():
            held = self._hold(self._shards_of([each for ranges in tables.values() for each in ranges]))
            for table, ranges in tables.items():
                self._target.execute(QUERIES[f"copy_clear_{table}s"], _columns(self._type_id, ranges))
                unstage(self._target, table, COLUMNS[table], self._type_id, held)

    def clear(self) -> int:
        """Delete what the target has of the shards; return the number of rows."""
        deleted = 0
        for table in COLUMNS:
            for ranges in self._walk(self._target, table):
                with self._target.transaction():
                    self._hold(self._shards_of(ranges))
                    given = _columns(self._type_id, ranges)
                    deleted += self._target.execute(QUERIES[f"copy_clear_{table}s"], given).rowcount
        return deleted

    def apply(self) -> int:
        """Copy a piece of what was noted, and return the number of notes. A note is taken in the
        snapshot that is copied, and goes once the target has the copy: later changes leave others.
        """
        with self._source.transaction():
            self._source.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            return self._apply_in_snapshot()

    def _apply_in_snapshot(self) -> int:
        noted = rows(self._source, "move_notes", {"type_id": self._type_id, "limit": NOTES_AT_ONCE})
        ranges = self._of_moving(
            [(entity, first, last, self._shard_of(entity, written)) for entity, first, last, written in noted]
        )
        if ranges:
            self._put({"event": _merged(ranges), "snapshot": _merged(ranges)})
        return len(noted)

    def compare(self) -> None:
        """Compare all rows, as one snapshot of the source shows them. Raises Different."""
        with self._source.transaction():
            self._source.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            while self._apply_in_snapshot():
                pass
            numbers = {
                table: sum(self._same(table, ranges) for ranges in self._walk(self._source, table))
                for table in COLUMNS
            }
        # The target is read as a whole, which may take long, and only this command writes it.
        for table, number in numbers.items():
            copied = sum(
                self._digest(self._target, table, ranges)[0] for ranges in self._walk(self._target, table)
            )
            if copied != number:
                raise Different(_DIFFERENT.format(table, number, copied))

    def _same(self, table: str, ranges: Sequence[Range]) -> int:
        here, there = (self._digest(each, table, ranges) for each in (self._source, self._target))
        if here != there:
            raise Different(_DIFFERENT.format(table, here[0], there[0]))
        return here[0]

    def _digest(self, where: Connection, table: str, ranges: Sequence[Range]) -> tuple[int, str]:
        ((number, digest),) = rows(where, f"move_digest_{table}s", _columns(self._type_id, ranges))
        return number, digest


_DIFFERENT = "{1} rows of sharding_{0} in the source, {2} in the copy"


def _columns(type_id: int, ranges: Sequence[Range]) -> dict[str, Any]:
    return {
        "type_id": type_id, "entities": [each[0] for each in ranges], "firsts": [each[1] for each in ranges],
        "lasts": [each[2] for each in ranges],
    }  # fmt: skip


def _merged(ranges: Sequence[Range]) -> list[Range]:
    """Return ranges of which each row is in one at most."""
    found: list[Range] = []
    for entity, first, last, shard in sorted(ranges):
        if found and found[-1][0] == entity and first <= found[-1][2] + 1:
            found[-1] = (entity, found[-1][1], max(found[-1][2], last), shard)
        else:
            found.append((entity, first, last, shard))
    return found


def _select(table: str, type_id: int, ranges: Sequence[Range]) -> sql.Composed:
    """Return the statement that reads rows of ranges, with their present shards, without epochs."""
    chosen = {"shard": sql.SQL("r.shard"), "epoch": sql.SQL("0::bigint")}
    return sql.SQL(
        "SELECT {columns} FROM unnest({entities}::text[], {firsts}::bigint[], {lasts}::bigint[], {shards}::integer[])"
        " AS r (entity, first, last, shard)"
        " JOIN {table} e ON e.type_id = {type_id} AND e.entity = r.entity AND e.seq BETWEEN r.first AND r.last"
    ).format(
        columns=sql.SQL(", ").join(
            chosen.get(each) or sql.SQL("e.") + sql.Identifier(each) for each in COLUMNS[table].split(", ")
        ),
        table=sql.Identifier(f"sharding_{table}"),
        type_id=sql.Literal(type_id),
        **dict(
            zip(
                ("entities", "firsts", "lasts", "shards"),
                (sql.Literal(list(each)) for each in zip(*ranges, strict=True)),
                strict=True,
            )
        ),
    )


def select_of_shards(
    table: str, columns: str, type_id: int, held: Mapping[ShardId, Epoch], condition: sql.Composable = EACH
) -> sql.Composed:
    """Return the statement that reads all rows of shards, with other epochs."""
    return sql.SQL(
        "SELECT {columns} FROM unnest({shards}::integer[], {epochs}::bigint[]) AS given (shard, epoch)"
        " JOIN {table} r ON r.type_id = {type_id} AND r.shard = given.shard {condition}"
    ).format(
        columns=sql.SQL(", ").join(
            sql.SQL("given.epoch") if each == "epoch" else sql.SQL("r.") + sql.Identifier(each)
            for each in columns.split(", ")
        ),
        shards=sql.Literal(list(held)),
        epochs=sql.Literal(list(held.values())),
        table=sql.Identifier(f"sharding_{table}"),
        type_id=sql.Literal(type_id),
        condition=condition,
    )


def stage(source: Connection, selected: sql.Composed, target: Connection, table: str, columns: str) -> None:
    """Lead the rows of a statement into a temporary table of the target's session, which is empty
    before. While the source or this process has to answer, no lock is held that a node or the
    coordinator waits for.
    """
    staged, like = (sql.Identifier(each) for each in (f"sharding_staged_{table}", f"sharding_{table}"))
    target.execute(sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} (LIKE {})").format(staged, like))
    target.execute(sql.SQL("TRUNCATE pg_temp.{}").format(staged))
    out = sql.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(selected)
    into = sql.SQL("COPY pg_temp.{} ({}) FROM STDIN (FORMAT binary)").format(staged, _listed(columns))
    with source.cursor().copy(out) as reading, target.cursor().copy(into) as writing:
        for block in reading:
            writing.write(block)


def unstage(
    target: Connection, table: str, columns: str, type_id: int, held: Mapping[ShardId, Epoch],
    condition: sql.Composable = EACH,
) -> None:  # fmt: skip
    """Put the staged rows of these shards into the table itself, with the epochs that are held."""
    target.execute(
        sql.SQL("INSERT INTO {} ({}) {}").format(
            sql.Identifier(f"sharding_{table}"),
            _listed(columns),
            select_of_shards(f"staged_{table}", columns, type_id, held, condition),
        )
    )


def _listed(columns: str) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(each) for each in columns.split(", "))
