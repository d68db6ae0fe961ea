"""Gives the journal another layout while the cluster works: partitioned by type, and a type's
partition divided by a hash of the entity.

The new table is filled beside the present one, in pieces and in the order of the key. A trigger
notes which rows are written or deleted from then on; these are copied again. The copy is compared
with the journal in one snapshot. Then the two change places in one transaction, which waits a
moment at most for the journal's lock and otherwise tries again, and the former table is dropped.

    plain, or another layout -- begin --> copied -- switch --> former table left -- drop --> done

Contract: each step is one transaction, and where the next one goes on stands in the database. So
the command may be killed at any point: nodes are not concerned, and the same call goes on. Until
the switch `cancel` takes all of it back. An erasure deletes in a former table that is left, and
in a copy that stands still.

Copying a range of rows is repeatable, and it copies what one snapshot shows: a note that is taken
in that snapshot covers changes that the snapshot shows, and every later change leaves another note.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product, zip_longest
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from sharding_app.adapters.postgres.connection import Conninfo, open_session
from sharding_app.adapters.postgres.deletion import EVENTS_AT_ONCE, next_rows
from sharding_app.adapters.postgres.further_journals import Further, connect, with_copies
from sharding_app.adapters.postgres.moving_locks import keep_partitioning_away, partition_alone
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.within import secure
from sharding_app.protocol.ids import EntityId

ROWS_AT_FIRST = 2_000
TOUCHED_AT_ONCE = 2_000
TOUCHED_AT_SWITCH = 500
"""Notes that may be left when the journal is locked: they are copied meanwhile."""
LOCK_SECONDS = 0.1
"""Appends wait behind our wait for a lock. It is shorter than their patience."""
PAUSE_SECONDS = 0.5
TRIES = 120
MOST_PARTS = 128
_LAST = 2**31 - 1

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]


class CannotPartition(Exception):
    """The layout is not changed; the text says why, and what to do."""


class NoTable(CannotPartition):
    """The database has not been migrated."""


class Partition(NamedTuple):
    """A type, and the tables that its events are in."""

    number: int
    type: str
    tables: int
    "0: its events are in a table of all types."
    size: int
    rows: int


class Layout(NamedTuple):
    partitioned: bool
    size: int
    "Bytes of the journal with its indexes: a copy of all takes as many."
    types: Sequence[Partition]
    unfinished: str
    "Says that a change of the layout was begun and not ended."


class Step(NamedTuple):
    """What a change has just committed."""

    name: str
    done: int = 0
    total: int = 0


def read_layout(conninfo: Conninfo) -> Layout:
    """Read how the journal is laid out. Raises CannotPartition, or psycopg.Error."""
    with _connected(conninfo, as_owner=False) as connection:
        partitioned, under_way, former = _state(connection)[:3]
        unfinished = ""
        if under_way:
            copied, total, filled = _progress(connection)
            unfinished = f"{copied} of about {total} events are copied" + (", all of them" if filled else "")
        elif former:
            unfinished = "only the former table is left to be dropped"
        types = [Partition(*row) for row in connection.execute(QUERIES["partition_types"])]
        ((size,),) = connection.execute(QUERIES["partition_size"]).fetchall()
    return Layout(partitioned, size, types, unfinished)


def change_layout(conninfo: Conninfo, parts: Mapping[str, int], by: str) -> Generator[Step]:
    """Partition the journal by type, and divide the partitions of these types; where it is
    partitioned already, divide that of one type. Yields after each commit.

    Goes on with a change of the same kind that was begun. Raises CannotPartition, or psycopg.Error.
    """
    with _connected(conninfo) as connection:
        if not _state(connection)[1]:
            yield from _drop_former(connection)
            wanted = _wanted(connection, parts)
            if wanted is None:
                return
            _refuse_obstacles(connection, _replaced(connection, wanted))
            _briefly(connection, lambda: _begin(connection, wanted, by))
            yield Step("begun")
        else:
            _refuse_another(connection, parts)
        yield from _copy(connection)
        yield from _compare(connection)
        while not _briefly(connection, lambda: _switch(connection, by)):
            yield from _catch_up(connection)
        yield Step("switched")
        yield from _drop_former(connection)


def cancel(conninfo: Conninfo, by: str) -> bool:
    """Drop the copy of a change that has not come to its switch; False: there is none."""
    with _connected(conninfo) as connection:
        if not _state(connection)[1]:
            return False
        _briefly(connection, lambda: _drop_copy(connection, by))
    return True


# -- The beginning --------------------------------------------------------------------------------


def _wanted(connection: Connection, parts: Mapping[str, int]) -> dict[int, int] | None:
    """Return the number of parts by number of type, for the types that are changed; None: the
    journal is laid out so.
    """
    present = [Partition(*row) for row in connection.execute(QUERIES["partition_types"])]
    numbers = {each.type: each for each in present}
    for name, count in parts.items():
        if name not in numbers:
            raise CannotPartition(f"The cluster knows no type {name!r}.")
        if not 1 <= count <= MOST_PARTS:
            raise CannotPartition(f"A type has 1 to {MOST_PARTS} parts, and not {count}.")
    if not _state(connection)[0]:
        return {each.number: parts.get(each.type, 1) for each in present}
    changed = [name for name, count in parts.items() if numbers[name].tables != count]
    if len(changed) > 1:
        raise CannotPartition(f"One type at a time: {' and '.join(sorted(changed))} would be divided anew.")
    return {numbers[name].number: parts[name] for name in changed} or None


def _refuse_another(connection: Connection, parts: Mapping[str, int]) -> None:
    """Refuse to go on with a change of which the caller does not speak."""
    rows = connection.execute(
        "SELECT t.name, (p.parts ->> t.id::text)::integer FROM sharding_partitioning p"
        " JOIN sharding_type t ON p.parts ? t.id::text"
    )
    begun = {str(name): int(count) for name, count in rows}
    differing = [name for name in {**begun, **parts} if begun.get(name, 1) != parts.get(name, 1)]
    if differing:
        raise CannotPartition(
            "Another change of the layout was begun ("
            + ", ".join(
                f"{name}={begun[name]}" for name in sorted(begun) if begun[name] > 1 or len(begun) == 1
            )
            + "). Go on with that, or take it back with --cancel."
        )


def _replaced(connection: Connection, wanted: Mapping[int, int]) -> str | None:
    """Return the partition that the copy is to replace; None: it is the whole table."""
    return f"sharding_event_{next(iter(wanted))}" if _state(connection)[0] else None


def _refuse_obstacles(connection: Connection, partition: str | None) -> None:
    found = [text for (text,) in connection.execute(QUERIES["partition_obstacles"], {"partition": partition})]
    if found:
        raise CannotPartition(
            f"sharding_event cannot be replaced: {'; '.join(found)}. Remove the cause; what you drop can be made again afterwards."
        )


def _begin(connection: Connection, wanted: Mapping[int, int], by: str) -> None:
    partitioned = _state(connection)[0]
    ((storage,),) = connection.execute("SELECT sharding_journal_storage_v1()").fetchall()
    if partitioned:
        ((number, parts),) = wanted.items()
        bounds = (number - 1, number)
        _make(connection, "sharding_event_next", number, parts, storage)
        # With this, attaching it reads no row.
        connection.execute(
            sql.SQL(
                "ALTER TABLE sharding_event_next ADD CONSTRAINT sharding_event_type CHECK (type_id = {})"
            ).format(number)
        )
        # Copied rows are of former epochs.
        connection.execute("ALTER TABLE sharding_event_next DISABLE TRIGGER sharding_fence")
    else:
        bounds = (0, _LAST)
        connection.execute(
            "CREATE TABLE sharding_event_next (LIKE sharding_event INCLUDING ALL) PARTITION BY LIST (type_id)"
        )
        for number, parts in wanted.items():
            _attach_new(connection, "sharding_event_next", number, parts, storage)
    connection.execute(
        """
        CREATE TABLE sharding_partitioning (
            before_type integer NOT NULL, last_type integer NOT NULL, parts jsonb NOT NULL, storage text NOT NULL,
            after_type integer NOT NULL, after_entity text COLLATE "C" NOT NULL DEFAULT '', after_seq bigint NOT NULL DEFAULT 0,
            copied bigint NOT NULL DEFAULT 0, filled boolean NOT NULL DEFAULT false, total bigint NOT NULL)
        """
    )
    connection.execute(
        """
        INSERT INTO sharding_partitioning (before_type, last_type, parts, storage, after_type, total)
        SELECT %(before)s, %(last)s, %(parts)s, %(storage)s, %(before)s + 1, coalesce(sum(s.n_live_tup), 0)
        FROM pg_stat_user_tables s
        WHERE s.relid = to_regclass(%(source)s)
            OR s.relid IN (SELECT tree.relid FROM pg_partition_tree(to_regclass(%(source)s)) tree)
        """,
        {
            "before": bounds[0], "last": bounds[1], "parts": Jsonb({str(key): value for key, value in wanted.items()}),
            "storage": storage, "source": f"sharding_event_{bounds[1]}" if partitioned else "sharding_event",
        },
    )  # fmt: skip
    connection.execute(
        """
        CREATE TABLE sharding_event_touched (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, type_id integer NOT NULL, entity text COLLATE "C" NOT NULL,
            first bigint NOT NULL, last bigint NOT NULL
        ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)
        """
    )
    _note(connection, "journal_partitioning", wanted, by)
    # Last, since it waits for appends under way, and others wait behind it.
    for event, table in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
        connection.execute(
            sql.SQL(
                "CREATE TRIGGER {} AFTER {} ON sharding_event REFERENCING {} TABLE AS touched_rows"
                " FOR EACH STATEMENT EXECUTE FUNCTION sharding_note_touched_v1()"
            ).format(sql.Identifier(f"sharding_touched_{event.lower()}"), sql.SQL(event), sql.SQL(table))
        )
    # The table is locked by now. What has come meanwhile would stay with the former one, such as
    # the triggers of a move of shards.
    _refuse_obstacles(connection, _replaced(connection, wanted))


def _make(connection: Connection, name: str, number: int, parts: int, storage: str) -> None:
    connection.execute(
        "SELECT sharding_make_partition_v1(to_regclass('sharding_event'), %s, %s, %s, %s)",
        [name, number, parts, storage],
    )


def _attach_new(connection: Connection, parent: str, number: int, parts: int, storage: str) -> None:
    """Make an empty partition of a table that nothing else uses."""
    name = f"sharding_event_{number}"
    _make(connection, name, number, parts, storage)
    connection.execute(
        sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES IN ({})").format(
            sql.Identifier(parent), sql.Identifier(name), number
        )
    )


# -- The copy -------------------------------------------------------------------------------------


def _copy(connection: Connection) -> Iterator[Step]:
    connection.execute("SET enable_seqscan = off")  # along the key, however large the piece
    rows = ROWS_AT_FIRST
    copied, total, filled = _progress(connection)
    while not filled:
        began = time.monotonic()
        with connection.transaction():
            _add_types(connection)
            ((copied, filled),) = connection.execute(QUERIES["partition_copy"], {"rows": rows}).fetchall()
        rows = next_rows(rows, time.monotonic() - began)
        yield Step("copied", copied, max(total, copied))
        yield from _catch_up(connection, rounds=1)
    connection.execute("RESET enable_seqscan")
    # So that the first statements after the switch have statistics, and no vacuum lies ahead.
    connection.execute("VACUUM (ANALYZE) sharding_event_next")


def _catch_up(connection: Connection, rounds: int | None = None) -> Iterator[Step]:
    """Copy again what was touched; without `rounds` until little is left."""
    while True:
        with _one_snapshot(connection):
            _add_types(connection)
            number = _apply(connection)
        if number:
            yield Step("caught up", number)
        rounds = None if rounds is None else rounds - 1
        if number < TOUCHED_AT_SWITCH or rounds == 0:
            return


def _apply(connection: Connection) -> int:
    """Copy a piece of what was touched, and return its size. Runs in one snapshot."""
    touched = connection.execute(QUERIES["partition_touched"], {"limit": TOUCHED_AT_ONCE}).fetchall()
    if touched:
        columns = [list(each) for each in zip(*touched, strict=True)]
        ranges = dict(zip(("types", "entities", "firsts", "lasts"), columns, strict=True))
        connection.execute(QUERIES["partition_drop_touched"], ranges)
        connection.execute(QUERIES["partition_put_touched"], ranges)
    return len(touched)


def _add_types(connection: Connection) -> None:
    """Give types that were registered since the beginning a place in the copy."""
    rows = connection.execute(
        "SELECT t.id, p.storage FROM sharding_partitioning p, sharding_type t"
        " WHERE p.last_type = %s AND to_regclass('sharding_event_' || t.id) IS NULL ORDER BY t.id",
        [_LAST],
    ).fetchall()
    for number, storage in rows:
        _attach_new(connection, "sharding_event_next", number, 1, storage)


def _compare(connection: Connection) -> Iterator[Step]:
    """Compare the copy with the journal, as one snapshot shows both."""
    yield from _catch_up(connection)
    with _one_snapshot(connection):
        while _apply(connection):
            pass
        different = connection.execute(QUERIES["partition_digests"]).fetchall()
    if different:
        number, stored, copied = different[0]
        raise CannotPartition(
            f"The copy differs from the journal in type number {number}: {stored} events there, {copied} here. The journal is"
            " as it was. Take the copy back with --cancel, and report this."
        )
    yield Step("compared")


# -- The switch -----------------------------------------------------------------------------------


def _switch(connection: Connection, by: str) -> bool:
    """Put the copy in the journal's place; False: too much was written meanwhile."""
    # A process that registers a type waits, and then makes a partition.
    connection.execute("LOCK TABLE sharding_type IN SHARE MODE")
    connection.execute("LOCK TABLE sharding_event IN ACCESS EXCLUSIVE MODE")
    ((left,),) = connection.execute(
        "SELECT count(*) FROM (SELECT FROM sharding_event_touched LIMIT %s) t", [TOUCHED_AT_SWITCH + 1]
    ).fetchall()
    if left > TOUCHED_AT_SWITCH:
        return False
    _add_types(connection)
    while _apply(connection):
        pass
    ((last, parts),) = connection.execute("SELECT last_type, parts FROM sharding_partitioning").fetchall()
    # The triggers of the copying go with the tables that they name.
    for event in ("insert", "update", "delete"):
        connection.execute(
            sql.SQL("DROP TRIGGER {} ON sharding_event").format(sql.Identifier(f"sharding_touched_{event}"))
        )
    connection.execute("DROP TABLE sharding_event_touched, sharding_partitioning")
    if last == _LAST:
        _copy_grants(connection, "sharding_event")
        _take_place(connection, "sharding_event")
        for name, event in (("sharding_fence", "INSERT"), ("sharding_fence_update", "UPDATE")):
            connection.execute(
                sql.SQL(
                    "CREATE TRIGGER {} AFTER {} ON sharding_event REFERENCING NEW TABLE AS new_rows"
                    " FOR EACH STATEMENT EXECUTE FUNCTION sharding_fence_v1()"
                ).format(sql.Identifier(name), sql.SQL(event))
            )
    else:
        table = f"sharding_event_{last}"
        _copy_grants(connection, table)
        connection.execute(
            sql.SQL("ALTER TABLE sharding_event DETACH PARTITION {}").format(sql.Identifier(table))
        )
        connection.execute("ALTER TABLE sharding_event_next ENABLE TRIGGER sharding_fence")
        _take_place(connection, table)
        connection.execute(
            sql.SQL("ALTER TABLE sharding_event ATTACH PARTITION {} FOR VALUES IN ({})").format(
                sql.Identifier(table), last
            )
        )
        connection.execute(
            sql.SQL("ALTER TABLE {} DROP CONSTRAINT sharding_event_type").format(sql.Identifier(table))
        )
    # To projections a copied row is of the transaction that has copied it. A change without an
    # entity lets each position pass these: else an idle projection would seem not to have seen it.
    connection.execute(
        "INSERT INTO sharding_change (type_id, events, entities, slices, firsts, lasts)"
        " SELECT t.id, 0, '{}', '{}', '{}', '{}' FROM sharding_type t WHERE t.followed"
    )
    _note(connection, "journal_partitioned", {int(key): value for key, value in parts.items()}, by)
    return True


