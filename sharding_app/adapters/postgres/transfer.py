"""Reads what a type has stored in pages, and puts it back, for the commands of operators
(`sharding_export`, `sharding_archive`, `sharding_import`).

Contract: a page is one short statement along a key, so a reading holds nothing up however long it
lasts. Of each entity it has all events up to the moment at which its page was read. Rows are put
back only while no living node hosts the type, in short transactions that hold the type's shards, at
the epochs that the beginning has raised. A row that is there already is compared, and never
changed: a row that differs, or an event that would leave a gap, ends the import (`Contradiction`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import psycopg

from sharding_app.adapters.postgres.connection import Conninfo, open_session
from sharding_app.adapters.postgres.deletion import NodesAlive, ShardsMove, UnknownTypes
from sharding_app.adapters.postgres.moving_locks import keep_moves_away
from sharding_app.adapters.postgres.sql import HIGHEST, QUERIES
from sharding_app.adapters.postgres.store import config_of
from sharding_app.adapters.postgres.within import secure
from sharding_app.protocol.ids import EntityId, ShardId
from sharding_app.protocol.records import TypeConfig

PAGE_ROWS = 500
HIGHEST_NUMBER = 2**63 - 1

Connection = psycopg.Connection[tuple[Any, ...]]


class Resizing(Exception):
    """The shards of the type change just now, and rows with them."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is being resized")
        self.name = name


class Moved(Resizing):
    """Shards of the type have moved to another journal meanwhile."""

    def __init__(self, name: str) -> None:
        Exception.__init__(self, f"shards of {name} have just moved to another journal")
        self.name = name


class OtherEvents(Exception):
    """Other events would be deleted than those that were read for the file. Nothing is deleted."""

    def __init__(self, entity: EntityId, first: int | None, last: int | None) -> None:
        super().__init__(
            f"Of {entity!r} the events {first} to {last} would be deleted, and others were read for the file. All stay. Report this."
        )


class Contradiction(Exception):
    """The journal has another row in the place of one that is to be put back, or a gap before
    it.
    """


class KnownType(NamedTuple):
    number: int
    config: TypeConfig


class Age(NamedTuple):
    """Which events are old: the seconds after which one is, and how many of the newest stay."""

    seconds: float
    keep: int


class StoredSnapshot(NamedTuple):
    entity: str
    seq: int
    state: str
    at: str


class StoredRow(NamedTuple):
    """An event as it is stored, with its time."""

    entity: str
    seq: int
    name: str
    version: int
    payload: str
    command_id: str | None
    command: str | None
    reply: bytes | None
    partial: bool
    at: str


