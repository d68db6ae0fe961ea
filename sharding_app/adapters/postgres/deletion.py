"""Deletes stored data, synchronously, for the commands of operators: one entity (`sharding_erase`),
the cluster's own data (`sharding_remove_data`), and all that a type has stored
(`sharding_remove_journal`).

Contract of all three: nothing is deleted while a living node may hold the data in memory, and
former nodes are fenced. The command looks at the nodes' locks before it changes anything. Then it
raises the epochs, so that a process that was frozen until now writes nothing any more. The timeline
notes the deletion and the operator, never an entity's id.

Tables that grow with the journal are deleted in pieces: short transactions that hold the shards'
rows, and check that none of them has been given a home. A piece ends where entities end, or takes
the end of one entity: a deletion that is interrupted leaves no gap. Where the journal is
partitioned by type, the events of a type go at once instead, with the files of its partition.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from sharding_app.adapters.postgres.connection import Conninfo, command_parameters
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.store import config_of, type_parameters
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.ids import EntityId, ShardId
from sharding_app.protocol.records import TypeConfig

EVENTS_AT_ONCE = 5_000
ROWS_AT_FIRST = 2_000
ROWS_AT_MOST = 50_000
MESSAGES_AT_ONCE = 10_000
EMPTYING_LOCK_SECONDS = 0.1
EMPTYING_PAUSE_SECONDS = 0.5
EMPTYING_TRIES = 20
PIECE_SECONDS = 0.3
"""A piece holds rows that the coordinator may want to change: it shall end before a wait for them
is noticed."""

ServerError = psycopg.Error
"""Raised when the server cannot be reached or refuses."""

Connection = psycopg.Connection[tuple[Any, ...]]


class NodesAlive(Exception):
    """Living nodes may hold the data, or a shard was given a home meanwhile (then without names).
    No more is deleted.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        super().__init__(f"still alive: {', '.join(names) or 'a node that has just joined'}")
        self.names = tuple(names)


class MessagesWait(Exception):
    """Messages and timers of these types would be lost: nothing was deleted."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{number} message(s) and timers wait")
        self.number = number


Placing = Mapping[str, tuple[TypeConfig, Callable[[EntityId], ShardId]]]
"""By the name of a type: its configuration from now on, and the shards of its entities."""


class NoPlace(Exception):
    """Messages of a type wait whose shards are not known here: nothing was changed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"messages of {name} wait")
        self.name = name