def _take_place(connection: Connection, table: str) -> None:
    """Give the copy the name of a table, and its indexes the names of that table's."""
    former, present = (
        connection.execute(QUERIES["partition_indexes"], {"table": each}).fetchall()
        for each in (table, "sharding_event_next")
    )
    _rename(connection, "TABLE", table, "sharding_event_before")
    _rename(connection, "TABLE", "sharding_event_next", table)
    for number, ((old, *one), (new, *other)) in enumerate(zip_longest(former, present, fillvalue=("",))):
        if one != other:
            raise CannotPartition(
                f"Index {old or new} has no counterpart: it was made or dropped since the copy began. The journal is as it was."
                " Take the copy back with --cancel, and begin anew."
            )
        _rename(connection, "INDEX", old, f"sharding_event_before_{number}")
        _rename(connection, "INDEX", new, old)


def _rename(connection: Connection, kind: str, old: str, new: str) -> None:
    connection.execute(
        sql.SQL("ALTER {} {} RENAME TO {}").format(sql.SQL(kind), sql.Identifier(old), sql.Identifier(new))
    )


def _copy_grants(connection: Connection, table: str) -> None:
    """Give the copy the rights of a table, whatever the defaults have given it."""
    strangers = {
        row[0] for row in connection.execute(QUERIES["partition_grants"], {"table": "sharding_event_next"})
    }
    for role in strangers:
        connection.execute(sql.SQL("REVOKE ALL ON sharding_event_next FROM {}").format(_role(role)))
    for role, privilege, grantable, column in connection.execute(
        QUERIES["partition_grants"], {"table": table}
    ).fetchall():
        connection.execute(
            sql.SQL("GRANT {}{} ON sharding_event_next TO {}{}").format(
                sql.SQL(privilege),
                sql.SQL(" ({})").format(sql.Identifier(column)) if column else sql.SQL(""),
                _role(role),
                sql.SQL(" WITH GRANT OPTION" if grantable else ""),
            )
        )


