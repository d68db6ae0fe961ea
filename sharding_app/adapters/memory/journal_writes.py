"""The steps of the journal's statements: the rows that each locks, in order, and those that it
reads again after a wait.

An insert holds its number from the beginning: another insert of that number waits for its end. Then
the fence's trigger locks the rows of the shards. A deletion concerns the rows that were there when
it began, however long it waits.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from sharding_app.adapters.memory.cluster_writes import shard_key, type_id_key, type_key, type_row_key
from sharding_app.adapters.memory.journal_rows import Committed, check_json
from sharding_app.adapters.memory.locks import Key, Lock
from sharding_app.adapters.memory.message_writes import MessageWrites, message_key
from sharding_app.adapters.memory.sessions import ServerError
from sharding_app.adapters.memory.steps import LOCK_TIMEOUT, Pause, Steps
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import (
    Archival,
    Erasure,
    EventRow,
    Former,
    Mark,
    RowRefused,
    ShardsLocked,
    Snapshot,
    Taken,
)
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.numbering import Numbering

if TYPE_CHECKING:
    from sharding_app.adapters.memory.server import MemoryServer

Claim = tuple[int, ShardId, Epoch]
"""A type's number, a shard, and the epoch at which it is written."""


def event_key(type_id: int, entity: str, seq: int) -> Key:
    return "event", type_id, entity, seq


