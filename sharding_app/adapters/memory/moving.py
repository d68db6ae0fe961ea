"""Carries out the course of a move (`protocol.moving`) on the virtual servers, as
`adapters.postgres.moving` does on PostgreSQL: each request in the transactions of that one.

What a transaction reads in another server while it is open, it reads there at that moment; the
other server has to be up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from sharding_app.adapters.memory.cluster_writes import ClusterWrites, shard_key, type_key
from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.adapters.memory.locks import Lock
from sharding_app.adapters.memory.message_rows import Marked, Stored
from sharding_app.adapters.memory.message_writes import MARKS, message_key
from sharding_app.adapters.memory.move_rows import NOT_CLEARED, Watched
from sharding_app.adapters.memory.projection_rows import key_of
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, MayNotEnd, ServerError
from sharding_app.adapters.memory.steps import LOCK_TIMEOUT, Pause, Steps, at_once, lock_timeout
from sharding_app.ports.deliveries import PARTLY_ELSEWHERE
from sharding_app.ports.journal import Snapshot
from sharding_app.protocol import moving as moves
from sharding_app.protocol.ids import EntityId, Epoch, ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.moving import CannotMove, opened
from sharding_app.protocol.projection.requests import Key
from sharding_app.protocol.projection.slices import slice_of
from sharding_app.protocol.records import ShardRow, ShardStep

T = TypeVar("T")

CLUSTER, SOURCE, TARGET = "cluster", "source", "target"
ROWS, READ, SWITCH = "move_rows", "move_read", "switch_shards"
"""Kinds of its requests, beside those of the store: writes in a journal, reads, the switch."""
ROWS_AT_ONCE, NOTES_AT_ONCE = 6, 3
LOCK_SECONDS, PAUSE_SECONDS, TRIES = 0.2, 0.1, 12
_ALONE, _ALONE_HERE = 1 << 40, 1 << 41
"""Advisory locks, with the number of the type: of the command, and of its rows in a journal."""

Range = tuple[EntityId, int, int, ShardId]


class Rows(NamedTuple):
    """Events and snapshots of some ranges, as one snapshot of a server shows them."""

    ranges: Sequence[Range]
    events: Mapping[tuple[EntityId, int], Committed]
    snapshots: Mapping[tuple[EntityId, int], Snapshot]


class Rest(NamedTuple):
    messages: Sequence[Stored]
    remembered: Mapping[ShardId, Collection[EntityId]]
    marks: Mapping[str, Marked]


class MemoryMover:
    """One call of the command, or one part of it, with a session in each of the three databases.

    `open` raises CannotMove where another one is at work.
    """

    def __init__(self, servers: Mapping[str, MemoryServer], wanted: moves.Wanted, client: str) -> None:
        self._servers = servers
        self.wanted = wanted
        self._name = wanted.type
        self._cluster = servers[CLUSTERS_OWN]
        self._source = servers[wanted.source]
        self._target = servers[wanted.target]
        self._type_id = self._cluster.cluster.type_ids[wanted.type]
        self._numbering = self._cluster.cluster.types[wanted.type].numbering
        self._shards = sorted(wanted.shards)
        self._moving = set(wanted.shards)
        self._known: dict[ShardId, Epoch] = {}
        self._staged = Rest([], {}, {})
        self._left_out: set[str] = set()
        "Timers that are not put into the target before the switch."
        self._writes = ClusterWrites(self._cluster)
        self._lines = {
            place: Connection(server, client, line="moving", lock_seconds=LOCK_SECONDS)
            for place, server in ((CLUSTER, self._cluster), (SOURCE, self._source), (TARGET, self._target))
        }
        self._works = self._all_works()

    @property
    def new_places(self) -> tuple[MemoryServer, ...]:
        """The servers that must not lose what a switch rests on."""
        return self._cluster, self._target

    async def open(self) -> None:
        """Raises CannotMove, ConnectionLost, ServerError."""
        for place, key in ((CLUSTER, _ALONE), (SOURCE, _ALONE_HERE), (TARGET, _ALONE_HERE)):
            await self._lines[place].open()
            taken = partial(at_once, partial(self._locked, place, key))
            if not await self._call(place, READ, taken):
                raise CannotMove(f"Another move of {self._name} is at work.")

    def _locked(self, place: str, key: int) -> bool:
        line = self._lines[place]
        return line.session is not None and line.server.sessions.lock(line.session, key + self._type_id)

    def close(self) -> None:
        for each in self._lines.values():
            each.close()

    async def do(self, request: moves.Request) -> Any:
        """Raises CannotMove, ConnectionLost, MayNotEnd, ServerError."""
        do = self._works[type(request)]
        if not getattr(request, "at_last", False):
            return await do(request)
        with suppress(ConnectionLost, MayNotEnd, ServerError):
            return await do(request)

    def _all_works(self) -> Mapping[type, Callable[[Any], Awaitable[Any]]]:
        return {
            moves.Begin: lambda _: self._call(CLUSTER, "begin_move", self._begin),
            moves.Open: lambda each: self._call(
                CLUSTER, "open_shards", lambda: self._writes.open_shards(self._type_id, each.shards)
            ),
            moves.Unstash: lambda each: self._call(SOURCE, ROWS, lambda: self._unstash(each.shards)),
            moves.Elsewhere: lambda each: self._elsewhere(each.shards),
            moves.Prepare: lambda each: self._prepare(each.shards),
            moves.Watch: lambda _: self._call(SOURCE, ROWS, self._watch),
            moves.ClearCopy: lambda _: self._call(TARGET, ROWS, self._clear_copy),
            moves.Copy: lambda each: self._copy(each.table),
            moves.Apply: lambda _: self._apply(),
            moves.Compare: lambda _: self._compare(),
            moves.Unpassed: lambda each: self._call(
                CLUSTER, READ, lambda: at_once(lambda: self.unpassed(each.shards, closed=each.closed))
            ),
            moves.Close: lambda each: self._call(
                CLUSTER, "close_shards",
                lambda: self._writes.close_shards(self._type_id, each.shards, each.seconds),
            ),
            moves.Renew: lambda each: self._call(
                CLUSTER, "renew_closings",
                lambda: self._writes.renew_closings(self._type_id, each.shards, each.seconds),
            ),
            moves.Homes: lambda each: self._call(
                CLUSTER, "homes", lambda: at_once(lambda: self._homes(each.shards))
            ),
            moves.Fence: lambda each: self._call(
                CLUSTER, "fence_shards",
                lambda: self._writes.fence_moving(self._type_id, each.shards, self.wanted.source),
            ),
            moves.Stand: lambda each: self._stand(each.raised, in_target=each.in_target),
            moves.PutRest: lambda each: self._briefly(
                TARGET, ROWS, lambda: self._put_rest(each.shards, stashed=each.stashed)
            ),
            moves.Stash: lambda each: self._call(SOURCE, ROWS, lambda: self._stash(each.raised)),
            moves.Switch: lambda each: self._switch(each.raised),
            moves.Leave: lambda _: self.leave(),
            moves.ClearRest: lambda each: self._call(TARGET, ROWS, lambda: self._clear_rest(each.shards)),
            moves.Unwatch: lambda _: self._call(SOURCE, ROWS, self._unwatch),
            moves.Forget: lambda each: self._call(CLUSTER, "begin_move", lambda: self._forget(each.shards)),
            moves.Wait: lambda each: asyncio.sleep(each.seconds),
        }  # fmt: skip

    async def _call(self, place: str, kind: str, request: Callable[[], Steps[T]]) -> T:
        return await self._lines[place].call(kind, request)

    async def _briefly(self, place: str, kind: str, request: Callable[[], Steps[T]]) -> T:
        """Do it in one transaction that waits a moment at most for each lock, as often as it
        takes.
        """
        for _ in range(TRIES - 1):
            try:
                return await self._call(place, kind, request)
            except ServerError as error:
                if error.state != LOCK_TIMEOUT:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
        return await self._call(place, kind, request)

    # -- The beginning -------------------------------------------------------------------------

    def _begin(self) -> Steps[None]:
        if self._cluster.cluster.types[self._name].wanted:
            raise CannotMove(f"{self._name} is being resized: wait until that is done.")
        if self._cluster.cluster.types[self._name].numbering != self._numbering:
            raise CannotMove(f"{self._name} was resized since this command has looked at it.")
        yield from self._writes.begin_move(self._type_id, self._shards, self.wanted.target)

    async def _prepare(self, shards: Sequence[ShardId]) -> bool:
        rows = await self._call(
            CLUSTER, "homes", lambda: at_once(lambda: self._cluster.cluster.homes(self._name, shards))
        )
        self._known |= {row.shard: row.epoch for row in rows}
        present = {row.shard: row.epoch for row in rows}
        if not await self._call(
            TARGET, ROWS, lambda: self._stood(self._target, present, "copied", begins=True)
        ):
            return False
        await self._call(TARGET, ROWS, lambda: self._come_back(shards))
        return True

    async def _elsewhere(self, shards: Sequence[ShardId]) -> list[ShardId]:
        """Return those that do not lie in the source, by the cluster's rows or by its own."""

        def lying() -> set[ShardId]:
            journals, source = self._cluster.cluster.journals, self.wanted.source
            return {each for each in shards if journals.get((self._name, each), CLUSTERS_OWN) != source}

        def left() -> set[ShardId]:
            return {each for each in shards if (self._type_id, each) in self._source.cluster.left}

        found = await self._call(CLUSTER, "homes", lambda: at_once(lying))
        if self.wanted.source:
            found |= await self._call(SOURCE, READ, lambda: at_once(left))
        return sorted(found)

    def _come_back(self, shards: Sequence[ShardId]) -> Steps[None]:
        for shard in sorted(shards):
            yield Lock(shard_key(self._type_id, shard))
        yield Pause.COMMIT
        for shard in shards:
            self._target.cluster.left.pop((self._type_id, shard), None)

    def _watch(self) -> Steps[bool]:
        yield Pause.COMMIT
        types, shards = self._source.journal.watching.types, frozenset(self._shards)
        known = types.get(self._type_id)
        wanted = Watched(
            self.wanted.target, shards, (self._source.identity.lineage, self._target.identity.lineage)
        )
        if known is not None and known.walking != NOT_CLEARED and known[:3] == wanted[:3]:
            return True
        types[self._type_id] = wanted
        return False

    def _stood(
        self, server: MemoryServer, raised: Mapping[ShardId, Epoch], step: ShardStep, *, begins: bool = False
    ) -> Steps[bool]:
        """Let nothing be written at an earlier epoch in a further journal. `begins`: refuse shards
        that have a home there, since DATABASE has lost their switch.
        """
        rows = server.cluster
        for shard in sorted(raised):
            yield Lock(shard_key(self._type_id, shard))
        there = [rows.shards.get((self._name, shard)) for shard in raised]
        if begins and (lived := [row.shard for row in there if row is not None and row.home is not None]):
            raise CannotMove(
                f"Shards {lived} have a home in {self.wanted.target}: DATABASE has lost the switch."
            )
        yield Pause.COMMIT
        rows.type_ids[self._name] = self._type_id
        rows.numbers_here.setdefault(self._type_id, self._numbering)
        stands = True
        for shard, epoch in sorted(raised.items()):
            row = rows.shards.get((self._name, shard))
            if row is None or row.epoch < epoch or (row.epoch == epoch and row.home is None):
                rows.shards[self._name, shard] = ShardRow(self._name, shard, epoch, None, step)
                rows.epochs[self._type_id, shard] = epoch
            else:
                stands = False
        server.messages.unstash(self._type_id, raised, rows.epochs)
        return stands

    # -- The copy ------------------------------------------------------------------------------

    def _shard_of(self, entity: EntityId) -> ShardId:
        return self._numbering.shard_of(entity)

    async def _copy(self, table: str) -> int | None:
        watched = await self._call(SOURCE, READ, lambda: at_once(self._watched))
        if (watched.walking if watched.walking != NOT_CLEARED else "event") != table:
            return None
        page = await self._call(SOURCE, READ, lambda: at_once(lambda: self._page(table, watched.after)))
        if not page:
            following = {"event": "snapshot", "snapshot": ""}[table]
            await self._call(SOURCE, ROWS, lambda: self._walked(following, ("", 0)))
            return None
        ranges = [(*each, self._shard_of(each[0])) for each in page if self._is_moving(each[0])]
        if ranges:
            rows = await self._call(
                SOURCE, READ, lambda: at_once(lambda: self._rows_of(self._source, ranges))
            )
            await self._call(TARGET, ROWS, lambda: self._put(rows, [table]))
        await self._call(SOURCE, ROWS, lambda: self._walked(table, (page[-1][0], page[-1][2])))
        return len(ranges)

    def _is_moving(self, entity: EntityId) -> bool:
        return self._shard_of(entity) in self._moving

    def _watched(self) -> Watched:
        found = self._source.journal.watching.types.get(self._type_id)
        if found is None:
            raise CannotMove("The source has lost the beginning of the move. Run the command again.")
        return found

    def _walked(self, table: str, after: tuple[EntityId, int]) -> Steps[None]:
        yield Pause.COMMIT
        types = self._source.journal.watching.types
        types[self._type_id] = self._watched()._replace(walking=table, after=after)

    def _table(self, server: MemoryServer, table: str) -> Mapping[tuple[int, str], Mapping[int, Any]]:
        return server.journal.events if table == "event" else server.journal.snapshots

    def _page(self, table: str, after: tuple[EntityId, int]) -> list[tuple[EntityId, int, int]]:
        """Return the next rows behind a key: of each entity their first and last numbers."""
        keys = sorted(
            (entity, seq)
            for (type_id, entity), rows in self._table(self._source, table).items()
            for seq in rows
            if type_id == self._type_id and (entity, seq) > after
        )[:ROWS_AT_ONCE]
        ends: dict[EntityId, list[int]] = {}
        for entity, seq in keys:
            ends.setdefault(entity, []).append(seq)
        return [(entity, numbers[0], numbers[-1]) for entity, numbers in ends.items()]

    def _rows_of(self, server: MemoryServer, ranges: Sequence[Range]) -> Rows:
        found: tuple[dict[tuple[EntityId, int], Any], dict[tuple[EntityId, int], Any]] = ({}, {})
        for into, table in zip(found, ("event", "snapshot"), strict=True):
            for entity, first, last, _ in ranges:
                rows = self._table(server, table).get((self._type_id, entity), {})
                into.update({(entity, seq): row for seq, row in rows.items() if first <= seq <= last})
        return Rows(ranges, *found)

    def _all_of(self, server: MemoryServer) -> Rows:
        """Return all rows of the shards."""
        ends: dict[EntityId, list[int]] = {}
        for table in ("event", "snapshot"):
            for (type_id, entity), rows in self._table(server, table).items():
                if type_id == self._type_id and self._is_moving(entity):
                    ends.setdefault(entity, []).extend(rows)
        found = sorted(ends.items())
        return self._rows_of(
            server, [(each, min(seqs), max(seqs), self._shard_of(each)) for each, seqs in found if seqs]
        )

    def _put(self, rows: Rows, tables: Collection[str] = ("event", "snapshot")) -> Steps[None]:
        """Put these rows in place of those that the target has in their ranges."""
        held = yield from self._hold({each[3] for each in rows.ranges})
        yield Pause.WORK
        yield Pause.COMMIT
        journal = self._target.journal
        for entity, first, last, shard in rows.ranges:
            key = self._type_id, entity
            if "event" in tables:
                new = {
                    seq: Committed(each.row._replace(shard=shard, epoch=held[shard]), each.at)
                    for (of, seq), each in rows.events.items()
                    if of == entity and first <= seq <= last
                }
                journal.watching.note(*key, _replace(journal.events, key, first, last, new))
                journal.watching.note(*key, new)
            if "snapshot" in tables:
                taken = {
                    seq: msgspec.structs.replace(each, shard=shard, epoch=held[shard])
                    for (of, seq), each in rows.snapshots.items()
                    if of == entity and first <= seq <= last
                }
                journal.watching.note(*key, _replace(journal.snapshots, key, first, last, taken))
                journal.watching.note(*key, taken)

    def _clear_copy(self) -> Steps[None]:
        yield from self._hold(self._moving)
        yield Pause.COMMIT
        for table in (self._target.journal.events, self._target.journal.snapshots):
            for key in [each for each in table if each[0] == self._type_id and self._is_moving(each[1])]:
                self._target.journal.watching.note(*key, table.pop(key))

    def _hold(self, shards: Iterable[ShardId]) -> Steps[dict[ShardId, Epoch]]:
        """Hold the target's rows of shards to the end of the transaction; return their epochs."""
        wanted = sorted(set(shards))
        for shard in wanted:
            yield Lock(shard_key(self._type_id, shard))
        return self._held(wanted)

    def _held(self, wanted: Sequence[ShardId]) -> dict[ShardId, Epoch]:
        rows = self._target.cluster
        held: dict[ShardId, Epoch] = {}
        for shard in wanted:
            row = rows.shards.get((self._name, shard))
            if row is None:
                continue
            if self.wanted.target:
                is_as_left = row.home is None and row.epoch == self._known.get(shard)
            else:
                is_as_left = rows.journals[self._name, shard] == self.wanted.source
            if is_as_left:
                held[shard] = row.epoch
        if len(held) < len(wanted):
            raise CannotMove(f"Shards {wanted} are not as this command left them: another one went on.")
        return held

    async def _apply(self) -> moves.Applied:
        notes, rows = await self._call(SOURCE, READ, lambda: at_once(lambda: self._noted(NOTES_AT_ONCE)))
        if rows.ranges:
            await self._call(TARGET, ROWS, lambda: self._put(rows))
        if notes:
            await self._call(SOURCE, ROWS, lambda: self._let_go(notes))
        return moves.Applied(len(notes), len(notes) == NOTES_AT_ONCE)

    def _noted(self, limit: int | None) -> tuple[list[int], Rows]:
        """Return the oldest notes, and the rows of which they are, as one snapshot shows both."""
        found = self._source.journal.watching.notes.get(self._type_id, [])[:limit]
        ranges: list[Range] = []
        for entity, first, last in sorted(each[1:] for each in found if self._is_moving(each.entity)):
            if ranges and ranges[-1][0] == entity and first <= ranges[-1][2] + 1:
                first, last = ranges[-1][1], max(ranges[-1][2], last)
                ranges.pop()
            ranges.append((entity, first, last, self._shard_of(entity)))
        return [each.id for each in found], self._rows_of(self._source, ranges)

    def _let_go(self, notes: Collection[int]) -> Steps[None]:
        yield Pause.COMMIT
        watching = self._source.journal.watching
        known = watching.notes.get(self._type_id, [])
        watching.notes[self._type_id] = [each for each in known if each.id not in notes]

    async def _compare(self) -> None:
        def seen() -> tuple[list[int], Rows, Rows]:
            return *self._noted(None), self._all_of(self._source)

        notes, rows, here = await self._call(SOURCE, READ, lambda: at_once(seen))
        if rows.ranges:
            await self._call(TARGET, ROWS, lambda: self._put(rows))
        there = await self._call(TARGET, READ, lambda: at_once(lambda: self._all_of(self._target)))
        if not is_same(here, there):
            raise CannotMove("The copy differs from its source. Take it back with --cancel.")
        await self._call(SOURCE, ROWS, lambda: self._let_go(notes))

    # -- The switch ----------------------------------------------------------------------------

    def _homes(self, shards: Sequence[ShardId]) -> dict[ShardId, str]:
        rows = self._cluster.cluster.homes(self._name, shards)
        return {row.shard: row.home for row in rows if row.home is not None}

    async def _stand(self, raised: Mapping[ShardId, Epoch], *, in_target: bool) -> bool:
        if in_target:
            self._known |= raised
        if in_target:
            return await self._call(TARGET, ROWS, lambda: self._stood(self._target, raised, "copied"))
        return await self._call(SOURCE, ROWS, lambda: self._stood(self._source, raised, "stopped"))

    def _unstash(self, shards: Sequence[ShardId]) -> Steps[None]:
        yield Pause.COMMIT
        self._source.messages.unstash(self._type_id, shards, self._source.cluster.epochs)

    def _stash(self, raised: Mapping[ShardId, Epoch]) -> Steps[int]:
        for shard in sorted(raised):
            yield Lock(shard_key(self._type_id, shard))
        for each in self._source.messages.of_shards(self._type_id, raised.keys()):
            yield Lock(message_key(each.row.id))
        yield Pause.COMMIT
        if len(self._at_epochs(self._source, raised)) < len(raised):
            raise CannotMove(opened(raised))
        self._source.messages.take_out(self._type_id, raised.keys())
        return len(raised)

    def _at_epochs(self, server: MemoryServer, raised: Mapping[ShardId, Epoch]) -> list[ShardId]:
        """Return those of the shards that have no home, at these epochs."""
        rows = [server.cluster.shards.get((self._name, shard)) for shard in raised]
        return [
            row.shard
            for row in rows
            if row is not None and row.home is None and row.epoch == raised[row.shard]
        ]

    def _put_rest(self, shards: Sequence[ShardId], *, stashed: bool) -> Steps[None]:
        yield Lock(MARKS)
        held = yield from self._hold(shards)
        yield Pause.WORK
        rest = self._rest(shards, stashed=stashed)
        for message in sorted(
            {*self._settled(shards, rest), *(other.row.id for _, other in self._of_one_key(rest))}
        ):
            yield Lock(message_key(message))
        yield Pause.COMMIT
        self._put_rest_now(shards, held, rest)

    def _rest(self, shards: Sequence[ShardId], *, stashed: bool) -> Rest:
        _reach(self._source)
        messages, remembered = self._source.messages, self._source.journal.remembered
        out = [each for each in messages.stash.values() if each.row.type_id == self._type_id]
        there = {shard: tuple(remembered.get((self._type_id, shard), ())) for shard in shards}
        marks = {
            message: mark
            for message, mark in messages.marks.items()
            if mark.taker[0] == self._type_id and mark.taker[1] in shards
        }
        if stashed:
            return Rest([each for each in out if each.row.shard in shards], there, marks)
        return Rest(messages.of_shards(self._type_id, shards), there, marks)

    def _put_rest_now(self, shards: Sequence[ShardId], held: Mapping[ShardId, Epoch], rest: Rest) -> None:
        messages, remembered = self._target.messages, self._target.journal.remembered
        self._clear_rest_now(self._target, shards)
        for shard, entities in rest.remembered.items():
            if entities:
                remembered[self._type_id, shard] = dict.fromkeys(entities)
        for message, mark in rest.marks.items():
            number, shard, _, entity = mark.taker
            messages.marks[message] = mark._replace(taker=(number, shard, held[shard], entity))
        self._staged = rest
        self._left_out = {own.row.id for own, _ in self._of_one_key(rest)}
        self._put_messages([each for each in rest.messages if each.row.id not in self._left_out], held)
        for message in [each for each in self._settled(shards, rest) if each in messages.rows]:
            stored = messages.rows[message]
            if not messages.marks[message].partial:
                messages.pop(message)
            elif not stored.parked:
                failures = stored.failures + 1
                messages.put(stored._replace(parked=True, failures=failures, error=PARTLY_ELSEWHERE))

    def _put_messages(self, given: Sequence[Stored], held: Mapping[ShardId, Epoch]) -> None:
        for each in given:
            self._target.messages.put(each._replace(row=each.row._replace(epoch=held[each.row.shard])))
            self._target.messages.types.add(self._type_id)

    def _replace_timers(self, raised: Mapping[ShardId, Epoch]) -> None:
        """Let the later one count of two timers with one key, as soon as the shards lie here."""
        come = set(self._left_out)
        for own, other in self._of_one_key(self._staged):
            if other.at > own.at:
                come.discard(own.row.id)
            else:
                self._target.messages.pop(other.row.id)
                come.add(own.row.id)
        self._put_messages([each for each in self._staged.messages if each.row.id in come], raised)

    def _of_one_key(self, rest: Rest) -> list[tuple[Stored, Stored]]:
        """Return timers of entities that come to the cluster's own database, with those of the same
        keys there: they were set from outside, and the later one of the two counts.
        """
        messages = self._target.messages
        found = []
        for each in rest.messages if not self.wanted.target else ():
            timer = each.row.timer
            other = messages.rows.get(messages.timers.get(timer, "")) if timer is not None else None
            if other is not None and other.row.epoch is None:
                found.append((each, other))
        return found

    def _settled(self, shards: Sequence[ShardId], rest: Rest) -> list[str]:
        """Return the messages in the target that a mark there, or one that comes, says to have
        taken effect.
        """
        messages = self._target.messages
        rows = {**messages.rows, **{each.row.id: each for each in rest.messages}}
        marks = {**messages.marks, **rest.marks}
        return [
            message
            for message, mark in marks.items()
            if message in rows
            and (
                (rows[message].row.type_id == self._type_id and rows[message].row.shard in shards)
                or (mark.taker[0] == self._type_id and mark.taker[1] in shards)
            )
        ]

    def _clear_rest(self, shards: Sequence[ShardId]) -> Steps[None]:
        yield from self._hold(shards)
        yield Pause.COMMIT
        self._clear_rest_now(self._target, shards)

    def _clear_rest_now(self, server: MemoryServer, shards: Collection[ShardId]) -> None:
        for each in server.messages.of_shards(self._type_id, shards):
            server.messages.pop(each.row.id)
        for shard in shards:
            server.journal.remembered.pop((self._type_id, shard), None)
        for message, mark in list(server.messages.marks.items()):
            if mark.taker[0] == self._type_id and mark.taker[1] in shards:
                del server.messages.marks[message]

    async def _switch(self, raised: Mapping[ShardId, Epoch]) -> int:
        request = self._say_so if self.wanted.source else self._leave_clusters_own
        switched = await self._briefly(CLUSTER, SWITCH, lambda: request(raised))
        self._moving -= raised.keys()
        return switched

    def _leave_clusters_own(self, raised: Mapping[ShardId, Epoch]) -> Steps[int]:
        """Put the rest into the target, and take it out of the cluster's own database, in the very
        transaction of the switch.
        """
        shards = sorted(raised)
        yield Lock(type_key(self._name))
        for each in self._cluster.messages.of_shards(self._type_id, shards):
            yield Lock(message_key(each.row.id))
        yield Pause.WORK
        self._put_rest_beside(shards)
        switched = yield from self._say_so(raised)
        self._clear_rest_now(self._cluster, shards)
        return switched

    def _put_rest_beside(self, shards: Sequence[ShardId]) -> None:
        """Commit a transaction in the target. Raises ServerError where it has to wait."""
        _reach(self._target, writes=True)
        rest = self._rest(shards, stashed=False)
        rows = [MARKS, *(shard_key(self._type_id, each) for each in shards)]
        rows += [message_key(each) for each in sorted(self._settled(shards, rest))]
        if any(self._target.locks.is_held(each) for each in rows):
            raise lock_timeout()
        self._put_rest_now(shards, self._held(shards), rest)

    def _say_so(self, raised: Mapping[ShardId, Epoch]) -> Steps[int]:
        """Say that the shards lie in the target. No turn of a projection is in the way: one that
        has read before commits what it has read.
        """
        rows, shards = self._cluster.cluster, sorted(raised)
        yield Lock(type_key(self._name))
        for _, other in self._of_one_key(self._staged):
            yield Lock(message_key(other.row.id))
        for shard in shards:
            yield Lock(shard_key(self._type_id, shard))
        yield Pause.COMMIT
        if why := self.unpassed(shards, closed=True):
            raise CannotMove(why)
        there = self._at_epochs(self._cluster, raised)
        there = [each for each in there if rows.journals[self._name, each] == self.wanted.source]
        if len(there) < len(shards) or rows.at_step(self._name, shards, "closed") != shards:
            raise CannotMove(opened(raised))
        self._forget_caught_up(shards)
        if not self.wanted.target:
            self._replace_timers(raised)
        rows.switch(self._name, shards, self.wanted.target)
        return len(shards)

    # -- Projections ---------------------------------------------------------------------------

    def unpassed(self, shards: Collection[ShardId], *, closed: bool) -> str:
        """Return why projections cannot follow the shards yet; empty: they can."""
        _reach(self._source)
        tables, source, target = self._cluster.projections, self.wanted.source, self.wanted.target
        for name in [each for each, types in tables.types.items() if self._type_id in types]:
            places = [key_of(name, each) for each in (source, target)]
            there = [tables.positions.get(each, {}) for each in places]
            if any(position.is_filling for each in there for position in each.values()):
                return f"{name} fills"
            if closed and self._is_behind(places[0], shards):
                return f"{name} has not handled all events of these shards"
            if not all(there):
                return f"{name} does not follow both journals yet"
            for (place, key), (held, _) in tables.held.items():
                if place == places[0] and self._is_of(key, shards) and held.until is None:
                    return f"{key[1]} waits in {name}"
        return ""

    def _is_of(self, key: Key, shards: Collection[ShardId]) -> bool:
        return key[0] == self._type_id and self._shard_of(key[1]) in shards

    def _forget_caught_up(self, shards: Collection[ShardId]) -> None:
        """Forget which entities have caught up after a failure."""
        held, source = self._cluster.projections.held, self.wanted.source
        for place, key in list(held):
            if place.partition("\0")[2] == source and self._is_of(key, shards):
                del held[place, key]

    def _is_behind(self, place: str, shards: Collection[ShardId]) -> bool:
        positions = self._cluster.projections.positions.get(place, {}).values()
        changes = [
            each
            for each in self._source.projections.changes
            if each.type_id == self._type_id and self._shard_of(each.entity) in shards
        ]
        return any(
            own.first <= slice_of(each.entity) <= own.last and not own.view.sees(each.xid)
            for each in changes
            for own in positions
        )

    # -- The end -------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Let a further source say which shards have left it."""
        if self.wanted.source:
            gone = await self._call(CLUSTER, READ, lambda: at_once(self._gone))
            await self._call(SOURCE, ROWS, lambda: self._left(gone))

    def _gone(self) -> dict[ShardId, tuple[str, Epoch]]:
        rows, source = self._cluster.cluster, self.wanted.source
        return {
            shard: (rows.journals[name, shard], rows.shards[name, shard].epoch)
            for (name, shard), move in rows.moves.items()
            if name == self._name
            and (move.step, move.source) == ("moved", source)
            and rows.journals[name, shard] != source
        }

    def _left(self, gone: Mapping[ShardId, tuple[str, Epoch]]) -> Steps[None]:
        rows = self._source.cluster
        for shard in sorted(gone):
            yield Lock(shard_key(self._type_id, shard))
        yield Pause.COMMIT
        for shard, (elsewhere, epoch) in gone.items():
            row = rows.shards.get((self._name, shard))
            # A failover has lost the fence: the row is as the last home has left it.
            if row is not None and row.home is not None and row.epoch < epoch:
                row = rows.shards[self._name, shard] = ShardRow(self._name, shard, epoch, None, "stopped")
                rows.epochs[self._type_id, shard] = epoch
            if row is not None and row.home is None:
                rows.left[self._type_id, shard] = elsewhere or "default"
                self._clear_rest_now(self._source, [shard])
                stash = self._source.messages.stash
                for each in [one for one in stash.values() if one.row.type_id == self._type_id]:
                    if each.row.shard == shard:
                        del stash[each.row.id]

    def _unwatch(self) -> Steps[None]:
        yield Pause.COMMIT
        self._source.journal.watching.end(self._type_id)

    def _forget(self, shards: Sequence[ShardId]) -> Steps[None]:
        yield Pause.COMMIT
        rows = self._cluster.cluster.moves
        for key in [(self._name, each) for each in shards]:
            if key in rows and rows[key].step != "moved":
                del rows[key]