def _role(name: str | None) -> sql.Composable:
    return sql.SQL("PUBLIC") if name is None else sql.Identifier(name)


# -- The end --------------------------------------------------------------------------------------


def _drop_former(connection: Connection) -> Iterator[Step]:
    if _state(connection)[2]:
        _briefly(connection, lambda: connection.execute("DROP TABLE sharding_event_before"))
        yield Step("dropped")


def erase_in_former(
    conninfo: Conninfo, further: Further, type_name: str, entity: EntityId | None = None
) -> None:
    """Delete an entity, or all of a type, in tables that a change of the layout has replaced and
    not dropped yet. Raises CannotPartition, JournalDown, UnknownJournals, psycopg.Error.

    For an entity call it once that is erased in the journal: a change that comes to its switch
    behind that leaves nothing of it.
    """
    for journal, number in _journals_of(conninfo, further, type_name):
        if _state(journal)[2]:
            _erase_in(journal, "sharding_event_before", number, entity)


def erase_in_copy(
    conninfo: Conninfo, further: Further, type_name: str, entity: EntityId | None = None
) -> None:
    """Delete an entity, or all of a type, in copies whose command has stopped, once that is deleted
    in the journal: a command that is at work follows that. Raises as `erase_in_former`.
    """
    for journal, number in _journals_of(conninfo, further, type_name):
        if _state(journal)[1]:
            _erase_in(journal, "sharding_event_next", number, entity)


