"""The journal's tables: events, snapshots and marks. `journal_writes` writes to them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sharding_app.adapters.memory.message_rows import MAX_BIGINT, Stored
from sharding_app.adapters.memory.move_rows import Watching
from sharding_app.ports.journal import (
    EVERYTHING,
    Bounds,
    EventRow,
    History,
    Outcome,
    Reading,
    RowRefused,
    ShardsFenced,
    Snapshot,
    StoredEvent,
    Trimmable,
    Wanted,
)
from sharding_app.protocol.following import FollowedEvent
from sharding_app.protocol.ids import MAX_ENTITY_ID_BYTES, Epoch, ShardId

EntityKey = tuple[int, str]


class Committed(NamedTuple):
    """An event and the server's time of its commit."""

    row: EventRow
    at: float


class JournalRows:
    """Rows of all entities. `epochs` is a view of the shard rows, for the fence."""

    def __init__(self, epochs: Mapping[tuple[int, ShardId], Epoch]) -> None:
        self._epochs = epochs
        self.events: dict[EntityKey, dict[int, Committed]] = {}
        self.snapshots: dict[EntityKey, dict[int, Snapshot]] = {}
        self.remembered: dict[tuple[int, ShardId], dict[str, None]] = {}
        self.watching = Watching()
        self.beside: dict[str, str] = {}
        """Rows of the user's own, written in the transaction of the events, and the client that
        wrote each."""
        self.on_row: Callable[[EventRow, int], None] | None = None
        "A user's trigger: it raises RowRefused or ServerError for a row that it rejects."
        self.on_commit: Callable[[Sequence[EventRow]], None] | None = None
        "Called with each batch at the moment of its commit: for checks."
        self.on_taken: Callable[[EventRow], None] | None = None
        "Called with an event whose number is taken, before it is refused: for checks."
        self.on_erase: Callable[[int, str, int, Sequence[Stored]], None] | None = None
        "Called with an entity whose events were erased, and their number: for checks."
        self.on_archive: Callable[[int, str], None] | None = None
        "Called with an entity that stood in an archive and is gone now: for checks."
        self.on_snapshot: Callable[[Snapshot], None] | None = None

    def check(self, row: EventRow, index: int) -> None:
        """Raise RowRefused or ServerError for a row that no table takes, or that the user's trigger
        rejects.
        """
        check_row(row, index)
        if self.on_row is not None:
            self.on_row(row, index)

    def is_taken(self, row: EventRow) -> bool:
        """Tell whether an event has that number."""
        return row.seq in self.events.get((row.type_id, row.entity), ())

    def store(self, rows: Sequence[EventRow], at: float) -> None:
        """Write a batch; the fence was checked when the rows of its shards were locked."""
        numbers: dict[EntityKey, list[int]] = {}
        for row in rows:
            self.events.setdefault((row.type_id, row.entity), {})[row.seq] = Committed(row, at)
            numbers.setdefault((row.type_id, row.entity), []).append(row.seq)
        for (type_id, entity), written in numbers.items():
            self.watching.note(type_id, entity, written)
        if self.on_commit is not None:
            self.on_commit(rows)

    def mark(self, type_id: int, shard: ShardId, entity: str) -> str:
        """Return what an entity has stored, in short; empty: nothing."""
        events = self.events.get((type_id, entity), {})
        snapshots = self.snapshots.get((type_id, entity), {})
        if not events and not snapshots:
            return ""
        at = max((each.at for each in events.values()), default=0.0)
        runs = entity in self.remembered.get((type_id, shard), ())
        return f"{sorted(events)} {at}, {sorted(snapshots)}, {runs}"

    def began(self, row: EventRow) -> float:
        """Return the time at which the transaction of an event that is stored began."""
        return self.events[row.type_id, row.entity][row.seq].at

    def is_at(self, type_id: int, shard: ShardId, epoch: Epoch) -> bool:
        """Tell whether a shard's row has that epoch."""
        return self._epochs.get((type_id, shard)) == epoch

    def fence(self, claims: Iterable[tuple[int, ShardId, Epoch]]) -> None:
        stale = frozenset(
            (type_id, shard)
            for type_id, shard, epoch in claims
            if self._epochs.get((type_id, shard)) != epoch
        )
        if stale:
            raise ShardsFenced(stale)

    def holds(self, rows: Sequence[EventRow]) -> bool:
        """Tell whether this batch was committed. All of it was, or none, so one row tells; its
        epoch distinguishes it from the next home's event of that number, and the rest from one of a
        former life.
        """
        if not rows:
            return True
        found = self.events.get((rows[0].type_id, rows[0].entity), {}).get(rows[0].seq)
        return found is not None and _is_same(rows[0], found.row)

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

    def follow(self, wanted: Wanted, page_bytes: int, moment: Callable[[float], int]) -> Reading:
        """Read what there is for a follower. `moment` turns times of this server into those that
        events show.
        """
        events = self.events.get((wanted.type_id, wanted.entity), {})
        had = events.get(wanted.after)
        found: list[FollowedEvent] = []
        size = 0
        for seq in sorted(seq for seq in events if seq > wanted.after):
            if len(found) >= wanted.limit or size >= page_bytes:
                break
            row, at = events[seq]
            size += len(row.payload)
            found.append(FollowedEvent(seq, row.name, row.version, row.payload, moment(at)))
        known = moment(had.at) if had is not None and wanted.limit else None
        last = max(events, default=0)
        return Reading(last, known, found, moment(events[last].at) if last else 0)

    def ids(self, type_id: int, prefix: str, after: str, limit: int) -> list[str]:
        behind = after.encode(errors="surrogatepass")
        found = [
            entity.encode()
            for (owner, entity), events in self.events.items()
            if owner == type_id and events and entity.startswith(prefix)
        ]
        return [each.decode() for each in sorted(each for each in found if each > behind)[:limit]]

    def recall(self, type_id: int, shards: Sequence[ShardId]) -> dict[ShardId, list[str]]:
        found = {shard: sorted(self.remembered.get((type_id, shard), ())) for shard in sorted(set(shards))}
        return {shard: entities for shard, entities in found.items() if entities}

    def remembered_shards(self, type_id: int) -> list[ShardId]:
        return sorted(
            shard for (owner, shard), entities in self.remembered.items() if owner == type_id and entities
        )

    def trimmable(self, type_id: int, after: str, since: float, keep_events: int, limit: int) -> Trimmable:
        page = [
            (entity, seq)
            for (owner, entity), kept in sorted(self.snapshots.items())
            if owner == type_id and entity > after
            for seq in sorted(kept)
        ][:limit]
        may = []
        for entity, oldest in sorted(dict(reversed(page)).items()):
            events = self.events.get((type_id, entity), {})
            first = min(events, default=0)
            if events and first <= min(oldest, max(events) - keep_events) and events[first].at < since:
                may.append(entity)
        return Trimmable(may, page[-1][0] if len(page) == limit else "")

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

    def outcome(self, type_id: int, entity: str, command_id: str, since: float) -> Outcome | None:
        events = self.events.get((type_id, entity), {})
        for seq in sorted(events, reverse=True):
            row, at = events[seq]
            if row.command_id == command_id and at >= since:
                return Outcome(seq, row.command or "", row.reply, row.partial)
        return None


def check_row(row: EventRow, index: int) -> None:
    """Refuse values that Postgres refuses in one of a table's columns."""
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


def _is_same(row: EventRow, found: EventRow) -> bool:
    """Tell an event from others of its number."""
    same = (row.epoch, row.name, row.command_id) == (found.epoch, found.name, found.command_id)
    return same and row.payload in (b"", found.payload)