class JournalWrites:
    def __init__(self, server: "MemoryServer") -> None:
        self._server = server
        self._rows = server.journal
        self.messages = MessageWrites(server, self.fence)

    def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None
    ) -> Steps[datetime | None]:
        """Append all rows or none. A number that the shard's next home has taken counts as fenced,
        not as refused.
        """
        at, date = self._server.now(), self._server.date()
        xid = self._server.transactions.begin(self._server.serving)
        ended: set[str] = set()
        try:
            if changes:
                ended = yield from self.messages.take(changes)
            yield from self._insert(rows)
            yield Pause.WORK
            yield from self.fence(claims_of(rows))
            if changes:
                index = 0 if len(rows) == 1 else None
                yield from self.messages.insert(changes, ended, claims_of(rows), index)
        except RowRefused as refused:
            if not changes or len(rows) == 1:
                raise
            raise RowRefused(refused.reason) from refused  # the server does not say which row it was
        except ServerError as error:
            holders = self.locked_among((row.type_id, row.shard) for row in rows)
            if error.state == LOCK_TIMEOUT and holders:
                raise ShardsLocked(holders) from None
            raise
        yield Pause.COMMIT
        self._rows.store(rows, at)
        self._server.projections.note(xid, rows)
        if not changes:
            return None
        self.messages.store(changes, ended, date)
        return date

    def _insert(self, rows: Sequence[EventRow]) -> Steps[None]:
        """Check all rows before the first is written, as a COPY does unless it is too long."""
        for index, row in enumerate(rows):
            self._rows.check(row, index)
        new: set[Key] = set()
        for index, row in enumerate(rows):
            key = event_key(row.type_id, row.entity, row.seq)
            yield Lock(key)
            if key in new or self._rows.is_taken(row):
                self._rows.fence(claims_of(rows))
                if self._rows.on_taken is not None:
                    self._rows.on_taken(row)
                raise RowRefused(f"event {row.seq} of this entity exists already", index)
            new.add(key)

    def fence(self, claims: Iterable[Claim]) -> Steps[None]:
        """Share the rows of the shards to the end, in one order. Raises ShardsFenced.

        Only rows that are at the epoch of their claim before the wait are waited for; all are
        judged by their state afterwards.
        """
        ordered = sorted(set(claims))
        for claim in ordered:
            if self._rows.is_at(*claim):
                yield Lock(shard_key(claim[0], claim[1]), shared=True)
        self._rows.fence(ordered)

    def take(
        self,
        type_name: str,
        type_id: int,
        numbers: Numbering,
        shards: Mapping[ShardId, Epoch],
        home: Incarnation,
    ) -> Steps[Taken]:
        """Lock the rows one after the other: appends under way share them to their end. The type's
        row comes first where its numbers change, then messages, as in appends.
        """
        cluster, journals = self._server.cluster, self._server.cluster.numbers_here
        is_new = yield from self._server.insert(type_row_key(type_name), lambda: type_id in journals)
        changed: list[ShardId] = []
        is_moving = not is_new and journals[type_id].revision < numbers.revision
        if is_moving:
            yield Lock(type_id_key(type_name))
            yield Lock(type_key(type_name))
            is_moving = journals[type_id].revision < numbers.revision
        if is_moving:
            changed = cluster.changed_by(type_id, journals[type_id], numbers)
            for message in self._server.messages.in_shards(type_id, changed):
                yield Lock(message_key(message))
        yield Lock(type_id_key(type_name), shared=True)
        if not is_new and journals[type_id].revision > numbers.revision:
            return Taken(frozenset(), uses_messages=type_id in self._server.messages.types)
        for shard in sorted({*changed, *shards}):
            yield Lock(shard_key(type_id, shard))
        if is_moving:
            for shard in sorted(self._beyond(type_id, numbers, changed)):
                yield Lock(shard_key(type_id, shard))
            for shard, entity in self._refiled(type_id, numbers, changed):
                for each in (shard, numbers.shard_of(entity)):
                    yield Lock(remembered_key(type_id, each, entity))
            yield Lock(type_row_key(type_name))
        used = type_id in self._server.messages.types
        yield Pause.COMMIT
        if is_moving:
            self._refile(type_name, type_id, numbers, changed)
        journals[type_id] = numbers
        taken = cluster.take(type_name, type_id, shards, home)
        self._server.messages.unstash(type_id, taken, cluster.epochs)
        left = {each: cluster.left[type_id, each] for each in shards if (type_id, each) in cluster.left}
        return Taken(frozenset(taken), used, left)

    def _beyond(
        self, type_id: int, numbers: Numbering, changed: Collection[ShardId]
    ) -> dict[ShardId, ShardId]:
        """Return the shards without a row that get remembered entities of those whose group has
        changed, and the one of these with the highest epoch.
        """
        epochs = self._server.cluster.epochs
        found: dict[ShardId, ShardId] = {}
        for shard, entity in self._refiled(type_id, numbers, changed):
            later = numbers.shard_of(entity)
            if (type_id, later) not in epochs:
                former = found.setdefault(later, shard)
                if epochs[type_id, shard] > epochs[type_id, former]:
                    found[later] = shard
        return found

    def _refiled(
        self, type_id: int, numbers: Numbering, changed: Collection[ShardId]
    ) -> list[tuple[ShardId, str]]:
        """Return the remembered entities that have another shard now, with their former ones."""
        return [
            (shard, entity)
            for shard in changed
            for entity in self._rows.remembered.get((type_id, shard), ())
            if numbers.shard_of(entity) != shard
        ]

    def _refile(self, type_name: str, type_id: int, numbers: Numbering, changed: Collection[ShardId]) -> None:
        """Fence the shards whose group has changed, and give their rows the present shards."""
        cluster, remembered = self._server.cluster, self._rows.remembered
        cluster.fence(type_name, type_id, changed)
        cluster.add_like(type_name, type_id, self._beyond(type_id, numbers, changed))
        cluster.refile_left(type_name, type_id, numbers, changed)
        for shard, entity in self._refiled(type_id, numbers, changed):
            del remembered[type_id, shard][entity]
            remembered.setdefault((type_id, numbers.shard_of(entity)), {})[entity] = None
        for message in self._server.messages.in_shards(type_id, changed):
            stored = self._server.messages.rows[message]
            self._server.messages.refile(stored, numbers.shard_of(stored.row.entity))
        marks = self._server.messages.marks
        for message, mark in list(marks.items()):
            number, shard, epoch, entity = mark.taker
            if number == type_id and shard in changed:
                taker = number, numbers.shard_of(entity), epoch, entity
                marks[message] = mark._replace(taker=taker)

    def locked_among(self, shards: Iterable[tuple[int, ShardId]]) -> dict[tuple[int, ShardId], str]:
        """Return the shards whose rows the fence would wait for, and who holds each."""
        epochs, locks = self._server.cluster.epochs, self._server.locks
        found = {key: locks.holder(shard_key(*key)) for key in shards if key in epochs}
        return {key: name for key, name in found.items() if name is not None}

    def remember(self, marks: Sequence[Mark]) -> Steps[None]:
        """Store marks in two transactions: first entities that run, then those that do not."""
        newest = {(each.type_id, each.shard, each.entity): each for each in marks}
        runs = [newest[key] for key in sorted(newest) if newest[key].runs]
        if runs:
            yield from self._remember(runs)
            yield Pause.NEXT
        ends = [newest[key] for key in sorted(newest) if not newest[key].runs]
        if ends:
            yield from self._forget(ends)

    def _remember(self, marks: Sequence[Mark]) -> Steps[None]:
        there: list[Mark] = []
        new: list[Mark] = []
        for each in marks:
            yield Lock(_mark_key(each))
            (there if self._is_marked(each) else new).append(each)
        yield Pause.WORK
        yield from self._fence_merged(there, new)
        yield Pause.COMMIT
        for each in marks:
            self._rows.remembered.setdefault((each.type_id, each.shard), {})[each.entity] = None

    def _fence_merged(self, there: Iterable[Mark | Snapshot], new: Iterable[Mark | Snapshot]) -> Steps[None]:
        """Check the fence of a statement that updates existing rows and inserts others: the
        existing ones first, alone.
        """
        yield from self.fence(claims_of(there))
        yield from self.fence(claims_of(new))

    def _forget(self, marks: Sequence[Mark]) -> Steps[None]:
        """Delete marks; those of a stale home are ignored."""
        there = [each for each in marks if self._is_marked(each)]
        for claim in sorted(set(claims_of(marks))):
            if self._rows.is_at(*claim):
                yield Lock(shard_key(claim[0], claim[1]), shared=True)
        held = [each for each in there if self._rows.is_at(each.type_id, each.shard, each.epoch)]
        for each in held:
            yield Lock(_mark_key(each))
        yield Pause.COMMIT
        for each in held:
            self._rows.remembered.get((each.type_id, each.shard), {}).pop(each.entity, None)

    def _is_marked(self, mark: Mark) -> bool:
        return mark.entity in self._rows.remembered.get((mark.type_id, mark.shard), ())

    def save_snapshots(self, snapshots: Sequence[Snapshot]) -> Steps[None]:
        for index, each in enumerate(snapshots):
            check_json(each.state, index)
        newest = {(each.type_id, each.entity, each.seq): each for each in snapshots}
        there: list[Snapshot] = []
        new: list[Snapshot] = []
        for key, each in sorted(newest.items()):
            yield Lock(("snapshot", *key))
            (there if each.seq in self._rows.snapshots.get(key[:2], ()) else new).append(each)
        yield Pause.WORK
        yield from self._fence_merged(there, new)
        yield Pause.COMMIT
        for each in newest.values():
            self._rows.snapshots.setdefault((each.type_id, each.entity), {})[each.seq] = each
            self._rows.watching.note(each.type_id, each.entity, (each.seq,))
            if self._rows.on_snapshot is not None:
                self._rows.on_snapshot(each)

    def _lies_elsewhere(self, type_id: int, shard: ShardId) -> bool:
        """Tell whether a shard's events lie in another journal, which tells projections of them."""
        cluster = self._server.cluster
        return any(
            journal != CLUSTERS_OWN and number == shard and cluster.type_ids.get(name) == type_id
            for (name, number), journal in cluster.journals.items()
        )

    def erase(self, type_id: int, shard: ShardId, epoch: Epoch, entity: str, at_most: int) -> Steps[Erasure]:
        rows = self._rows
        xid = self._server.transactions.begin(self._server.serving)
        seen = sorted(rows.events.get((type_id, entity), ()))
        kept = sorted(rows.snapshots.get((type_id, entity), ()))
        marked = [key for key, found in rows.remembered.items() if key[0] == type_id and entity in found]
        mine = self._messages_of(type_id, shard, entity)
        for message in mine:
            yield Lock(message_key(message))
        yield from self.fence([(type_id, shard, epoch)])
        whole = len(seen) <= at_most
        gone = seen if whole else seen[len(seen) - at_most :]
        bound = 0 if whole else seen[len(seen) - at_most - 1]
        beyond = [seq for seq in kept if seq > bound]
        yield from self._hold(type_id, entity, gone)
        for seq in beyond:
            yield Lock(("snapshot", type_id, entity, seq))
        if whole:
            for key in sorted(marked):
                yield Lock(("remembered", *key, entity))
        yield Pause.COMMIT
        count = self._remove(type_id, entity, gone)
        first = 1 if whole else min(gone, default=1)
        if not self._lies_elsewhere(type_id, shard):
            self._server.projections.note_erased(xid, type_id, entity, first)
        snapshots = rows.snapshots.get((type_id, entity), {})
        former = [seq for seq in beyond if snapshots.pop(seq, None) is not None]
        rows.watching.note(type_id, entity, former)
        if not whole:
            return Erasure(events=count, snapshots=len(former), whole=False)
        forgotten = [key for key in marked if entity in rows.remembered[key]]
        for key in forgotten:
            del rows.remembered[key][entity]
        popped = [self._server.messages.pop(each) for each in mine]
        gone_too = [each for each in popped if each is not None]
        if rows.on_erase is not None:
            rows.on_erase(type_id, entity, count, gone_too)
        return Erasure(count, len(former), len(forgotten), len(gone_too))

    def archive(self, type_id: int, shard: ShardId, epoch: Epoch, entity: str, mark: str) -> Steps[Archival]:
        rows = self._rows
        yield from self.fence([(type_id, shard, epoch)])
        events = sorted(rows.events.get((type_id, entity), ()))
        snapshots = sorted(rows.snapshots.get((type_id, entity), ()))
        there = rows.mark(type_id, shard, entity)
        if not there or there != mark:
            return Archival(left="changed" if there else "gone")
        if self._messages_of(type_id, shard, entity):
            return Archival(left="messages")
        projections = self._server.projections
        waits = any(key == (type_id, entity) for _, key in projections.held)
        if waits or projections.may_trim(type_id, entity) <= max(events, default=0):
            return Archival(left="projections")
        yield from self._hold(type_id, entity, events)
        for seq in snapshots:
            yield Lock(("snapshot", type_id, entity, seq))
        yield Lock(remembered_key(type_id, shard, entity))
        yield Pause.COMMIT
        count = self._remove(type_id, entity, events)
        rows.snapshots.pop((type_id, entity), None)
        rows.watching.note(type_id, entity, snapshots)
        marked = rows.remembered.get((type_id, shard), {})
        forgotten = [each for each in (entity,) if marked.pop(each, self) is None]
        if rows.on_archive is not None:
            rows.on_archive(type_id, entity)
        return Archival(count, len(snapshots), len(forgotten))

    def forget_states(self, type_id: int, former: Sequence[Former], since: float) -> Steps[None]:
        gone: dict[str, list[int]] = {}
        changed: list[EventRow] = []
        for each in sorted(former):
            events = self._rows.events.get((type_id, each.entity), {})
            newest = max(events, default=0)
            recent = min((seq for seq, one in events.items() if one.at >= since), default=newest)
            before = min(each.before, newest)
            gone[each.entity] = sorted(seq for seq in events if seq < min(before, recent))
            for seq, (row, _) in sorted(events.items()):
                kept = max(each.since, recent) <= seq < before
                if kept and row.epoch == each.epoch and row.payload != b"null":
                    changed.append(row)
        for row in changed:
            yield Lock(event_key(type_id, row.entity, row.seq))
        for entity, numbers in gone.items():
            yield from self._hold(type_id, entity, numbers)
        yield Pause.WORK
        yield from self.fence(claims_of(changed))
        yield Pause.COMMIT
        for row in changed:
            events = self._rows.events.get((type_id, row.entity), {})
            if row.seq in events:
                events[row.seq] = Committed(row._replace(payload=b"null"), events[row.seq].at)
                self._rows.watching.note(type_id, row.entity, (row.seq,))
        for entity, numbers in gone.items():
            self._remove(type_id, entity, numbers)

    def trim(
        self,
        type_id: int,
        entity: str,
        before: int,
        keep_snapshots: int,
        since: float,
        limit: int,
        keep_events: int,
    ) -> Steps[int]:
        """Delete snapshots and events in two transactions: only events that a kept snapshot covers,
        only from the front, and never the entity's last events.
        """
        snapshots = self._rows.snapshots.get((type_id, entity), {})
        kept = sorted(snapshots, reverse=True)[: max(keep_snapshots, 1)]
        if not kept:
            return 0
        former = sorted(seq for seq in snapshots if seq < kept[-1])
        if former:
            for seq in former:
                yield Lock(("snapshot", type_id, entity, seq))
            yield Pause.COMMIT
            gone = [seq for seq in former if snapshots.pop(seq, None) is not None]
            self._rows.watching.note(type_id, entity, gone)
            yield Pause.NEXT
        events = self._rows.events.get((type_id, entity), {})
        recent = min((seq for seq, one in events.items() if one.at >= since), default=before)
        unseen = self._server.projections.may_trim(type_id, entity)
        newest = max(events, default=0) - keep_events + 1
        end = min(before, min(snapshots, default=0) + 1, newest, recent, unseen)
        gone = sorted(seq for seq in events if seq < end)[:limit]
        yield from self._hold(type_id, entity, gone)
        if gone:
            yield Pause.COMMIT
        return self._remove(type_id, entity, gone)

    def _messages_of(self, type_id: int, shard: ShardId, entity: str) -> list[str]:
        """Return the messages of an entity, also those that were stored from outside by a former
        number of shards.
        """
        shards = {shard, *self._server.cluster.former_shards(type_id, entity)}
        return self._server.messages.of(type_id, shards, entity)

    def _hold(self, type_id: int, entity: str, numbers: Iterable[int]) -> Steps[None]:
        for seq in numbers:
            yield Lock(event_key(type_id, entity, seq))

    def _remove(self, type_id: int, entity: str, numbers: Collection[int]) -> int:
        """Delete those that are still there, and return their number."""
        events = self._rows.events.get((type_id, entity), {})
        there = [seq for seq in numbers if events.pop(seq, None) is not None]
        self._rows.watching.note(type_id, entity, there)
        if there and not events:
            del self._rows.events[type_id, entity]
        return len(there)


def claims_of(rows: Iterable[EventRow | Mark | Snapshot]) -> Iterable[Claim]:
    return [(each.type_id, each.shard, each.epoch) for each in rows]


def remembered_key(type_id: int, shard: ShardId, entity: str) -> Key:
    return "remembered", type_id, shard, entity


def _mark_key(mark: Mark) -> Key:
    return remembered_key(mark.type_id, mark.shard, mark.entity)