def _journals_of(conninfo: Conninfo, further: Further, type_name: str) -> Iterator[tuple[Connection, int]]:
    """Give a connection to each journal that may have rows of a type, with the type's number."""
    with open_session(conninfo, "deletion") as cluster, ExitStack() as stack:
        known = [number for number, name, *_ in cluster.execute(QUERIES["types"], {}) if name == type_name]
        names = with_copies(cluster, further, [type_name])
        every = [cluster, *(stack.enter_context(connect(name, further, "deletion")) for name in names)]
        yield from product(every, known)


def _erase_in(journal: Connection, table: str, number: int, entity: EntityId | None) -> None:
    query = QUERIES["partition_erase_type" if entity is None else "partition_erase"]
    query = query.replace(b"{table}", table.encode())
    wanted = {"type_id": number, "entity": entity, "at_most": EVENTS_AT_ONCE}
    try:
        while _erase_piece(journal, table, query, wanted):
            pass
    except psycopg.errors.UndefinedTable:
        return  # it was dropped meanwhile
    except psycopg.errors.InsufficientPrivilege as error:
        raise CannotPartition(
            f"Its events may stand in {table}, which an interrupted sharding_partition has left, and this role may not delete"
            " there. Run that command again as the owner of the tables, which drops it, or with --cancel, and then this one."
        ) from error
    secure(journal)  # also where a former call has left nothing


