"""`ports.journal.Journal` on PostgreSQL: appends on one connection or several, recovery on another,
everything else on one more.

An append is one statement on an autocommit connection; the fence trigger judges it in the same
transaction. After a lost connection nothing is known: a statement may still execute. `settle` ends
the old server process of that connection, sees it gone, and reads one row of the batch back: all of
a batch is committed or none. Appends on the other connections are not touched.

Visible is not acknowledged. With synchronous replication a commit waits for a standby after it has
become durable here. Its row is hidden during the wait, but not forever: when the waiting server
process is ended, by `settle` itself, by the burial of its node or by a restart of the server, the
row becomes visible although the standby may lack it, and a failover may still lose it. So a row
that was only seen proves nothing. In two places a node sees rows that the server has not
acknowledged to it. Each makes a commit of its own first, whose acknowledgement covers everything
before it in the log:

* `settle` finds the row of its own append.
* `secure` is called between the reading of a shard's row and the start of that shard. All commits
  of former homes are older than the epoch in that row, since the fence holds the row while it
  commits. So one such commit covers every event, snapshot and stored reply that the new home will
  ever read of them. Its later reads are of its own commits, which were acknowledged or settled.

Messages and timers need no more. A row that a target's home sees may not be acknowledged yet, but
the commit that takes it comes after it in the log, so its acknowledgement covers both. A row that
is seen to be gone may come back with a failover: then the lineage is another one, and what is in
memory about it is dropped with the shards.

The usual path pays nothing: an append has its own acknowledgement, and a start of shards costs one
small commit for each message that starts them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg.types.string import ByteaBinaryLoader

from sharding_app.adapters.lookups import Lookup, Lookups
from sharding_app.adapters.postgres.appending import Appending, write_bytes_at_once
from sharding_app.adapters.postgres.appending_messages import (
    AppendingMessages,
    discard_parameters,
    in_utc,
    pending,
)
from sharding_app.adapters.postgres.arrays import register_arrays
from sharding_app.adapters.postgres.connection import Connection, Conninfo, Line, is_idle
from sharding_app.adapters.postgres.errors import LOST, explain, has_failed, verdict
from sharding_app.adapters.postgres.long_resizes import ANSWER_SECONDS as RESIZE_SECONDS
from sharding_app.adapters.postgres.long_resizes import LongResizes
from sharding_app.adapters.postgres.sql import HIGHEST, QUERIES
from sharding_app.adapters.postgres.together import Together
from sharding_app.ports.deliveries import (
    ASIDE_PAIRS,
    Claim,
    MessageChanges,
    MessageRow,
    MessagesGone,
    Overdue,
    Page,
    PairKey,
    ShardKey,
    Taking,
    TimerKey,
)
from sharding_app.ports.journal import (
    EVERYTHING,
    TRIM_LIMIT,
    Archival,
    Bounds,
    Erasure,
    EventRow,
    Former,
    History,
    JournalOfAnother,
    JournalUnavailable,
    Mark,
    Outcome,
    Owned,
    Reading,
    RowRefused,
    ShardsFenced,
    ShardsLocked,
    Snapshot,
    StoredEvent,
    Taken,
    Trimmable,
    Wanted,
    fast_maker,
)
from sharding_app.protocol.delivery.foreign import Standing, TakenMark
from sharding_app.protocol.following import FollowedEvent
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, is_entity_id
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Backend, Lineage, StoredShard

T = TypeVar("T")

PAGE_BYTES = 8 * 1024 * 1024
"""Most bytes of arguments in a page of what is due, after its first row."""
PAGE_ROWS_EACH = 50
"""Least rows that such a page may have of one shard."""
_shards = msgspec.json.Decoder(list[ShardKey]).decode
_times = msgspec.json.Decoder(list[tuple[int, ShardId, int]]).decode
_pairs = msgspec.json.Decoder(list[PairKey]).decode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS_AT_ONCE = 2000
"""Rows made into objects before the event loop may turn."""
LEAST_BUSY = -1
"""The connection for appends that is used least: the writer prefers those of a lower number."""
_LOOK_AGAIN_SECONDS = 0.005
_MICROSECOND = timedelta(microseconds=1)
_MAX_AGE_MS = 10 * 365 * 24 * 3_600_000
_HEADER_BYTES = 4
"""The server's sizes include these bytes, or one of them, for each document."""
_event = fast_maker(StoredEvent)