class Transfer:
    """One connection. `with Transfer(...) as transfer`. All methods raise psycopg.Error."""

    def __init__(self, conninfo: Conninfo, *, read_only: bool = False) -> None:
        self._conninfo = conninfo
        self._read_only = read_only
        self._connection: Connection

    def __enter__(self) -> "Transfer":
        self._connection = open_session(self._conninfo, "transfer")
        self._connection.read_only = self._read_only
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def type(self, name: str) -> KnownType:
        """Return a type that the cluster knows. Raises UnknownTypes."""
        for number, *config in self._rows("types", {}):
            if config[0] == name:
                known = config_of(config)
                if known.wanted:
                    raise Resizing(name)
                return KnownType(number, known)
        raise UnknownTypes([name])

    def same_numbers(self, known: KnownType) -> None:
        """Raise Resizing if shards of the type have changed since it was looked up: rows that are
        found by their shards may have been missed.
        """
        if self.type(known.config.name).config.numbering != known.config.numbering:
            raise Resizing(known.config.name)

    def lies_here(self, entity: EntityId, written: ShardId) -> bool:
        """Tell whether rows of an entity are no copy that a move has made; `written`: the shard
        that stands in them.
        """
        return True

    def cluster_id(self) -> str:
        found = self._rows("known_cluster_id", {})
        return str(found[0][0]) if found else ""

    # -- Reading -----------------------------------------------------------------------------------

    def since(self) -> str:
        """Return the time from which a snapshot may be missing in a reading that begins now."""
        return str(self._rows("export_since", {})[0][0])

    def snapshots(
        self, number: int, entity: str | None = None, after: tuple[str, int] = ("", 0)
    ) -> Iterator[StoredSnapshot]:
        """Read a type's snapshots, or an entity's, after a key."""
        for *row, shard in self._paged("export_snapshots", number, entity, after):
            if self.lies_here(row[0], shard):
                yield StoredSnapshot(*row)

    def events(
        self, number: int, entity: str | None = None, after: tuple[str, int] = ("", 0)
    ) -> Iterator[StoredRow]:
        """Read a type's events, or an entity's, after a key."""
        for *row, shard in self._paged("export_events", number, entity, after):
            if self.lies_here(row[0], shard):
                yield StoredRow(*row)

    def late(self, number: int, entities: Sequence[str], since: str) -> set[tuple[str, int]]:
        """Return which snapshots of these entities a reading may have missed that began at
        `since`.
        """
        wanted = {"type_id": number, "entities": list(entities), "since": since}
        return {(one, seq) for one, seq in self._rows("export_late", wanted)}

    def remembered(self, number: int, entity: str | None, shards: range, after: str = "") -> Iterator[str]:
        """Read the remembered ids of these shards of a type, shard by shard, or whether an entity
        is remembered in one of them. `after` is an id of the first shard.
        """
        values: dict[str, Any] = {
            "type_id": number, "from": entity or "", "upto": entity or HIGHEST, "limit": PAGE_ROWS,
        }  # fmt: skip
        for shard in shards:
            last, rows = after if shard == shards.start else "", [("",)] * PAGE_ROWS
            while len(rows) == PAGE_ROWS:
                values |= {"shard": shard, "last_shard": shard, "entity": last}
                rows = self._rows("export_remembered", values)
                for (found,) in rows:
                    yield found
                    last = found

    def _paged(
        self, query: str, number: int, entity: str | None, after: tuple[str, int]
    ) -> Iterator[tuple[Any, ...]]:
        begin = after if entity is None else max(after, (entity, 0))
        values = {"type_id": number, "upto": HIGHEST if entity is None else entity, "limit": PAGE_ROWS}
        while True:
            rows = self._rows(query, {**values, "entity": begin[0], "seq": begin[1]})
            yield from rows
            if len(rows) < PAGE_ROWS:
                return
            begin = rows[-1][0], rows[-1][1]

    # -- Moving out --------------------------------------------------------------------------------

    def old_entities(self, number: int, entity: str | None, age: Age) -> Iterator[tuple[str, int]]:
        """Read which entities of a type have old events that a snapshot covers, in pages, and at
        most how many.
        """
        after, bounds = "", {"first": entity or "", "last": entity or HIGHEST}
        wanted = {"type_id": number, "window": age.seconds, "keep": age.keep, "limit": PAGE_ROWS, **bounds}
        while True:
            rows = self._rows("trimmable", {**wanted, "after": after})
            for one, may_go, _, events, shard in rows:
                if may_go and self.lies_here(one, shard):
                    yield one, events
            if not rows or rows[0][2] < PAGE_ROWS:
                return
            after = rows[-1][0]

    def move_page(
        self, number: int, entity: str, age: Age, write: Callable[[list[StoredRow]], object]
    ) -> bool:
        """Delete the oldest events of an entity, as far as they may go, once `write` has stored
        them. False: nothing was left to move. Raises OtherEvents.

        Both statements see the same rows: where a node deletes some of them meanwhile, this page is
        read again.
        """
        while True:
            try:
                with self._connection.transaction():
                    self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    rows = self._rows("export_events", {
                        "type_id": number, "entity": entity, "seq": 0, "upto": entity, "limit": PAGE_ROWS,
                    })  # fmt: skip
                    gone, first, last = self._trim(number, entity, HIGHEST_NUMBER, age, PAGE_ROWS)
                    page = [StoredRow(*each) for *each, _ in rows[:gone]]
                    if page:
                        if (page[0].seq, page[-1].seq) != (first, last):
                            raise OtherEvents(entity, first, last)
                        write(page)
                return gone > 0
            except psycopg.errors.SerializationFailure:
                continue

    def move_through(self, number: int, entity: str, seq: int, age: Age) -> None:
        """Delete an entity's events up to one that is on disk, as far as they may go."""
        while self._trim(number, entity, seq + 1, age, PAGE_ROWS)[0]:
            pass

    def _trim(
        self, number: int, entity: str, before: int, age: Age, limit: int
    ) -> tuple[int, int | None, int | None]:
        """Return how many events are deleted, and the numbers of the first and the last one."""
        wanted = {"type_id": number, "entity": entity, "before": before, "window": age.seconds}
        ((count, first, last),) = self._rows("trim_events", {**wanted, "keep": age.keep, "limit": limit})
        return count, first, last

    # -- Putting back ------------------------------------------------------------------------------

    def begin(self, number: int, name: str, by: str, action: str) -> None:
        """Fence the type, and note the intent (`action`). No shard of it moves to another journal
        as long as the connection lasts. Raises NodesAlive, ShardsMove.
        """
        if not keep_moves_away(self._connection, number):
            raise ShardsMove([name])
        self._refuse_hosts(name)
        with self._connection.transaction():
            wanted = {"type_id": number, "type": name, "by": by, "action": action}
            self._connection.execute(QUERIES["import_begin"], wanted)

    def refuse_others(self, known: KnownType, firsts: Mapping[EntityId, int], shards: Sequence[int]) -> None:
        """Refuse entities that have a history of their own; `firsts`: the numbers of their first
        events in the file. Raises Contradiction.
        """
        given = {"type_id": known.number, "entities": list(firsts), "firsts": list(firsts.values())}
        for (what,) in self._rows("import_others", given):
            raise Contradiction(what)

    def compare_events(self, known: KnownType, rows: Sequence[StoredRow], shards: Sequence[int]) -> None:
        """Compare a page of the file with the journal's events of the same numbers. A snapshot of
        the file must not stand in front of others. Raises Contradiction.
        """
        for (what,) in self._rows("import_differs", {"type_id": known.number, **_columns(rows)}):
            raise Contradiction(what)

    def put_snapshots(self, known: KnownType, rows: Sequence[StoredSnapshot], shards: Sequence[int]) -> int:
        """Put a page back; return how many were missing. Raises NodesAlive, Contradiction."""
        return self._put(
            known,
            "import_snapshots",
            {
                "entities": [each.entity for each in rows],
                "seqs": [each.seq for each in rows],
                "shards": list(shards),
                "states": [each.state for each in rows],
                "ats": [each.at for each in rows],
            },
        )

    def put_events(
        self, known: KnownType, rows: Sequence[StoredRow], shards: Sequence[int], *, archived: bool = False
    ) -> int:
        """Put a page back; return how many were missing. Raises NodesAlive, Contradiction.

        Projections had passed what was archived, so none of them learns of it again.
        """
        values = {**_columns(rows), "shards": list(shards), "ats": [each.at for each in rows]}
        here = {(each.entity, each.seq) for each in rows}
        first = [each for each in rows if (each.entity, each.seq - 1) not in here]
        before = {"entities": [each.entity for each in first], "seqs": [each.seq for each in first]}
        return self._put(known, "import_events", values, before, silent=archived)

    def put_remembered(self, known: KnownType, entities: Sequence[str], shards: Sequence[int]) -> int:
        """Put a page back; return how many were missing. Raises NodesAlive."""
        return self._put(known, "import_remembered", {"entities": list(entities), "shards": list(shards)})

    def note(self, action: str, name: str, events: int, by: str) -> None:
        self._connection.execute(
            QUERIES["journal_note"], {"action": action, "type": name, "events": events, "by": by}
        )

    def secure(self) -> None:
        """Wait until a synchronous standby has all that was found or written here."""
        secure(self._connection)

    def _put(
        self,
        known: KnownType,
        query: str,
        values: dict[str, Any],
        before: dict[str, Any] | None = None,
        *,
        silent: bool = False,
    ) -> int:
        given = {"type_id": known.number, **values}
        with self._connection.transaction():
            self._refuse_hosts(known.config.name)
            if not self._rows("journal_homeless", {"type_id": known.number})[0][0]:
                raise NodesAlive
            self.same_numbers(known)
            # A durable state is its last value: former ones are deleted, and nothing covers them.
            if before is not None and known.config.kind != "durable_state":
                for (what,) in self._rows("import_gaps", {"type_id": known.number, **before}):
                    raise Contradiction(what)
            number, differs = self._rows(query, given)[0]
            if differs is not None:
                raise Contradiction(differs)
            if silent:
                self._connection.execute(QUERIES["import_silent"], {"type_id": known.number})
        return int(number)

    def _refuse_hosts(self, name: str) -> None:
        if alive := self._rows("remove_alive", {"types": [name]}):
            raise NodesAlive([each for (each,) in alive])

    def _rows(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._connection.execute(QUERIES[query], params).fetchall()


def _columns(rows: Sequence[StoredRow]) -> dict[str, Any]:
    """Return what statements compare of events, by columns."""
    return {
        "entities": [each.entity for each in rows],
        "seqs": [each.seq for each in rows],
        "names": [each.name for each in rows],
        "versions": [each.version for each in rows],
        "payloads": [each.payload for each in rows],
        "command_ids": [each.command_id for each in rows],
        "commands": [each.command for each in rows],
        "replies": [each.reply for each in rows],
        "partials": [each.partial for each in rows],
    }