def _erase_piece(journal: Connection, table: str, query: bytes, wanted: Mapping[str, Any]) -> int:
    """Return how many rows are deleted. None of a copy beside the command that makes it: that one
    follows the deletion in the journal.
    """
    with journal.transaction():
        is_copy = table == "sharding_event_next"
        if is_copy and not keep_partitioning_away(journal):
            return 0
        return journal.execute(query, wanted).rowcount


def _drop_copy(connection: Connection, by: str) -> None:
    ((parts,),) = connection.execute("SELECT parts FROM sharding_partitioning").fetchall()
    for event in ("insert", "update", "delete"):
        connection.execute(
            sql.SQL("DROP TRIGGER {} ON sharding_event").format(sql.Identifier(f"sharding_touched_{event}"))
        )
    connection.execute("DROP TABLE sharding_event_next, sharding_event_touched, sharding_partitioning")
    _note(connection, "journal_partitioning_cancelled", {int(key): value for key, value in parts.items()}, by)


def _note(connection: Connection, action: str, parts: Mapping[int, int], by: str) -> None:
    names: dict[int, str] = dict(connection.execute("SELECT id, name FROM sharding_type").fetchall())
    subject = names.get(next(iter(parts)), "") if len(parts) == 1 else ""
    divided = ", ".join(
        f"{names.get(number, number)} in {count} parts" for number, count in parts.items() if count > 1
    )
    connection.execute(
        "INSERT INTO sharding_decision (action, subject, detail) VALUES (%s, %s, %s)",
        [action, subject, f"{divided}, by {by}" if divided else f"by {by}"],
    )


