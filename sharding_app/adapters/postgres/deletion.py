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

Where shards lie in further journals (`further`), the coordinator's rows are raised first, then the
rows there, and each journal is deleted by itself. Nothing is deleted before all that are needed
have answered.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from sharding_app.adapters.postgres.connection import Conninfo, open_session
from sharding_app.adapters.postgres.further_journals import (
    NONE,
    Further,
    connect,
    epochs,
    stand,
    used,
    whereabouts_of,
    with_copies,
)
from sharding_app.adapters.postgres.moving_locks import keep_moves_away
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.store import config_of, type_parameters
from sharding_app.adapters.postgres.within import secure
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.ids import EntityId, Epoch, ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN
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


class InFurtherJournals(Exception):
    """Messages would have to move between these journals: nothing was changed."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"shards lie in {', '.join(names)}")
        self.names = tuple(names)


class ShardsMove(Exception):
    """Shards of these types are on their way to another journal: nothing was deleted."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"shards of {', '.join(names)} are being moved to another journal")
        self.names = tuple(names)


class UnknownTypes(Exception):
    """The cluster knows no types of these names: nothing was deleted."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"unknown: {', '.join(names)}")
        self.names = tuple(names)


# -- One entity ----------------------------------------------------------------------------------


def count_entity(conninfo: Conninfo, type_name: str, entity: str, *, further: Further = NONE) -> Erasure:
    """Count the rows of an entity. Raises UnknownJournals, JournalDown, psycopg.Error."""
    with _connected(conninfo, read_only=True) as connection, connection.transaction(), ExitStack() as stack:
        known = _entity(connection, type_name, entity)
        if known is None:
            return Erasure()
        found = Erasure(*_one(connection, "erase_count", known))
        names = _journals_of(connection, type_name, known, further)
        places = _Places(connection, known)
        if not places.lies_in(connection, CLUSTERS_OWN):
            found = Erasure(messages=found.messages)  # from outside; the others are a copy
        for name in names:
            journal = stack.enter_context(connect(name, further, "deletion", read_only=True))
            if places.lies_in(journal, name):
                found += Erasure(*_one(journal, "erase_count", known))
        return found


def erase_entity(
    conninfo: Conninfo,
    type_name: str,
    entity: str,
    by: str,
    progress: Callable[[Erasure], object] = bool,
    *,
    events_at_once: int = EVENTS_AT_ONCE,
    further: Further = NONE,
) -> Erasure:
    """Erase an entity whose home is dead. Raises NodesAlive, UnknownJournals, JournalDown, or
    psycopg.Error.

    A living home may hold the entity in memory, so it erases it itself
    (`runtime.hosting.erasure`). The epochs of all shards in which the entity has left rows are
    raised, since it may begin to live in any of them. Copies that a move has made stay as they are
    (`left_copies`).
    """
    with _connected(conninfo) as connection, ExitStack() as stack:
        known = _entity(connection, type_name, entity)
        if known is None:
            return Erasure()
        places = _Places(connection, known)
        is_here = places.lies_in(connection, CLUSTERS_OWN)
        find = "erase_find" if is_here else "erase_outside_find"
        found = {connection: dict(_rows(connection, find, known))}
        shards = dict(found[connection])
        for name in _journals_of(connection, type_name, known, further):
            journal = stack.enter_context(connect(name, further, "deletion"))
            if not places.lies_in(journal, name):
                continue
            found[journal] = dict(_rows(journal, "erase_find", known))
            # Whose home a shard has is said by the coordinator's row.
            there = epochs(connection, known["type_id"], [*found[journal]])
            shards |= {shard: home for shard, (_, home) in there.items()}
        if not shards:
            _secure_all([*found])
            return Erasure()
        ordered = sorted(shards)
        homes = [shards[each] for each in ordered]
        if alive := _rows(connection, "erase_homes", {"homes": homes}):
            raise NodesAlive([name for (name,) in alive])
        type_id = known["type_id"]
        params = {"type_id": type_id, "type": type_name, "entity": entity, "by": by}
        fenced = dict(_rows(connection, "erase_fence", {**params, "shards": ordered, "homes": homes}))
        if len(fenced) < len(shards) or _Places(connection, known).differ(places, ordered):
            raise NodesAlive  # a shard that has moved meanwhile has left a copy: the entity lies elsewhere
        for journal, there_too in found.items():
            raised = {each: fenced[each] for each in there_too}
            if journal is not connection and not stand(connection, journal, type_name, type_id, raised):
                raise NodesAlive
        total = Erasure()
        for journal, left in reversed(found.items()):
            piece = Erasure()
            if left:
                raised = {each: fenced[each] for each in sorted(left)}
                statement = "erase" if is_here or journal is not connection else "erase_outside"
                piece = _erase(journal, statement, params, raised, events_at_once, total, progress)
            secure(journal)
            if left and journal is not connection:
                _note_erased(connection, params, piece)
            total += piece
    return total


def _secure_all(looked_at: Sequence[Connection]) -> None:
    """Wait for the standbys of databases in which nothing was found. A former call may have erased
    all of it, and that is visible before a standby has it.
    """
    for each in reversed(looked_at):
        secure(each)


def _erase(
    connection: Connection,
    statement: str,
    params: dict[str, Any],
    raised: Mapping[ShardId, Epoch],
    events_at_once: int,
    before: Erasure,
    progress: Callable[[Erasure], object],
) -> Erasure:
    """Erase what one database has of an entity, in pieces. These shards of it are fenced."""
    shards = [*raised]
    seen = {"type_id": params["type_id"], "shards": shards, "epochs": [*raised.values()]}
    held = {
        **params,
        "shards": shards,
        "shard": shards[0],
        "epoch": raised[shards[0]],
        "at_most": events_at_once,
    }
    erased = Erasure(whole=False)
    while not erased.whole:
        with connection.transaction():
            whole = _one(connection, "erase_held", seen)
            piece = _rows(
                connection,
                statement,
                {**held, "events_before": erased.events, "snapshots_before": erased.snapshots},
            )
            if not piece or whole != (True,):
                raise NodesAlive
        erased += Erasure(*piece[0])
        progress(before + erased)
    return erased


def _note_erased(connection: Connection, params: dict[str, Any], erased: Erasure) -> None:
    """Note in the timeline what was erased in a further journal, which has none."""
    detail = f"{erased.events} events, {erased.snapshots} snapshots, by {params['by']}"
    note = {"action": "entity_erased", "type": params["type"], "detail": detail}
    connection.execute(QUERIES["archive_note"], note)


def _journals_of(
    connection: Connection, type_name: str, known: Mapping[str, Any], further: Further
) -> list[str]:
    """Return the further journals that may have rows of an entity: that of its shard, or those of
    its type, where its shard is not known here.
    """
    names = used(connection, further, [type_name])
    if not names or known["shard"] is None:
        return names
    found = _rows(connection, "journal_of", dict(known))
    return [name for (name,) in found if name]


class _Places:
    """Where an entity lies. Other journals may have a copy of its rows, which a move has made."""

    def __init__(self, cluster: Connection, known: Mapping[str, Any]) -> None:
        self._known = known
        self._places = whereabouts_of(_rows(cluster, "whereabouts", dict(known))[0])

    def lies_in(self, journal: Connection, name: str) -> bool:
        """Tell whether the rows that a journal has of the entity are no copy. Where its shard is
        not known here, they say it themselves.
        """
        if self._places.by_hash:
            return self._places.journal_of(self._known["entity"], 0) == name
        shards = [shard for (shard,) in _rows(journal, "erase_shards", dict(self._known))]
        lying = {self._places.journal_of(self._known["entity"], shard) for shard in shards}
        return name in lying or not lying

    def differ(self, others: "_Places", shards: Sequence[ShardId]) -> bool:
        """Tell whether the entity lies elsewhere by these, whichever of the shards is its own, or
        has another shard since a resize.
        """
        entity, shard = self._known["entity"], self._known["shard"]
        if self._places.by_hash and self._places.shard_of(entity, 0) != shard:
            return True
        return any(
            self._places.journal_of(entity, each) != others._places.journal_of(entity, each)
            for each in shards
        )


def _entity(connection: Connection, type_name: str, entity: str) -> dict[str, Any] | None:
    """Return how statements name an entity; None: the cluster does not know the type."""
    for number, *config in _rows(connection, "types", {}):
        if config[0] == type_name:
            shard = config_of(config).shard_by_hash(entity)
            return {"type_id": number, "entity": entity, "shard": shard}
    return None


def scrub_tables(conninfo: Conninfo, *, further: Further = NONE) -> None:
    """Free the deleted rows, and remove their values from the planner's statistics. Raises
    psycopg.Error.
    """
    with _connected(conninfo) as connection, ExitStack() as stack:
        names = with_copies(connection, further)
        every = [connection, *(stack.enter_context(connect(name, further, "deletion")) for name in names)]
        for each, table in product(
            every, ("sharding_event", "sharding_snapshot", "sharding_remembered", "sharding_message")
        ):
            each.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))


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
    further: Further = NONE,
) -> Removal:
    """Remove homes, locations and remembered ids of these types; without named types those of all,
    with leases and node rows. Never a journal, and messages and timers only with `messages`: they
    stand in the shards of the present configuration, so they cannot stay there. With `placing` they
    are given other shards, and their types are settled with that configuration.

    Refuses while a node is alive; with named types, while a living node hosts any of them. The rows
    of homes stay with a higher epoch, and the term is raised if no node is alive. So a frozen
    process is fenced forever, also when the shards are given out again. The types may be configured
    differently afterwards. Copies that shards have left in former journals stay, as all history
    does. Refuses while shards of the types move. Raises NodesAlive, ShardsMove, UnknownTypes,
    MessagesWait, NoPlace, what a placing raises, or psycopg.Error.

    With further journals a type that has a history keeps its configuration: with other shards,
    entities would be looked for in journals that do not have them. Nor can a placing move messages
    from one journal to another (InFurtherJournals).
    """
    params: dict[str, Any] = {"types": None if types is None else list(types), "by": by}
    params["kept"] = placing is not None
    with _connected(conninfo) as connection:
        with connection.transaction(force_rollback=dry_run):
            if unknown := _rows(connection, "remove_unknown", params):
                raise UnknownTypes([name for (name,) in unknown])
            names = with_copies(connection, further, params["types"])
            if names and placing is not None:
                raise InFurtherJournals(names)
            journals = _Journals(connection, params["types"], further, names)
            if dry_run:
                return journals.counted(Removal(*_one(connection, "remove_count", params)))
            connection.execute(QUERIES["remove_lock"])
            _refuse_hosts(connection, params["types"])
            _refuse_moves(connection, params["types"])
            if not _rows(connection, "remove_alive", {"types": None}):
                # Where other nodes are alive, their coordinator has no part in these types: it
                # meets the higher epochs. Their entities send messages.
                connection.execute(QUERIES["remove_term"])
                if placing is not None:
                    connection.execute(QUERIES["remove_hold"])
            removed = journals.counted(Removal(*_one(connection, "remove_all", params)))
            if removed.messages and not messages:
                raise MessagesWait(removed.messages)  # which takes all of it back
            if placing is not None:
                _place_messages(connection, params, placing)
            removed = journals.removed(removed)
        secure(connection)  # also where a former call has left nothing
        return removed


class _Journals:
    """The further journals of types whose data is removed, in a transaction on the cluster's
    database.
    """

    def __init__(
        self, cluster: Connection, types: Sequence[str] | None, further: Further, names: Sequence[str]
    ) -> None:
        self._cluster = cluster
        self._further = further
        self._names = names
        wanted = {"types": types}
        self._types = dict(_rows(cluster, "journal_types", wanted)) if further else {}
        self._ids = list(self._types)

    def counted(self, found: Removal) -> Removal:
        """Add what further journals have, but for copies that moves have made."""
        remembered, messages = found.remembered, found.messages
        for name in self._names:
            copied = _rows(self._cluster, "left_copied", {"journal": name})
            without = {
                "copied_types": [number for number, _ in copied],
                "copied_shards": [shard for _, shard in copied],
            }
            with connect(name, self._further, "deletion", read_only=True) as journal:
                numbers = _one(journal, "journal_waits", {"type_ids": self._ids, **without})
            remembered, messages = remembered + numbers[0], messages + numbers[1]
        return msgspec.structs.replace(found, remembered=remembered, messages=messages)

    def removed(self, found: Removal) -> Removal:
        """Fence the types in further journals, and remove their rows there. If a later journal
        fails, the cluster's rows stay as they are, and the command is run again.
        """
        if not self._further:
            return found
        histories = {
            number for (number,) in _rows(self._cluster, "journal_histories", {"type_ids": self._ids})
        }
        with ExitStack() as stack:
            journals = {
                name: stack.enter_context(connect(name, self._further, "deletion")) for name in self._names
            }
            with ExitStack() as transactions:
                for name, journal in journals.items():
                    transactions.enter_context(journal.transaction())
                    for type_id, type_name in self._types.items():
                        found_there = epochs(self._cluster, type_id, journal=name)
                        raised = {shard: epoch for shard, (epoch, _) in found_there.items()}
                        if raised and not stand(self._cluster, journal, type_name, type_id, raised):
                            raise NodesAlive
                    _one(journal, "journal_forget", {"type_ids": self._ids})
                    histories |= {
                        number for (number,) in _rows(journal, "journal_histories", {"type_ids": self._ids})
                    }
            for journal in journals.values():
                secure(journal)  # the cluster's rows go next
        _rows(self._cluster, "journal_settled", {"type_ids": sorted(histories)})
        return found


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


def count_journal(conninfo: Conninfo, type_name: str, *, further: Further = NONE) -> Erasure:
    """Count the rows of a type, copies that moves have made among them. It takes long on a large
    journal. Raises UnknownTypes.
    """
    with _connected(conninfo, read_only=True) as connection, connection.transaction():
        wanted = {"type_id": _number(connection, type_name)}
        found = Erasure(*_one(connection, "journal_count", wanted))
        for name in with_copies(connection, further, [type_name]):
            with connect(name, further, "deletion", read_only=True) as journal:
                found += Erasure(*_one(journal, "journal_count", wanted))
        return found


def has_copies(conninfo: Conninfo, type_name: str) -> bool:
    """Tell whether moves have made copies of shards of a type. Raises psycopg.Error."""
    with _connected(conninfo, read_only=True) as connection:
        return bool(_rows(connection, "left_moves", {"types": [type_name]}))


def remove_journal(
    conninfo: Conninfo,
    type_name: str,
    by: str,
    progress: Callable[[Erasure], object],
    *,
    rows_at_once: int | None = None,
    further: Further = NONE,
) -> Erasure:
    """Delete a type's events, snapshots, remembered ids, messages and timers, and copies that its
    shards have left in former journals. Raises NodesAlive, ShardsMove, UnknownTypes, or
    psycopg.Error.

    Refuses while a living node hosts the type, or shards of it move, and lets no move of them begin
    meanwhile; other types go on. The timeline notes how far it came. The size of a piece follows
    the duration of the last one, unless it is given.
    """
    with _connected(conninfo) as connection, ExitStack() as stack:
        number = _number(connection, type_name)
        if not keep_moves_away(connection, number):
            raise ShardsMove([type_name])
        names = with_copies(connection, further, [type_name])
        journals = {name: stack.enter_context(connect(name, further, "deletion")) for name in names}
        _refuse_hosts(connection, [type_name])
        _refuse_moves(connection, [type_name])
        connection.execute(QUERIES["journal_fence"], {"type_id": number, "type": type_name, "by": by})
        for name, journal in journals.items():
            raised = {shard: epoch for shard, (epoch, _) in epochs(connection, number, journal=name).items()}
            if not stand(connection, journal, type_name, number, raised):
                raise NodesAlive
        emptying = _Emptying(connection, number, type_name, rows_at_once, progress)
        try:
            for journal in (*journals.values(), connection):
                emptying.run(journal)
                secure(journal)  # also for rows that a former call has deleted: copies are forgotten next
            _rows(connection, "left_gone", {"type_id": number})
        finally:
            total = emptying.total
            if not connection.closed:
                action = "journal_removed" if total.whole else "journal_partly_removed"
                noted = {"action": action, "type": type_name, "events": total.events, "by": by}
                connection.execute(QUERIES["journal_note"], noted)
        secure(connection)
    return total


class _Emptying:
    """Deletes what has been stored of a type, one database after the other; `cluster` leads to the
    rows of nodes.
    """

    _after = _after_snapshot = ""
    "Events, and snapshots, of entities before these are deleted. Their index entries may be left."

    def __init__(
        self,
        cluster: Connection,
        number: int,
        name: str,
        rows: int | None,
        progress: Callable[[Erasure], object],
    ) -> None:
        self.total = Erasure(whole=False)
        self._cluster = cluster
        self._number = number
        self._name = name
        self._rows_given = rows
        self._progress = progress

    def run(self, connection: Connection) -> None:
        """Delete what this database has."""
        self._after = self._after_snapshot = ""
        self.total = msgspec.structs.replace(self.total, whole=False)
        if _rows(connection, "journal_partition", {"type_id": self._number}):
            self._in_pieces(connection, self._snapshots)
            emptied = self._emptied(connection)
            self.total += emptied
        self._in_pieces(connection, self._piece)

    def _in_pieces(self, connection: Connection, piece: Callable[[Connection, int], Erasure | None]) -> None:
        """Delete piece by piece, until nothing is left or there is no piece."""
        rows = self._rows_given or ROWS_AT_FIRST
        while not self.total.whole:
            began = time.monotonic()
            with connection.transaction():
                self._refuse(connection)
                found = piece(connection, rows)
            if found is None:
                return
            self.total += found
            self._progress(self.total)
            if self._rows_given is None:
                rows = next_rows(rows, time.monotonic() - began)

    def _refuse(self, connection: Connection) -> None:
        _refuse_hosts(self._cluster, [self._name])
        if not _one(connection, "journal_homeless", {"type_id": self._number})[0]:
            raise NodesAlive

    def _piece(self, connection: Connection, rows: int) -> Erasure:
        params: dict[str, Any] = {"type_id": self._number, "rows": rows, "after": self._after}
        first, bound = _one(connection, "journal_bound", params)
        if bound is None:
            if (piece := self._snapshots(connection, rows)) is not None:
                return piece
            query = "journal_remove_rest"
        else:
            query = "journal_remove_tail" if bound == first else "journal_remove"
            params["bound"] = bound
        events, snapshots, remembered, messages = _one(connection, query, params)
        self._after = bound or self._after
        whole = bound is None and max(remembered, messages) < rows
        return Erasure(events, snapshots, remembered, messages, whole)

    def _snapshots(self, connection: Connection, rows: int) -> Erasure | None:
        """Delete a piece of the snapshots; None: there are no more. They go before the events that
        they cover: a snapshot beyond the last event would bring the entity back.
        """
        wanted = {"type_id": self._number, "rows": rows, "after": self._after_snapshot}
        events, snapshots, last = _one(connection, "journal_remove_snapshots", wanted)
        self._after_snapshot = last or self._after_snapshot
        return Erasure(events, snapshots, whole=False) if snapshots else None

    def _emptied(self, connection: Connection) -> Erasure:
        """Empty the partition of the type at once, if this role may: the server drops its files,
        whatever their size. An empty partition stays, for the type may live again.

        Statements of all types wait behind our wait for the partition, so it is a short one. If the
        partition stays in use, the pieces do what is left.
        """
        wanted = {"type_id": self._number}
        # No shard has a home, so that this stays the number of its events.
        events = _one(connection, "journal_events", wanted)[0]
        for _ in range(EMPTYING_TRIES):
            try:
                with connection.transaction():
                    connection.execute(f"SET LOCAL lock_timeout = '{round(EMPTYING_LOCK_SECONDS * 1000)}ms'")
                    # Behind the beginning of a copy into another layout, which would not see this.
                    connection.execute("LOCK TABLE sharding_event IN ROW EXCLUSIVE MODE")
                    self._refuse(connection)
                    found = _rows(connection, "journal_partition", wanted)
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


def _refuse_moves(connection: Connection, types: Sequence[str] | None) -> None:
    """Raise ShardsMove while shards of any of these types are on their way to another journal."""
    found = _rows(connection, "left_moves", {"types": types})
    if names := sorted({name for _, name, *_, step in found if step != "moved"}):
        raise ShardsMove(names)


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
    connection = open_session(conninfo, "deletion")
    if read_only:
        connection.read_only = True
    return connection