class LeftCopies:
    """Copies that shards of a type have left behind, as `adapters.postgres.left_copies` deletes
    them. `client`: who asks.
    """

    def __init__(self, servers: Mapping[str, MemoryServer], type_name: str, client: str) -> None:
        self._servers = servers
        self._name = type_name
        self._cluster = servers[CLUSTERS_OWN]
        self._type_id = self._cluster.cluster.type_ids[type_name]
        self._line = Connection(self._cluster, client, line="moving", lock_seconds=LOCK_SECONDS)

    async def delete(self) -> None:
        """Delete all of them. Raises ConnectionLost, ServerError."""
        await self._reach(lambda: self._delete(lambda _: True, forget=True))

    async def erase(self, entity: EntityId) -> None:
        """Delete an entity in them. Raises ConnectionLost, ServerError."""
        await self._reach(lambda: self._delete(lambda each: each == entity, forget=False))

    async def _reach(self, request: Callable[[], Steps[None]]) -> None:
        try:
            await self._line.reach("begin_move", request)
        finally:
            self._line.close()

    def _delete(self, is_meant: Callable[[EntityId], bool], *, forget: bool) -> Steps[None]:
        rows = self._cluster.cluster
        left = [
            key for key, move in sorted(rows.moves.items()) if key[0] == self._name and move.step == "moved"
        ]
        for _, shard in left:
            yield Lock(("move", self._type_id, shard), shared=not forget)
        yield Pause.WORK
        numbering = rows.types[self._name].numbering
        for name, shard in left:
            move = rows.moves.get((name, shard))
            if move is None or move.step != "moved" or rows.journals[name, shard] == move.source:
                continue
            server = self._servers[move.source]
            _reach(server, writes=True)
            # A failover may have taken the row from a further journal: then nothing lives there.
            lives = (name, shard) in server.cluster.shards
            if forget and move.source and lives and (self._type_id, shard) not in server.cluster.left:
                continue  # the move has not come to its end there
            for table in (server.journal.events, server.journal.snapshots):
                for key in [
                    each
                    for each in table
                    if each[0] == self._type_id and numbering.shard_of(each[1]) == shard and is_meant(each[1])
                ]:
                    server.journal.watching.note(*key, table.pop(key))
            if forget:
                del rows.moves[name, shard]
        yield Pause.COMMIT