# -- All ------------------------------------------------------------------------------------------


def _briefly(connection: Connection, work: Callable[[], T]) -> T:
    """Do it in one transaction that waits a moment at most for each lock, as often as it takes."""
    for tried in range(1, TRIES + 1):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{round(LOCK_SECONDS * 1000)}ms'")
                return work()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if tried == TRIES:
                holders = [
                    f"process {pid} ({' '.join(filter(None, (user, name)))}, for {seconds:.0f} s)"
                    for pid, user, name, seconds in connection.execute(QUERIES["partition_holders"])
                ]
                raise CannotPartition(
                    f"The journal is in use, and was so at each of {TRIES} tries: {', '.join(holders) or 'by others'}. No append"
                    " was held up for long. Run the command again when that has ended: a dump or an open transaction, mostly."
                ) from error
            time.sleep(PAUSE_SECONDS)
    raise AssertionError("the last try raises")


@contextmanager
def _one_snapshot(connection: Connection) -> Iterator[None]:
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def _progress(connection: Connection) -> tuple[int, int, bool]:
    ((copied, total, filled),) = connection.execute(
        "SELECT copied, total, filled FROM sharding_partitioning"
    ).fetchall()
    return copied, total, filled


def _state(connection: Connection) -> tuple[Any, ...]:
    found = connection.execute(QUERIES["partition_state"]).fetchone()
    if found is None:
        raise NoTable("There is no table sharding_event: run manage.py migrate.")
    return found


@contextmanager
def _connected(conninfo: Conninfo, *, as_owner: bool = True) -> Iterator[Connection]:
    """Connect, as the owner of the tables where they are to be changed; then as the only one that
    changes them.
    """
    with open_session(conninfo, "partitioning") as connection:
        *_, schema, owner, owns, may_be_owner, may_create = _state(connection)
        connection.execute(
            "SELECT set_config('search_path', quote_ident(%s::text) || ', pg_temp', false)", [schema]
        )
        if as_owner:
            if not (owns or may_be_owner):
                raise CannotPartition(f"sharding_event belongs to {owner}: run this command as that role.")
            if not may_create:
                raise CannotPartition(
                    f"Role {owner} may make no tables: GRANT CREATE ON SCHEMA {schema} TO {owner};"
                )
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(owner)))
            if not partition_alone(connection):
                raise CannotPartition("Another sharding_partition is at work on this database.")
        yield connection
        if as_owner:
            secure(connection)  # also where a former call has left nothing to do