class UnknownTypes(Exception):
    """The cluster knows no types of these names: nothing was deleted."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"unknown: {', '.join(names)}")
        self.names = tuple(names)


# -- One entity ----------------------------------------------------------------------------------


def count_entity(conninfo: Conninfo, type_name: str, entity: str) -> Erasure:
    """Count the rows of an entity. Raises psycopg.Error."""
    with _connected(conninfo, read_only=True) as connection, connection.transaction():
        known = _entity(connection, type_name, entity)
        return Erasure() if known is None else Erasure(*_one(connection, "erase_count", known))


def erase_entity(
    conninfo: Conninfo,
    type_name: str,
    entity: str,
    by: str,
    progress: Callable[[Erasure], object] = bool,
    *,
    events_at_once: int = EVENTS_AT_ONCE,
) -> Erasure:
    """Erase an entity whose home is dead. Raises NodesAlive, or psycopg.Error.

    A living home may hold the entity in memory, so it erases it itself
    (`runtime.hosting.erasure`). The epochs of all shards in which the entity has left rows are
    raised, since it may begin to live in any of them.
    """
    with _connected(conninfo) as connection:
        known = _entity(connection, type_name, entity)
        shards = [] if known is None else _rows(connection, "erase_find", known)
        if known is None or not shards:
            return Erasure()
        homes = [home for _, home in shards]
        if alive := _rows(connection, "erase_homes", {"homes": homes}):
            raise NodesAlive([name for (name,) in alive])
        type_id = known["type_id"]
        params = {"type_id": type_id, "type": type_name, "entity": entity, "by": by}
        seen = {"shards": [shard for shard, _ in shards], "homes": homes}
        fenced = _rows(connection, "erase_fence", {**params, **seen})
        if len(fenced) < len(shards):
            raise NodesAlive
        raised = {
            "type_id": type_id,
            "shards": [each for each, _ in fenced],
            "epochs": [each for _, each in fenced],
        }
        shard, epoch = fenced[0]
        held = {**params, "shards": raised["shards"]}
        held |= {"shard": shard, "epoch": epoch, "at_most": events_at_once}
        erased = Erasure(whole=False)
        while not erased.whole:
            with connection.transaction():
                whole = _one(connection, "erase_held", raised)
                piece = _rows(connection, "erase", {**held, "events_before": erased.events})
                if not piece or whole != (True,):
                    raise NodesAlive
            erased += Erasure(*piece[0])
            progress(erased)
    return erased


def _entity(connection: Connection, type_name: str, entity: str) -> dict[str, Any] | None:
    """Return how statements name an entity; None: the cluster does not know the type."""
    for number, *config in _rows(connection, "types", {}):
        if config[0] == type_name:
            shard = config_of(config).shard_by_hash(entity)
            return {"type_id": number, "entity": entity, "shard": shard}
    return None


def scrub_tables(conninfo: Conninfo) -> None:
    """Free the deleted rows, and remove their values from the planner's statistics. Raises
    psycopg.Error.
    """
    with _connected(conninfo) as connection:
        for table in ("sharding_event", "sharding_snapshot", "sharding_remembered", "sharding_message"):
            connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))


# -- Refusals ------------------------------------------------------------------------------------


def living_hosts(conninfo: Conninfo, types: Sequence[str] | None) -> list[str]:
    """Return the living nodes for which a removal would be refused: those that host any of these
    types; None: all. Raises psycopg.Error.
    """
    with _connected(conninfo, read_only=True) as connection:
        return [name for (name,) in _rows(connection, "remove_alive", {"types": types})]


# -- The cluster's own data ----------------------------------------------------------------------


class Removal(msgspec.Struct, frozen=True):
    """The numbers of rows that were, or would be, removed."""

    homes: int
    remembered: int
    leases: int
    nodes: int
    locations: int = 0
    messages: int = 0


def remove_data(
    conninfo: Conninfo,
    types: Sequence[str] | None = None,
    *,
    by: str = "",
    dry_run: bool = False,
    messages: bool = False,
    placing: Placing | None = None,
) -> Removal:
    """Remove homes, locations and remembered ids of these types; without named types those of all,
    with leases and node rows. Never a journal, and messages and timers only with `messages`: they
    stand in the shards of the present configuration, so they cannot stay there. With `placing` they
    are given other shards, and their types are settled with that configuration.

    Refuses while a node is alive; with named types, while a living node hosts any of them. The rows
    of homes stay with a higher epoch, and the term is raised if no node is alive. So a frozen
    process is fenced forever, also when the shards are given out again. The types may be configured
    differently afterwards. Raises NodesAlive, UnknownTypes, MessagesWait, NoPlace, what a placing
    raises, or psycopg.Error.
    """
    params: dict[str, Any] = {"types": None if types is None else list(types), "by": by}
    params["kept"] = placing is not None
    with _connected(conninfo) as connection, connection.transaction(force_rollback=dry_run):
        if unknown := _rows(connection, "remove_unknown", params):
            raise UnknownTypes([name for (name,) in unknown])
        if dry_run:
            return Removal(*_one(connection, "remove_count", params))
        connection.execute(QUERIES["remove_lock"])
        _refuse_hosts(connection, params["types"])
        if not _rows(connection, "remove_alive", {"types": None}):
            # Where other nodes are alive, their coordinator has no part in these types: it meets
            # the higher epochs. Their entities send messages.
            connection.execute(QUERIES["remove_term"])
            if placing is not None:
                connection.execute(QUERIES["remove_hold"])
        removed = Removal(*_one(connection, "remove_all", params))
        if removed.messages and not messages:
            raise MessagesWait(removed.messages)  # which takes all of it back
        if placing is not None:
            _place_messages(connection, params, placing)
        return removed


def _place_messages(connection: Connection, params: dict[str, Any], placing: Placing) -> None:
    """Give the messages and timers of these types other shards, and settle the types."""
    settled: dict[str, TypeConfig] = {}
    asked = {**params, "after": "", "most": MESSAGES_AT_ONCE}
    while found := _rows(connection, "remove_owners", asked):
        shards = []
        for _, name, entity in found:
            if name not in placing:
                raise NoPlace(name)
            settled[name], shard_of = placing[name]
            shards.append(shard_of(entity))
        asked["after"] = found[-1][0]
        connection.execute(QUERIES["remove_place"], {"ids": [each[0] for each in found], "shards": shards})
    connection.execute(QUERIES["remove_settle"], type_parameters(list(settled.values())))


# -- All that a type has stored ------------------------------------------------------------------


def count_journal(conninfo: Conninfo, type_name: str) -> Erasure:
    """Count the rows of a type, which takes long on a large journal. Raises UnknownTypes."""
    with _connected(conninfo, read_only=True) as connection, connection.transaction():
        return Erasure(*_one(connection, "journal_count", {"type_id": _number(connection, type_name)}))


def remove_journal(
    conninfo: Conninfo,
    type_name: str,
    by: str,
    progress: Callable[[Erasure], object],
    *,
    rows_at_once: int | None = None,
) -> Erasure:
    """Delete a type's events, snapshots, remembered ids, messages and timers. Raises NodesAlive,
    UnknownTypes, or psycopg.Error.

    Refuses while a living node hosts the type; other types go on. The timeline notes how far it
    came. The size of a piece follows the duration of the last one, unless it is given.
    """
    with _connected(conninfo) as connection:
        number = _number(connection, type_name)
        _refuse_hosts(connection, [type_name])
        connection.execute(QUERIES["journal_fence"], {"type_id": number, "type": type_name, "by": by})
        total = Erasure(whole=False)
        rows = rows_at_once or ROWS_AT_FIRST
        try:
            total += _emptied(connection, number, type_name)
            while not total.whole:
                began = time.monotonic()
                with connection.transaction():
                    total += _piece(connection, number, type_name, rows)
                progress(total)
                if rows_at_once is None:
                    rows = next_rows(rows, time.monotonic() - began)
        finally:
            if not connection.closed:
                action = "journal_removed" if total.whole else "journal_partly_removed"
                noted = {"action": action, "type": type_name, "events": total.events, "by": by}
                connection.execute(QUERIES["journal_note"], noted)
    return total


def _piece(connection: Connection, number: int, type_name: str, rows: int) -> Erasure:
    _refuse_hosts(connection, [type_name])
    if not _one(connection, "journal_homeless", {"type_id": number})[0]:
        raise NodesAlive
    params: dict[str, Any] = {"type_id": number, "rows": rows}
    first, bound = _one(connection, "journal_bound", params)
    if bound is None:
        query = "journal_remove_rest"
    else:
        query = "journal_remove_tail" if bound == first else "journal_remove"
        params["bound"] = bound
    events, snapshots, remembered, messages = _one(connection, query, params)
    whole = bound is None and max(snapshots, remembered, messages) < rows
    return Erasure(events, snapshots, remembered, messages, whole)


def _emptied(connection: Connection, number: int, type_name: str) -> Erasure:
    """Empty the partition of the type at once, if it has one and this role may: the server drops
    its files, whatever their size. An empty partition stays, for the type may live again.

    Statements of all types wait behind our wait for the partition, so it is a short one. If the
    partition stays in use, the pieces do what is left.
    """
    if not _rows(connection, "journal_partition", {"type_id": number}):
        return Erasure(whole=False)
    # No shard has a home, so that this stays the number of its events.
    events = _one(connection, "journal_events", {"type_id": number})[0]
    for _ in range(EMPTYING_TRIES):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{round(EMPTYING_LOCK_SECONDS * 1000)}ms'")
                # Behind the beginning of a copy into another layout, which would not see this.
                connection.execute("LOCK TABLE sharding_event IN ROW EXCLUSIVE MODE")
                _refuse_hosts(connection, [type_name])
                if not _one(connection, "journal_homeless", {"type_id": number})[0]:
                    raise NodesAlive
                found = _rows(connection, "journal_partition", {"type_id": number})
                if not found:
                    return Erasure(whole=False)
                connection.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(found[0][0])))
                return Erasure(events, whole=False)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            time.sleep(EMPTYING_PAUSE_SECONDS)
    return Erasure(whole=False)


def next_rows(rows: int, seconds: float) -> int:
    """Return the size of the next piece: towards the aim, at most twice or half of the last one."""
    wanted = rows * PIECE_SECONDS / max(seconds, 0.001)
    return round(min(max(wanted, rows / 2, 100), rows * 2, ROWS_AT_MOST))


def _refuse_hosts(connection: Connection, types: Sequence[str] | None) -> None:
    """Raise NodesAlive with the living nodes that host any of these types; None: with all."""
    if alive := _rows(connection, "remove_alive", {"types": types}):
        raise NodesAlive([name for (name,) in alive])


def _number(connection: Connection, type_name: str) -> int:
    found = _rows(connection, "journal_type", {"type": type_name})
    if not found:
        raise UnknownTypes([type_name])
    return int(found[0][0])


# -- All -----------------------------------------------------------------------------------------


def _rows(connection: Connection, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    return connection.execute(QUERIES[query], params).fetchall()


def _one(connection: Connection, query: str, params: dict[str, Any]) -> tuple[Any, ...]:
    found = _rows(connection, query, params)
    if not found:
        raise psycopg.OperationalError("the server did not say what it removed")
    return found[0]


def _connected(conninfo: Conninfo, *, read_only: bool = False) -> Connection:
    connection = psycopg.connect(**command_parameters(conninfo, "deletion"), autocommit=True)
    if read_only:
        connection.read_only = True
    return connection