WATCH_SECONDS = 2.0
"""A further journal that does not answer for longer is not used. Less than a node waits until it
steps aside."""
LOCK_TIMEOUT_SECONDS = 0.2
"""Seconds that an append waits for a shard's row, and all other commits in it: far less than
callers wait. The coordinator holds rows for some milliseconds."""


async def _json_as_bytes(connection: Connection) -> None:
    """Return documents as the bytes that were stored, not decoded."""
    connection.adapters.register_loader("json", ByteaBinaryLoader)


async def _beside(connection: Connection) -> None:
    await _json_as_bytes(connection)
    register_arrays(connection.adapters)


async def _only_reads(connection: Connection) -> None:
    """Let nothing be written. All statements go along an index, also with a plan that is kept from
    the time when the tables were almost empty. Plans are kept: with many partitions the server
    would plan each execution anew, which takes longer than the read (measured).
    """
    await _json_as_bytes(connection)
    await connection.execute(
        "SET default_transaction_read_only = on; SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan"
    )


class _LateOnes(Exception):
    """A statement whose answer was lost may still execute: the one that raises this was not
    sent.
    """


_AtHome = tuple[int, ShardId, Epoch, Incarnation]


class PostgresJournal:
    def __init__(
        self,
        conninfo: Conninfo,
        *,
        owner: str = "",
        connections: int = 1,
        connect_seconds: float = 5.0,
        answer_seconds: float = 10.0,
        lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`connections`: the number of those for appends. `now`: the process's clock, by which the
        ages of commands are counted; None: the loop's.
        """
        line = partial(
            Line,
            conninfo,
            owner=owner,
            connect_seconds=connect_seconds,
            answer_seconds=answer_seconds,
            settings={"lock_timeout": f"{round(lock_timeout_seconds * 1000)}ms"},
        )
        self._appends = tuple(
            line(
                purpose=f"journal-{number}" if number else "journal",
                prepare=write_bytes_at_once,
                ends_former=True,
            )
            for number in range(connections)
        )
        self._appending = tuple(Appending() for _ in self._appends)
        self._with_messages = tuple(AppendingMessages() for _ in self._appends)
        self._beside = line(purpose="reads", prepare=_beside, ends_former=True)
        """Reads, and writes beside the appends. Statements that hold up commands, or whole shards,
        come first.
        """
        self._staging = AppendingMessages()
        # All nodes notice at about the same time that a server is gone: they compare what they see.
        self._watch = Line(
            conninfo,
            purpose="watch",
            prepare=_beside,
            owner=owner,
            connect_seconds=WATCH_SECONDS,
            answer_seconds=WATCH_SECONDS,
        )
        # Nothing can be written here, so a coordinator does not have to end it.
        self._recovery = line(purpose="recovery", prepare=_only_reads)
        self._resizes = LongResizes(
            lambda: self._in_lineage(
                line(purpose="resize", answer_seconds=RESIZE_SECONDS, settings={"lock_timeout": "10s"})
            )
        )
        self._lookups = Lookups(self._outcomes, now)
        self._at_home = Together(self._beside, _homes)
        self._answer_seconds = answer_seconds
        self._doubtful: tuple[list[Backend], ...] = tuple([] for _ in self._appends)
        """By connection: server processes that may still execute an append whose answer we did not
        get."""
        self._late: list[Backend] = []
        "The same for writes beside the appends: an old one must not execute after a newer one."
        self._large: set[int] = set()
        "Types of which the last read found an event or a snapshot that is not small."

    @property
    def backends(self) -> tuple[Backend, ...]:
        """The server processes that can write, which the coordinator ends before it raises
        epochs.
        """
        lines = (*self._appends, self._beside)
        return tuple(line.backend for line in lines if line.is_open and line.backend)

    @property
    def connections(self) -> int:
        return len(self._appends)

    @property
    def lineage(self) -> Lineage | None:
        """The lineage that is used."""
        return self._appends[0].wanted

    @property
    def _lines(self) -> tuple[Line, ...]:
        return *self._appends, self._beside, self._recovery

    def live_in(self, lineage: Lineage) -> None:
        for line in self._lines:
            line.live_in(lineage)

    def _in_lineage(self, line: Line) -> Line:
        if self.lineage is not None:
            line.live_in(self.lineage)
        return line

    async def connect(self) -> None:
        try:
            for line in self._lines:
                if not (line.is_open and line.is_busy):  # the work on it sees its end
                    await line.open()
        except LOST as error:
            raise JournalUnavailable(explain(error)) from error

    async def open(self) -> tuple[Backend, ...]:
        """Connect now rather than at the first use."""
        try:
            await self._recovery.open()
            return tuple([await line.open() for line in (*self._appends, self._beside)])
        except LOST as error:
            raise JournalUnavailable(explain(error)) from error

    async def own(self, cluster_id: str) -> Owned:
        wanted = {"cluster": cluster_id}
        # Nothing comes back from a look that waited while another node made the row.
        rows = await self._asked(self._watch.rows("own", wanted)) or await self._asked(
            self._watch.rows("own", wanted)
        )
        owner, is_journal, place, uses_messages = rows[0]
        if owner != cluster_id or not is_journal:
            raise JournalOfAnother(owner if is_journal else "")
        lineage = self._watch.lineage
        if lineage is None:
            raise JournalUnavailable("the connection was lost")
        return Owned(place, lineage, uses_messages)

    async def take(
        self,
        type_name: str,
        type_id: int,
        numbers: Numbering,
        shards: Mapping[ShardId, Epoch],
        home: Incarnation,
        *,
        first: bool = False,
    ) -> Taken:
        ordered = sorted(shards)
        wanted = {
            "type": type_name, "type_id": type_id, "home": home, "number": numbers.shards,
            "wanted": numbers.wanted, "done": numbers.done, "revision": numbers.revision, "shards": ordered, "epochs": [shards[each] for each in ordered],
        }  # fmt: skip
        # The line's other work may hang in an outage. A shard that is taken before the others does
        # not wait for it.
        line = self._watch if first else self._beside
        if self._resizes.has(type_id):
            raise JournalUnavailable(f"it follows a resize of {type_name}")
        try:
            rows = await self._asked(line.rows("take", wanted, first=True))
        except JournalUnavailable as error:
            if isinstance(error.__cause__, psycopg.errors.QueryCanceled) and numbers.revision:
                self._resizes.begin(wanted)
            raise
        taken, uses_messages, left, journals = rows[0]
        return Taken(frozenset(taken), uses_messages, dict(zip(left, journals, strict=True)))

    async def stored_shards(self, name: str) -> list[StoredShard]:
        rows = await self._rows("stored_shards", {})
        return [
            StoredShard(kind, shard, epoch, name, step, Numbering(*numbers))
            for kind, shard, epoch, step, *numbers in rows
        ]

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        if not rows:
            return None
        try:
            return await self._appends[on].run(lambda connection: self._append(connection, rows, changes, on))
        except RowRefused as refused:
            await self.look_for_the_next_home(refused, rows)
            raise
        except LOST as error:
            if isinstance(error, psycopg.errors.LockNotAvailable):
                await self._look_for_holders(rows)
            raise JournalUnavailable(explain(error), answered=has_failed(error)) from error

    async def locked(self, shards: Collection[tuple[int, ShardId]]) -> dict[tuple[int, ShardId], str]:
        wanted = {"types": [each[0] for each in shards], "shards": [each[1] for each in shards]}
        return {(type_id, shard): holder for type_id, shard, holder in await self._rows("locked", wanted)}

    async def held_up(self, pid: int) -> str:
        """Return who holds up a server process, and at which table; empty: none does."""
        rows = await self._rows("held_up", {"pid": pid})
        if not rows:
            return ""
        holder, table = rows[0]
        return f"{holder}, holds a lock on {f'a row of {table}' if table else 'something that it needs'}"

    async def settle(self, rows: Sequence[EventRow], *, on: int = 0) -> bool:
        line, doubtful = self._appends[on], self._doubtful[on]
        if line.backend in doubtful:
            await line.close()
        for backend in list(doubtful):
            await self._see_gone(backend)
            doubtful.remove(backend)
        return await self._was_committed(rows, on)

    async def settle_of(self, backend: Backend, rows: Sequence[EventRow]) -> bool:
        """Settle rows that were appended on a connection of another kind."""
        await self._see_gone(backend)
        return await self._was_committed(rows, LEAST_BUSY)

    async def secure(self) -> None:
        await self._asked(self._appends[LEAST_BUSY].rows("secure"))

    async def read(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, History]:
        ids = dict.fromkeys(entities)
        histories = {entity: History(None, []) for entity in ids if not is_entity_id(entity)}
        wanted = [entity for entity in ids if entity not in histories]
        found = await self._asked(
            self._recovery.run(lambda connection: self._read(connection, type_id, wanted, bounds))
        )
        return histories | found

    async def read_from(self, type_id: int, entity: str, after: int, bounds: Bounds = EVERYTHING) -> History:
        if not is_entity_id(entity):
            return History(None, [])
        wanted = {"type_id": type_id, "entity": entity, "after": after}
        wanted |= {"events": bounds.events, "bytes": bounds.bytes}
        events = [StoredEvent(*row) for row in await self._recovered("read_from", wanted)]
        size = sum(len(event.payload) + _HEADER_BYTES for event in events)
        return History(None, events, more=len(events) >= bounds.events or size >= bounds.bytes)

    async def read_snapshot(self, type_id: int, entity: str, before: int) -> Snapshot | None:
        if not is_entity_id(entity):
            return None
        wanted = {"type_id": type_id, "entity": entity, "before": before}
        for seq, shard, epoch, state in await self._recovered("read_snapshot", wanted):
            return Snapshot(type_id, entity, seq, shard, epoch, state)
        return None

    async def last_seq(self, type_id: int, entity: str) -> int:
        if not is_entity_id(entity):
            return 0
        rows = await self._recovered("last_seq", {"type_id": type_id, "entity": entity})
        return int(rows[0][0]) if rows else 0

    async def is_home(self, type_id: int, shard: ShardId, epoch: Epoch, home: Incarnation) -> bool:
        asked = type_id, shard, epoch, home
        return asked in await self._asked(self._at_home.find(asked))

    async def ids(self, type_id: int, prefix: str, after: str, limit: int) -> list[str]:
        if not all(is_entity_id(each) for each in (prefix, after) if each):
            return []
        wanted = {"type_id": type_id, "prefix": prefix, "after": after, "limit": limit}
        return [entity for (entity,) in await self._recovered("ids", wanted)]

    async def read_last(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, StoredEvent | None]:
        found: dict[str, StoredEvent | None] = {
            entity: None for entity in entities if not is_entity_id(entity)
        }
        wanted = [entity for entity in dict.fromkeys(entities) if entity not in found]
        params = {"type_id": type_id, "entities": wanted, "bytes": bounds.bytes}
        for entity, seq, *event in await self._recovered("read_last", params):
            found[entity] = None if seq is None else StoredEvent(seq, *event)
        return found

    async def follow(self, wanted: Sequence[Wanted], page_bytes: int) -> list[Reading]:
        params = {
            "types": [each.type_id for each in wanted],
            "entities": [each.entity for each in wanted],
            "froms": [max(each.after, 0) for each in wanted],
            "limits": [each.limit and each.limit + (each.after > 0) for each in wanted],
            "bytes": page_bytes,
        }
        found: list[Reading] = []
        for place, last, newest, seq, name, version, payload, at in await self._recovered("follow", params):
            if place > len(found):
                found.append(Reading(last, None, [], 0 if newest is None else _microseconds(newest)))
            if payload is not None:
                found[-1].events.append(FollowedEvent(seq, name, version, payload, _microseconds(at)))
            elif seq is not None:
                found[-1] = found[-1]._replace(known=_microseconds(at))
        return found

    async def forget_states(self, type_id: int, former: Sequence[Former], window_seconds: float) -> None:
        newest = {each.entity: each for each in former if is_entity_id(each.entity)}
        ordered = [newest[entity] for entity in sorted(newest)]
        await self._beside_rows(
            "forget_states",
            {
                "type_id": type_id,
                "window": window_seconds,
                "entities": [each.entity for each in ordered],
                "epochs": [each.epoch for each in ordered],
                "sinces": [each.since for each in ordered],
                "befores": [each.before for each in ordered],
            },
        )

    async def outcome(self, type_id: int, entity: str, command_id: str, age_ms: int) -> Outcome | None:
        if not (is_entity_id(entity) and _can_be_stored(command_id)):
            return None
        return await self._lookups.find(type_id, entity, command_id, age_ms)

    async def _outcomes(self, ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        query = "outcome_of_ours" if ours else "outcome"
        params = {
            "types": [each.type_id for each in wanted],
            "entities": [each.entity for each in wanted],
            "command_ids": [each.command_id for each in wanted],
            # One that the server refuses would fail the others in the same query.
            "ages": [max(-_MAX_AGE_MS, min(each.age_ms, _MAX_AGE_MS)) for each in wanted],
        }
        rows = await self._asked(self._beside.rows(query, params, first=True))
        found: list[Outcome | None] = [None] * len(wanted)
        for place, seq, command, *reply in rows:
            found[place - 1] = Outcome(seq, command or "", *reply)
        return found

    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        newest = {(each.type_id, each.entity, each.seq): each for each in snapshots}
        if not newest:
            return
        ordered = [newest[key] for key in sorted(newest)]
        await self._beside_rows(
            "save_snapshots",
            {
                "types": [each.type_id for each in ordered],
                "entities": [each.entity for each in ordered],
                "seqs": [each.seq for each in ordered],
                "shards": [each.shard for each in ordered],
                "epochs": [each.epoch for each in ordered],
                "states": [_text(each.state, index) for index, each in enumerate(ordered)],
            },
        )

    async def trim(
        self,
        type_id: int,
        entity: str,
        before: int,
        keep_snapshots: int,
        window_seconds: float,
        limit: int = TRIM_LIMIT,
        *,
        keep_events: int = 1,
    ) -> int:
        if not is_entity_id(entity):
            return 0
        wanted = {"type_id": type_id, "entity": entity}
        await self._beside_rows("trim_snapshots", {**wanted, "keep": keep_snapshots})
        if before <= 1:
            return 0
        bounds = {"before": before, "window": window_seconds, "limit": limit, "keep": keep_events}
        return int((await self._beside_rows("trim_events", {**wanted, **bounds}))[0][0])

    async def trimmable(
        self, type_id: int, after: str, window_seconds: float, keep_events: int, limit: int
    ) -> Trimmable:
        wanted = {
            "type_id": type_id, "after": after, "window": window_seconds, "keep": keep_events, "limit": limit,
            "first": "", "last": HIGHEST,
        }  # fmt: skip
        rows = await self._rows("trimmable", wanted)
        full = bool(rows) and rows[0][2] >= limit
        return Trimmable([entity for entity, may, *_ in rows if may], rows[-1][0] if full else "")

    async def remember(self, marks: Sequence[Mark]) -> None:
        newest = {(each.type_id, each.shard, each.entity): each for each in marks}
        for query, runs in (("remember", True), ("forget", False)):
            chosen = [newest[key] for key in sorted(newest) if newest[key].runs is runs]
            if chosen:
                columns = {
                    "types": [each.type_id for each in chosen],
                    "shards": [each.shard for each in chosen],
                    "entities": [each.entity for each in chosen],
                    "epochs": [each.epoch for each in chosen],
                }
                await self._after_late_ones(query, columns)

    async def recall(self, type_id: int, shards: Sequence[ShardId]) -> dict[ShardId, list[str]]:
        found: dict[ShardId, list[str]] = {}
        for shard, entity in await self._rows("recall", {"type_id": type_id, "shards": list(shards)}):
            found.setdefault(shard, []).append(entity)
        return found

    async def remembered_shards(self, type_id: int) -> list[ShardId]:
        return [row[0] for row in await self._rows("remembered_shards", {"type_id": type_id})]

    async def erase(
        self,
        type_id: int,
        shard: ShardId,
        epoch: Epoch,
        entity: str,
        *,
        at_most: int,
        before: Erasure,
        by: str,
    ) -> Erasure:
        # An earlier piece, a snapshot or a trim whose answer was lost must not execute after this,
        # when the entity has started again.
        wanted = {
            "type_id": type_id,
            "shard": shard,
            "shards": [shard],
            "epoch": epoch,
            "entity": entity,
            "at_most": at_most,
            "events_before": before.events,
            "snapshots_before": before.snapshots,
            "by": by,
        }
        rows = await self._after_late_ones("erase", wanted)
        if not rows:
            raise ShardsFenced(frozenset({(type_id, shard)}))
        return Erasure(*rows[0])

    async def archive(
        self, type_id: int, shard: ShardId, epoch: Epoch, entity: str, *, mark: str
    ) -> Archival:
        wanted = {
            "type_id": type_id, "shard": shard, "present": shard, "epoch": epoch, "entity": entity, "mark": mark,
        }  # fmt: skip
        rows = await self._after_late_ones("archive_remove", wanted)
        if not rows:
            raise ShardsFenced(frozenset({(type_id, shard)}))
        return Archival(*rows[0])

    async def stage(
        self,
        sends: Sequence[MessageRow],
        cancels: Sequence[TimerKey] = (),
        takes: Sequence[Taking] = (),
        *,
        claim: Claim | None = None,
    ) -> datetime:
        changes = MessageChanges(sends, cancels, takes)

        async def work(connection: Connection) -> datetime:
            return await self._staging.append(connection, (), changes, repeated=True, claim=claim)

        try:
            return await self._alone(work)
        except MessagesGone:
            await self.secure()  # the marks are seen, and a synchronous standby may lack them
            raise

    async def discard(self, takes: Sequence[Taking]) -> list[str]:
        if not takes:
            return []
        return [row[0] for row in await self._decided("discard", discard_parameters(takes))]

    async def due(
        self,
        shards: Sequence[tuple[int, ShardId]],
        horizon_seconds: float,
        limit: int,
        held: Collection[str] = (),
        alone: Collection[str] = (),
    ) -> Page:
        wanted = {
            "types": [each[0] for each in shards],
            "shards": [each[1] for each in shards],
            "horizon": horizon_seconds,
            "limit": limit,
            "bytes": PAGE_BYTES,
            "held": list(held),
            "alone": list(alone),
            "each": _each(limit, len(shards)),
            "pairs": ASIDE_PAIRS,
        }
        rows = await self._asked(self._beside.run(partial(_unprepared, "due", wanted)))
        now, more, later, named = rows[0][:4]
        found = [pending(row[4:]) for row in rows if row[4] is not None]
        pairs = _pairs(named or "[]")
        aside = None if len(pairs) > ASIDE_PAIRS else sorted(pairs)
        next_due = {
            (number, shard): _EPOCH + timedelta(microseconds=due)
            for number, shard, due in _times(later or "[]")
        }
        return Page(in_utc(now), found, frozenset(_shards(more or "[]")), next_due, aside)

    async def timers(self, type_id: int, entity: str, prefix: str) -> tuple[datetime, dict[str, str | None]]:
        wanted = {"type_id": type_id, "entity": entity, "prefix": prefix}
        rows = await self._asked(self._beside.run(partial(_unprepared, "timers", wanted)))
        return in_utc(rows[0][0]), {key: every for _, key, every in rows if key is not None}

    async def set_aside(
        self, message: str, failures: int, delay_seconds: float, error: str, claim: Claim
    ) -> bool:
        wanted = {"failures": failures, "delay": delay_seconds, "error": error or "set aside"}
        return await self._decide("set_aside", message, claim, wanted)

    async def park(self, message: str, error: str, claim: Claim) -> bool:
        return await self._decide("park", message, claim, {"error": error})

    async def turn(self, message: str, new: str, command: str, args: bytes, claim: Claim) -> bool:
        return await self._decide("turn", message, claim, {"new": new, "command": command, "args": args})

    async def standing(self, messages: Collection[str], *, secured: bool = False) -> dict[str, Standing]:
        wanted = {"messages": list(messages)}
        query = "standing_for_marks" if secured else "standing"
        rows = await self._asked(self._beside.run(partial(_unprepared, query, wanted), first=not secured))
        if secured:
            await self.secure()  # a commit after the look covers all that it has seen
        return {message: Standing(parked, seconds) for message, parked, seconds in rows}

    async def marked(self, messages: Collection[str]) -> dict[str, bool]:
        wanted = {"messages": list(messages)}
        return dict(await self._asked(self._beside.run(partial(_unprepared, "marked", wanted))))

    async def marks(self, shards: Sequence[ShardKey], after: str, limit: int) -> list[TakenMark]:
        wanted = {
            "types": [each[0] for each in shards], "shards": [each[1] for each in shards],
            "after": after, "limit": limit,
        }  # fmt: skip
        rows = await self._asked(self._beside.run(partial(_unprepared, "marks", wanted)))
        return [TakenMark(*row) for row in rows]

    async def unmark(self, messages: Collection[str], claim: Claim) -> None:
        type_id, shard, epoch = claim
        wanted = {"messages": list(messages), "type_id": type_id, "shard": shard, "epoch": epoch}
        if not (await self._decided("unmark", wanted))[0][0]:
            raise ShardsFenced(frozenset({(type_id, shard)}))

    async def subject_rows(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await self._rows(query, params)

    async def overdue(self, home: Incarnation, late_seconds: float, limit: int) -> list[Overdue]:
        wanted = {"home": home, "late": late_seconds, "limit": limit}
        return [
            Overdue(*row)
            for row in await self._asked(self._beside.run(partial(_unprepared, "overdue", wanted)))
        ]

    async def close(self) -> None:
        await self._resizes.close()
        for line in (*self._lines, self._watch):
            await line.close()

    async def _append(
        self, connection: Connection, rows: Sequence[EventRow], changes: MessageChanges | None, on: int
    ) -> datetime | None:
        """Append; unless the server itself says that the statement failed, its outcome is
        unknown.
        """
        try:
            if changes:
                return await self._with_messages[on].append(connection, rows, changes)
            await self._appending[on].append(connection, rows)
        except RowRefused:
            raise
        except BaseException as error:
            backend = self._appends[on].backend
            if not has_failed(error) and backend is not None:
                self._doubtful[on].append(backend)
            alone = len(rows) == 1
            refused = verdict(error, alone=alone) if isinstance(error, psycopg.Error) else None
            if refused is not None:
                raise refused from error
            raise
        return None

    async def _read(
        self, connection: Connection, type_id: int, entities: list[str], bounds: Bounds
    ) -> dict[str, History]:
        """Read histories with the cheaper statement if all contents of the type are small.

        It is small what fits in however often it comes. Otherwise the server has to add sizes up.
        """
        small = bounds.bytes // bounds.rows
        params = {"type_id": type_id, "entities": entities, "small": small, **bounds._asdict()}
        found = None if type_id in self._large else await _histories(connection, "read", params)
        is_cut = False
        if found is None:
            found = await _histories(connection, "read_large", params)
            if found is None:
                raise JournalUnavailable("a row came without its content")
            sizes = _sizes(found[0])
            is_cut = sum(sizes) >= bounds.bytes
            if max(sizes, default=0) > small:
                self._large.add(type_id)
            else:
                self._large.discard(type_id)
        histories, rows = found
        if is_cut or rows >= bounds.rows:
            histories[-1].more = True
        elif len(histories) < len(entities):
            raise JournalUnavailable("rows of some entities did not come")
        return dict(zip(entities, histories, strict=False))

    async def _after_late_ones(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await self._alone(partial(_executed, query, params))

    async def _decide(self, query: str, message: str, claim: Claim, values: dict[str, Any]) -> bool:
        """Run a decision of an owner's home about a row. False: the row is gone."""
        type_id, shard, epoch = claim
        wanted = {"message": message, "type_id": type_id, "shard": shard, "epoch": epoch, **values}
        at_home, changed = (await self._decided(query, wanted))[0]
        if not at_home:
            raise ShardsFenced(frozenset({(type_id, shard)}))
        return bool(changed)

    async def _decided(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await self._alone(partial(_unprepared, query, params))

    async def _beside_rows(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement that writes beside the appends; if its answer is lost, it may still
        execute.
        """
        return await self._written(partial(_executed, query, params))

    async def _alone(self, write: Callable[[Connection], Awaitable[T]]) -> T:
        """Write beside the appends, once no statement whose answer was lost can execute any more.

        Statements that wait for this line already come before it. The answer of one of them may be
        lost meanwhile, so this is looked at again when the turn has come.
        """
        while True:
            await self._see_late_ones_gone()
            try:
                return await self._written(write, after_late_ones=True)
            except _LateOnes:
                continue

    async def _written(
        self, write: Callable[[Connection], Awaitable[T]], *, after_late_ones: bool = False
    ) -> T:
        """Write beside the appends. With `after_late_ones` nothing is sent while a statement whose
        answer was lost may still execute.
        """

        async def work(connection: Connection) -> T:
            if after_late_ones and self._late:
                raise _LateOnes
            try:
                return await write(connection)
            except BaseException as error:
                settled = has_failed(error) or is_idle(connection)  # idle: it was never sent
                if not settled and self._beside.backend is not None:
                    self._late.append(self._beside.backend)
                raise

        return await self._asked(self._beside.run(work))

    async def _see_late_ones_gone(self) -> None:
        for backend in list(self._late):
            await self._see_gone(backend)
            if backend in self._late:  # another task may have removed it
                self._late.remove(backend)

    async def _look_for_holders(self, rows: Sequence[EventRow]) -> None:
        """Raise ShardsLocked if an append has waited in vain for the lock of a shard's row."""
        try:
            holders = await self.locked(sorted({(row.type_id, row.shard) for row in rows}))
        except JournalUnavailable:
            return  # the whole table may be locked
        if holders:
            raise ShardsLocked(holders)

    async def look_for_the_next_home(self, refused: RowRefused, rows: Sequence[EventRow]) -> None:
        """Raise ShardsFenced if a number is taken by the shard's next home.

        The server finds a taken number before it asks the fence.
        """
        if not isinstance(refused.__cause__, psycopg.errors.UniqueViolation):
            return
        claims = sorted({(row.type_id, row.shard, row.epoch) for row in rows})
        types, shards, epochs = (list(column) for column in zip(*claims, strict=True))
        stale = await self._rows("stale", {"types": types, "shards": shards, "epochs": epochs})
        if stale:
            raise ShardsFenced(frozenset((type_id, shard) for type_id, shard in stale))

    async def _was_committed(self, rows: Sequence[EventRow], on: int) -> bool:
        """Tell whether the batch was committed: all rows are there or none, so one of them tells.

        True only for a commit that a synchronous standby has too. One statement reads and writes:
        between two, a server without the row could take over. It runs on a connection for appends:
        appends cannot be acknowledged either while it waits.
        """
        if not rows:
            return True
        row = rows[0]
        wanted = row._asdict() | {"payload": row.payload.decode()}
        return bool((await self._asked(self._appends[on].rows("settled", wanted)))[0][0])

    async def _see_gone(self, backend: Backend) -> None:
        """End an old server process and wait, outside the server, until it is gone."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._answer_seconds
        key = {"pid": backend.pid, "started": backend.started}
        while await self._asked(self._beside.rows_as_login("end_backend", key, first=True)):
            if loop.time() > deadline:
                raise JournalUnavailable(f"server process {backend.pid} does not end")
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def _rows(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await self._asked(self._beside.rows(query, params))

    async def _recovered(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await self._asked(self._recovery.rows(query, params))

    @staticmethod
    async def _asked(asked: Awaitable[T]) -> T:
        try:
            return await asked
        except UnicodeError as error:
            raise RowRefused(f"text is not Unicode: {error}") from error
        except psycopg.Error as error:
            raise verdict(error) or JournalUnavailable(explain(error)) from error
        except OSError as error:
            raise JournalUnavailable(explain(error)) from error


async def _homes(connection: Connection, asked: Sequence[_AtHome]) -> set[_AtHome]:
    types, shards, epochs, homes = map(list, zip(*asked, strict=True))
    params = {"types": types, "shards": shards, "epochs": epochs, "homes": homes}
    return {asked[place - 1] for (place,) in await _executed("is_home", params, connection)}


async def _executed(
    query: str, params: Mapping[str, Any], connection: Connection, *, prepare: bool | None = None
) -> list[tuple[Any, ...]]:
    cursor = await connection.execute(QUERIES[query], params, binary=True, prepare=prepare)
    return await cursor.fetchall() if cursor.description is not None else []


async def _unprepared(query: str, params: Mapping[str, Any], connection: Connection) -> list[tuple[Any, ...]]:
    """Run a statement about messages. Their table may be empty now and large in a minute: a plan is
    not kept.
    """
    return await _executed(query, params, connection, prepare=False)


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _can_be_stored(text: str) -> bool:
    """Tell whether the table can hold it: an impossible id must not spoil the look-up for the
    others.
    """
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(document: bytes, index: int) -> str:
    try:
        return document.decode()
    except UnicodeDecodeError as error:
        raise RowRefused(f"a snapshot is not UTF-8: {error}", index) from error


async def _histories(
    connection: Connection, query: str, params: Mapping[str, Any]
) -> tuple[list[History], int] | None:
    """Return the histories and the number of their rows; None: a content was left out.

    The rows come in the order of the entities; if they end early, the last history is partial.
    """
    type_id, entities = params["type_id"], params["entities"]
    cursor = await connection.execute(QUERIES[query], params, prepare=True, binary=True)
    histories: list[History] = []
    history = History(None, [])
    last = 0
    while rows := await cursor.fetchmany(_ROWS_AT_ONCE):
        for place, home, seq, name, version, content in rows:
            if place != last:
                if place != last + 1:
                    raise JournalUnavailable("the rows of several entities came in no order")
                last = place
                history = History(None, [])
                histories.append(history)
            if content is None:
                if seq is None:
                    continue  # it has no history
                return None
            if home is None:
                history.events.append(_event((seq, name, version, content)))
            else:
                shard, epoch = home
                history.snapshot = Snapshot(type_id, entities[place - 1], seq, shard, epoch, content)
        if len(rows) == _ROWS_AT_ONCE:
            await asyncio.sleep(0)
    for history in histories:
        history.events.sort()  # in order as the server sends them: this only makes sure, at no cost
        history.more = len(history.events) >= params["events"]
    return histories, cursor.rowcount


def _sizes(histories: Sequence[History]) -> list[int]:
    """Return the sizes of all events and snapshots, as the server counts them."""
    sizes = [len(event.payload) for history in histories for event in history.events]
    sizes += [len(history.snapshot.state) for history in histories if history.snapshot is not None]
    return [size + _HEADER_BYTES for size in sizes]


def _each(limit: int, shards: int) -> int:
    """Return how many rows of each shard a page looks through: twice its share."""
    return min(limit, max(PAGE_ROWS_EACH, 2 * limit // max(shards, 1))) + 1