def is_same(here: Rows, there: Rows) -> bool:
    """Tell whether rows are the same, but for the epochs of a copy."""
    events = [
        {key: (each.row._replace(epoch=0, shard=0), each.at) for key, each in rows.events.items()}
        for rows in (here, there)
    ]
    snapshots = [
        {key: msgspec.structs.replace(each, epoch=0, shard=0) for key, each in rows.snapshots.items()}
        for rows in (here, there)
    ]
    return events[0] == events[1] and snapshots[0] == snapshots[1]


def _replace(
    table: dict[tuple[int, str], dict[int, T]],
    key: tuple[int, str],
    first: int,
    last: int,
    new: Mapping[int, T],
) -> list[int]:
    """Put rows in the place of those from one number to another; return the numbers of these."""
    gone = [seq for seq in table.get(key, {}) if first <= seq <= last]
    rows = {seq: each for seq, each in table.get(key, {}).items() if seq not in gone}
    rows.update(new)
    if rows:
        table[key] = dict(sorted(rows.items()))
    else:
        table.pop(key, None)
    return gone


def _reach(server: MemoryServer, *, writes: bool = False) -> None:
    """Refuse to go on where the server does not answer, or acknowledges no write."""
    if not server.up:
        raise ServerError("08006", "the journal is down")
    if writes and server.standby.waited_for:
        raise ServerError("57014", "the standby of the journal does not answer")
