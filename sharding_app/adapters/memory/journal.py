"""`ports.journal.Journal` over the virtual server: appends on one connection or several, recovery
and the rest on two others.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from sharding_app.adapters.lookups import Lookup, Lookups
from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal_writes import JournalWrites
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, MayNotEnd, ServerError, Session
from sharding_app.adapters.memory.steps import Steps, at_once
from sharding_app.ports.deliveries import (
    Claim,
    MessageChanges,
    MessageRow,
    MessagesGone,
    Overdue,
    Page,
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
    Snapshot,
    StoredEvent,
    Taken,
    Trimmable,
    Wanted,
)
from sharding_app.protocol.delivery.foreign import Standing, TakenMark
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Backend, Lineage, StoredShard

T = TypeVar("T")

LOCK_SECONDS = 0.2
"""Seconds that its statements wait for a row."""


class MemoryJournal:
    def __init__(
        self,
        server: MemoryServer,
        client: str = "client",
        *,
        connections: int = 1,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self._server = server
        self._rows = server.journal
        self._writes = JournalWrites(server)
        *writers, self._reader, self._recovery, self._watch = (
            Connection(server, client, line=line, lock_seconds=lock_seconds)
            for line in (*["journal"] * connections, "reads", "reads", "watch")
        )
        self._writers = tuple(writers)
        self.lines = {"journal": self._writers, "reads": (self._reader, self._recovery)}
        "Its connections by purpose."
        self._lookups = Lookups(self._outcomes)
        self._lineage: Lineage | None = None

    @property
    def backends(self) -> tuple[Backend, ...]:
        """The connections that can write, which the coordinator ends before it raises epochs."""
        sessions = (each.session for each in (*self._writers, self._reader))
        return tuple(session.backend for session in sessions if session is not None)

    @property
    def connections(self) -> int:
        return len(self._writers)

    def live_in(self, lineage: Lineage) -> None:
        self._lineage = lineage

    async def connect(self) -> None:
        try:
            for connection in (*self._writers, self._reader, self._recovery):
                if connection.broken:
                    await connection.open()
        except ConnectionLost as error:
            raise JournalUnavailable(str(error)) from error

    @property
    def lineage(self) -> Lineage | None:
        return self._lineage

    async def own(self, cluster_id: str) -> Owned:
        def own() -> Owned:
            if self._server.journal_of not in ("", cluster_id):
                raise JournalOfAnother(self._server.journal_of)
            self._server.journal_of = cluster_id
            lineage, used = self._server.identity.lineage, bool(self._server.messages.types)
            return Owned(self._server.system, lineage, uses_messages=used)

        return await self._asked(self._watch.reach("own", lambda: at_once(own)))

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
        def take() -> Steps[Taken]:
            return self._writes.take(type_name, type_id, numbers, shards, home)

        if first:
            return await self._asked(self._watch.reach("take", take))
        return await self._write("take", take, -1)

    async def stored_shards(self, name: str) -> list[StoredShard]:
        return await self._read("stored_shards", lambda: self._server.cluster.stored_shards(name))

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        batch = list(rows)
        return await self._write("append", lambda: self._writes.append(batch, changes), on)

    async def settle(self, rows: Sequence[EventRow], *, on: int = 0) -> bool:
        writer = self._writers[on]
        doubtful = list(writer.doubtful)
        committed = await self.settle_of(doubtful, rows)
        for session in doubtful:
            writer.doubtful.remove(session)
        return committed

    async def settle_of(self, doubtful: Sequence[Session], rows: Sequence[EventRow]) -> bool:
        """Settle rows that were appended on a connection of another kind."""

        def end_and_look() -> bool:
            self._server.end_own(doubtful)
            return self._rows.holds(rows)

        return await self._read("settle", end_and_look)

    async def locked(self, shards: Collection[tuple[int, ShardId]]) -> dict[tuple[int, ShardId], str]:
        return await self._read("locked", lambda: self._writes.locked_among(shards))

    async def secure(self) -> None:
        await self._write("secure", lambda: at_once(lambda: None), -1)

    async def read(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, History]:
        return await self._recovered("read", lambda: self._rows.read(type_id, entities, bounds))

    async def read_from(self, type_id: int, entity: str, after: int, bounds: Bounds = EVERYTHING) -> History:
        return await self._recovered(
            "read_from", lambda: self._rows.read_from(type_id, entity, after, bounds)
        )

    async def read_snapshot(self, type_id: int, entity: str, before: int) -> Snapshot | None:
        return await self._recovered(
            "read_snapshot", lambda: self._rows.read_snapshot(type_id, entity, before)
        )

    async def last_seq(self, type_id: int, entity: str) -> int:
        return await self._recovered("last_seq", lambda: self._rows.last_seq(type_id, entity))

    async def is_home(self, type_id: int, shard: ShardId, epoch: Epoch, home: Incarnation) -> bool:
        return await self._read("is_home", lambda: self._server.cluster.is_home(type_id, shard, epoch, home))

    async def ids(self, type_id: int, prefix: str, after: str, limit: int) -> list[str]:
        return await self._recovered("ids", lambda: self._rows.ids(type_id, prefix, after, limit))

    async def read_last(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, StoredEvent | None]:
        return await self._recovered("read_last", lambda: self._rows.read_last(type_id, entities, bounds))

    async def follow(self, wanted: Sequence[Wanted], page_bytes: int) -> list[Reading]:
        asked = list(wanted)
        return await self._recovered(
            "follow", lambda: [self._rows.follow(each, page_bytes, self._server.moment) for each in asked]
        )

    async def forget_states(self, type_id: int, former: Sequence[Former], window_seconds: float) -> None:
        def forget() -> Steps[None]:
            return self._writes.forget_states(type_id, former, self._server.now() - window_seconds)

        await self._wrote("forget_states", forget)

    async def outcome(self, type_id: int, entity: str, command_id: str, age_ms: int) -> Outcome | None:
        return await self._lookups.find(type_id, entity, command_id, age_ms)

    async def _outcomes(self, ours: bool, wanted: Sequence[Lookup]) -> list[Outcome | None]:
        def outcomes() -> list[Outcome | None]:
            now = self._server.now()
            return [
                self._rows.outcome(each.type_id, each.entity, each.command_id, now - each.age_ms / 1000)
                for each in wanted
            ]

        return await self._read("outcome", outcomes)

    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        await self._wrote("save_snapshots", lambda: self._writes.save_snapshots(snapshots))

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
        def trim() -> Steps[int]:
            since = self._server.now() - window_seconds
            return self._writes.trim(type_id, entity, before, keep_snapshots, since, limit, keep_events)

        return await self._wrote("trim", trim)

    async def trimmable(
        self, type_id: int, after: str, window_seconds: float, keep_events: int, limit: int
    ) -> Trimmable:
        since = self._server.now() - window_seconds
        return await self._read(
            "trimmable", lambda: self._rows.trimmable(type_id, after, since, keep_events, limit)
        )

    async def remember(self, marks: Sequence[Mark]) -> None:
        await self._after_late_ones("remember", lambda: self._writes.remember(marks))

    async def recall(self, type_id: int, shards: Sequence[ShardId]) -> dict[ShardId, list[str]]:
        return await self._read("recall", lambda: self._rows.recall(type_id, shards))

    async def remembered_shards(self, type_id: int) -> list[ShardId]:
        return await self._read("remembered_shards", lambda: self._rows.remembered_shards(type_id))

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
        return await self._after_late_ones(
            "erase", lambda: self._writes.erase(type_id, shard, epoch, entity, at_most)
        )

    async def archive(
        self, type_id: int, shard: ShardId, epoch: Epoch, entity: str, *, mark: str
    ) -> Archival:
        return await self._after_late_ones(
            "archive", lambda: self._writes.archive(type_id, shard, epoch, entity, mark)
        )

    async def stage(
        self,
        sends: Sequence[MessageRow],
        cancels: Sequence[TimerKey] = (),
        takes: Sequence[Taking] = (),
        *,
        claim: Claim | None = None,
    ) -> datetime:
        changes = MessageChanges(list(sends), list(cancels), list(takes))
        try:
            return await self._after_late_ones("stage", lambda: self._writes.messages.stage(changes, claim))
        except MessagesGone:
            await self.secure()
            raise

    async def discard(self, takes: Sequence[Taking]) -> list[str]:
        taken = list(takes)
        return await self._after_late_ones("discard", lambda: self._writes.messages.discard(taken))

    async def due(
        self,
        shards: Sequence[tuple[int, ShardId]],
        horizon_seconds: float,
        limit: int,
        held: Collection[str] = (),
        alone: Collection[str] = (),
    ) -> Page:
        def due() -> Page:
            now = self._server.date()
            elsewhere = self._server.cluster.elsewhere(shards)
            return self._server.messages.due(shards, horizon_seconds, limit, held, now, alone, elsewhere)

        return await self._read("due", due)

    async def timers(self, type_id: int, entity: str, prefix: str) -> tuple[datetime, dict[str, str | None]]:
        def timers() -> tuple[datetime, dict[str, str | None]]:
            rows = self._server.messages.of_entity(type_id, entity)
            found = {
                each.row.key: each.row.every
                for each in rows
                if each.row.key is not None and each.row.key.startswith(prefix) and not each.parked
            }
            return self._server.date(), found

        return await self._read("due", timers)

    async def set_aside(
        self, message: str, failures: int, delay_seconds: float, error: str, claim: Claim
    ) -> bool:
        def set_aside() -> Steps[bool]:
            return self._writes.messages.set_aside(message, failures, delay_seconds, error, claim)

        return await self._after_late_ones("set_aside", set_aside)

    async def park(self, message: str, error: str, claim: Claim) -> bool:
        return await self._after_late_ones("park", lambda: self._writes.messages.park(message, error, claim))

    async def turn(self, message: str, new: str, command: str, args: bytes, claim: Claim) -> bool:
        def turn() -> Steps[bool]:
            return self._writes.messages.turn(message, new, command, args, claim)

        return await self._after_late_ones("turn", turn)

    async def standing(self, messages: Collection[str], *, secured: bool = False) -> dict[str, Standing]:
        asked = list(messages)
        found = await self._read(
            "standing",
            lambda: self._server.messages.standing(asked, self._server.date(), for_marks=secured),
        )
        if secured:
            await self.secure()
        return found

    async def marked(self, messages: Collection[str]) -> dict[str, bool]:
        asked = list(messages)

        def marked() -> dict[str, bool]:
            marks = self._server.messages.marks
            return {each: marks[each].partial for each in asked if each in marks}

        return await self._read("marked", marked)

    async def marks(self, shards: Sequence[ShardKey], after: str, limit: int) -> list[TakenMark]:
        wanted = frozenset(shards)
        return await self._read(
            "marks", lambda: self._server.messages.marks_of(wanted, after, limit, self._server.date())
        )

    async def unmark(self, messages: Collection[str], claim: Claim) -> None:
        asked = list(messages)
        await self._after_late_ones("unmark", lambda: self._writes.messages.unmark(asked, claim))

    async def overdue(self, home: Incarnation, late_seconds: float, limit: int) -> list[Overdue]:
        return await self._read("overdue", lambda: self._writes.messages.overdue(home, late_seconds, limit))

    async def close(self) -> None:
        for connection in (*self._writers, self._reader, self._recovery, self._watch):
            connection.close()

    async def _write(self, kind: str, request: Callable[[], Steps[T]], on: int) -> T:
        """Run a request on a connection for appends."""
        wanted = self._lineage
        try:
            return self._told(await self._writers[on].reach(kind, self.in_lineage(request)), wanted)
        except ConnectionLost as error:
            raise JournalUnavailable(str(error)) from error
        except ServerError as error:
            raise JournalUnavailable(str(error), answered=True) from error

    def in_lineage(self, request: Callable[[], Steps[T]]) -> Callable[[], Steps[T]]:
        """Wrap a request so that a server of another lineage than the present one refuses it."""
        return partial(self._refused_elsewhere, self._lineage, request)

    def _refused_elsewhere(self, wanted: Lineage | None, request: Callable[[], Steps[T]]) -> Steps[T]:
        if wanted is not None and wanted != self._server.identity.lineage:
            raise ConnectionLost("the server is on another timeline")
        return request()

    async def _after_late_ones(self, kind: str, request: Callable[[], Steps[T]]) -> T:
        """Write beside the appends, once no request whose answer was lost can execute any more."""
        return await self._asked(self._reader.reach_after_late_ones(kind, self.in_lineage(request)))

    async def _recovered(self, kind: str, request: Callable[[], T]) -> T:
        return await self._read(kind, request, self._recovery)

    async def _read(self, kind: str, request: Callable[[], T], line: Connection | None = None) -> T:
        return await self._wrote(kind, lambda: at_once(request), line)

    async def _wrote(self, kind: str, request: Callable[[], Steps[T]], line: Connection | None = None) -> T:
        """Run a request beside the appends."""
        return await self._asked((line or self._reader).reach(kind, self.in_lineage(request)))

    async def _asked(self, asked: Awaitable[T]) -> T:
        wanted = self._lineage
        try:
            return self._told(await asked, wanted)
        except (ConnectionLost, MayNotEnd, ServerError) as error:
            raise JournalUnavailable(str(error)) from error

    def _told(self, answer: T, wanted: Lineage | None) -> T:
        """Return an answer, unless another lineage is wanted since it was asked for."""
        if wanted != self._lineage:
            raise ConnectionLost("the server has gone on elsewhere meanwhile")
        return answer
