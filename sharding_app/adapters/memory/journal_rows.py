"""The journal's tables: events and snapshots, fenced by the shard's row in the same step as they are written."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sharding_app.adapters.memory.sessions import ServerError
from sharding_app.core.ids import MAX_ENTITY_ID_BYTES, Epoch, ShardId
from sharding_app.ports.journal import (
    EVERYTHING,
    Bounds,
    Erasure,
    EventRow,
    Former,
    History,
    Mark,
    Outcome,
    RowRefused,
    ShardsFenced,
    ShardsLocked,
    Snapshot,
    StoredEvent,
)

EntityKey = tuple[int, str]
MAX_BIGINT = 2**63
LOCK_TIMEOUT_SECONDS = 0.2
"""So long the journal's statements wait for the rows of their shards."""


class Committed(NamedTuple):
    """An event and the server's time of its commit."""

    row: EventRow
    at: float


class JournalRows:
    """Rows of all entities. `epochs` is a view of the shard rows that the fence looks at."""

    def __init__(self, epochs: Mapping[tuple[int, ShardId], Epoch]) -> None:
        self._epochs = epochs
        self.events: dict[EntityKey, dict[int, Committed]] = {}
        self.snapshots: dict[EntityKey, dict[int, Snapshot]] = {}
        self.remembered: dict[tuple[int, ShardId], dict[str, None]] = {}
        self.beside: dict[str, str] = {}
        "Rows of a user's own, which go with the events of their transaction, and the client that wrote each."
        self.locked: dict[tuple[int, ShardId], str] = {}
        "Shards whose rows a session holds that is none of ours, and its name: for tests and faults."
        self.on_row: Callable[[EventRow, int], None] | None = None
        "A trigger of the user's: for a row that it does not let through it raises RowRefused, or ServerError."
        self.on_commit: Callable[[Sequence[EventRow]], None] | None = None
        "Told of each batch in the moment of its commit: for checks."
        self.on_erase: Callable[[int, str, int], None] | None = None
        "Told of an entity whose events were erased, and how many: for checks."
        self.on_snapshot: Callable[[Snapshot], None] | None = None

    def append(self, rows: Sequence[EventRow], now: float) -> None:
        """All or nothing. A number that is taken by the shard's next home is told as fenced, not as refused."""
        new: set[tuple[int, str, int]] = set()
        for index, row in enumerate(rows):
            check_row(row, index)
            if self.on_row is not None:
                self.on_row(row, index)
            key = row.type_id, row.entity, row.seq
            if key in new or row.seq in self.events.get(key[:2], ()):
                self.fence((each.type_id, each.shard, each.epoch) for each in rows)
                raise RowRefused(f"event {row.seq} of this entity exists already", index)
            new.add(key)
        self._lock_for_append(rows)
        self.fence((row.type_id, row.shard, row.epoch) for row in rows)
        for row in rows:
            self.events.setdefault((row.type_id, row.entity), {})[row.seq] = Committed(row, now)
        if self.on_commit is not None:
            self.on_commit(rows)

    def _lock_for_append(self, rows: Sequence[EventRow]) -> None:
        try:
            self.lock((row.type_id, row.shard, row.epoch) for row in rows)
        except ServerError:
            raise ShardsLocked(self.locked_among((row.type_id, row.shard) for row in rows)) from None

    def locked_among(self, shards: Iterable[tuple[int, ShardId]]) -> dict[tuple[int, ShardId], str]:
        return {key: self.locked[key] for key in shards if key in self.locked} if self.locked else {}

    def lock(self, claims: Iterable[tuple[int, ShardId, Epoch]]) -> None:
        """Lock the rows that are at the epoch of their claim, as whatever is fenced does. Raises ServerError if others hold one
        of them for longer."""
        if self.locked and self.locked_among(
            (type_id, shard)
            for type_id, shard, epoch in claims
            if self._epochs.get((type_id, shard)) == epoch
        ):
            raise lock_timeout(LOCK_TIMEOUT_SECONDS)

    def fence(self, claims: Iterable[tuple[int, ShardId, Epoch]]) -> None:
        stale = frozenset(
            (type_id, shard)
            for type_id, shard, epoch in claims
            if self._epochs.get((type_id, shard)) != epoch
        )
        if stale:
            raise ShardsFenced(stale)

    def holds(self, rows: Sequence[EventRow]) -> bool:
        """Whether this batch was committed. All of it was, or none, so one row tells; its epoch tells it from the
        next home's of that number."""
        if not rows:
            return True
        found = self.events.get((rows[0].type_id, rows[0].entity), {}).get(rows[0].seq)
        return found is not None and found.row.epoch == rows[0].epoch

    def read(self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING) -> dict[str, History]:
        histories: dict[str, History] = {}
        count = size = 0
        for entity in entities:
            if entity in histories:
                continue
            if count >= bounds.rows or size >= bounds.bytes:
                break
            kept = self.snapshots.get((type_id, entity), {})
            newest = kept[max(kept)] if kept else None
            if newest is not None:
                count, size = count + 1, size + len(newest.state)
            room = Bounds(min(bounds.events, bounds.rows - count), 0, bounds.bytes - size)
            if room.events > 0 and room.bytes > 0:
                history = self.read_from(type_id, entity, newest.seq if newest else 0, room)
            else:
                history = History(None, [], more=True)
            history.snapshot = newest
            histories[entity] = history
            count += len(history.events) or (newest is None)
            size += sum(len(event.payload) for event in history.events)
        return histories

    def read_from(self, type_id: int, entity: str, after: int, bounds: Bounds = EVERYTHING) -> History:
        events = self.events.get((type_id, entity), {})
        history = History(None, [])
        size = 0
        for seq in sorted(seq for seq in events if seq > after):
            if len(history.events) >= bounds.events or size >= bounds.bytes:
                history.more = True
                break
            row = events[seq].row
            size += len(row.payload)
            history.events.append(StoredEvent(seq, row.name, row.version, row.payload))
        return history

    def read_snapshot(self, type_id: int, entity: str, before: int) -> Snapshot | None:
        kept = self.snapshots.get((type_id, entity), {})
        return kept.get(max((seq for seq in kept if seq < before), default=0))

    def last_seq(self, type_id: int, entity: str) -> int:
        return max(self.events.get((type_id, entity), ()), default=0)

    def remember(self, marks: Sequence[Mark]) -> None:
        newest = {(each.type_id, each.shard, each.entity): each for each in marks}
        self.lock((each.type_id, each.shard, each.epoch) for each in newest.values())
        self.fence((each.type_id, each.shard, each.epoch) for each in newest.values() if each.runs)
        for each in newest.values():
            entities = self.remembered.setdefault((each.type_id, each.shard), {})
            if each.runs:
                entities[each.entity] = None
            elif self._epochs.get((each.type_id, each.shard)) == each.epoch:
                entities.pop(each.entity, None)

    def recall(self, type_id: int, shards: Sequence[ShardId]) -> dict[ShardId, list[str]]:
        found = {shard: sorted(self.remembered.get((type_id, shard), ())) for shard in sorted(set(shards))}
        return {shard: entities for shard, entities in found.items() if entities}

    def remembered_shards(self, type_id: int) -> list[ShardId]:
        return sorted(
            shard for (owner, shard), entities in self.remembered.items() if owner == type_id and entities
        )

    def erase(self, type_id: int, shard: ShardId, epoch: Epoch, entity: str, at_most: int) -> Erasure:
        self.lock([(type_id, shard, epoch)])
        self.fence([(type_id, shard, epoch)])
        events = self.events.get((type_id, entity), {})
        if len(events) > at_most:
            for seq in sorted(events)[len(events) - at_most :]:
                del events[seq]
            return Erasure(events=at_most, whole=False)
        remembered = [
            found for (owner, _), found in self.remembered.items() if owner == type_id and entity in found
        ]
        for found in remembered:
            del found[entity]
        count = len(self.events.pop((type_id, entity), ()))
        if self.on_erase is not None:
            self.on_erase(type_id, entity, count)
        return Erasure(
            events=count,
            snapshots=len(self.snapshots.pop((type_id, entity), ())),
            remembered=len(remembered),
        )

    def read_last(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, StoredEvent | None]:
        found: dict[str, StoredEvent | None] = {}
        size = 0
        for entity in entities:
            if size >= bounds.bytes:
                break
            events = self.events.get((type_id, entity))
            found[entity] = None
            if events:
                seq = max(events)
                row = events[seq].row
                size += len(row.payload)
                found[entity] = StoredEvent(seq, row.name, row.version, row.payload)
        return found

    def forget_states(self, type_id: int, former: Sequence[Former], since: float) -> None:
        changed: list[Committed] = []
        claims = []
        for each in former:
            events = self.events.get((type_id, each.entity), {})
            newest = max(events, default=0)
            recent = min((seq for seq, one in events.items() if one.at >= since), default=newest)
            before = min(each.before, newest)
            for seq, one in list(events.items()):
                kept = max(each.since, recent) <= seq < before
                if kept and one.row.epoch == each.epoch and one.row.payload != b"null":
                    claims.append((type_id, one.row.shard, each.epoch))
                    changed.append(one)
        self.lock(claims)
        self.fence(claims)
        for one in changed:
            row = one.row._replace(payload=b"null")
            self.events[row.type_id, row.entity][row.seq] = Committed(row, one.at)
        for each in former:
            events = self.events.get((type_id, each.entity), {})
            newest = max(events, default=0)
            recent = min((seq for seq, one in events.items() if one.at >= since), default=newest)
            for seq in [seq for seq in events if seq < min(each.before, newest, recent)]:
                del events[seq]

    def outcome(self, type_id: int, entity: str, command_id: str, since: float) -> Outcome | None:
        events = self.events.get((type_id, entity), {})
        for seq in sorted(events, reverse=True):
            row, at = events[seq]
            if row.command_id == command_id and at >= since:
                return Outcome(seq, row.command or "", row.reply, row.partial)
        return None

    def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        for index, each in enumerate(snapshots):
            check_json(each.state, index)
        self.lock((each.type_id, each.shard, each.epoch) for each in snapshots)
        self.fence((each.type_id, each.shard, each.epoch) for each in snapshots)
        for each in snapshots:
            self.snapshots.setdefault((each.type_id, each.entity), {})[each.seq] = each
            if self.on_snapshot is not None:
                self.on_snapshot(each)

    def trim(
        self, type_id: int, entity: str, before: int, keep_snapshots: int, since: float, limit: int
    ) -> bool:
        """Only what a kept snapshot covers goes, only from the front, and never the entity's last event."""
        snapshots = self.snapshots.get((type_id, entity), {})
        kept = sorted(snapshots, reverse=True)[: max(keep_snapshots, 1)]
        if not kept:
            return False
        for seq in [seq for seq in snapshots if seq < kept[-1]]:
            del snapshots[seq]
        events = self.events.get((type_id, entity), {})
        recent = min((seq for seq, one in events.items() if one.at >= since), default=before)
        end = min(before, kept[-1] + 1, max(events, default=0), recent)
        gone = sorted(seq for seq in events if seq < end)[:limit]
        for seq in gone:
            del events[seq]
        return len(gone) >= limit


def lock_timeout(seconds: float) -> ServerError:
    return ServerError("55P03", "canceling statement due to lock timeout", seconds)


def check_row(row: EventRow, index: int) -> None:
    """Refuse what Postgres refuses in one of a table's columns."""
    for text in (row.entity, row.name, row.command_id or "", row.command or ""):
        if "\0" in text:
            raise RowRefused("text holds a NUL", index)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RowRefused(f"text is not Unicode: {error.reason}", index) from None
    if not 1 <= len(row.entity.encode()) <= MAX_ENTITY_ID_BYTES:
        raise RowRefused("an entity id has 1 to 512 bytes", index)
    if not 0 < row.seq < MAX_BIGINT:
        raise RowRefused(f"{row.seq} numbers no event", index)
    check_json(row.payload, index)


def check_json(document: bytes, index: int) -> None:
    try:
        json.loads(document.decode(), parse_constant=_no_json)
    except ValueError as error:
        raise RowRefused(f"not JSON: {error}", index) from None


def _no_json(word: str) -> object:
    raise ValueError(f"{word} is not JSON")
