"""Finds entities that nothing has changed for long, reads them whole, and removes them from the
journal once they stand in a closed file, for `sharding_archive`.

Contract: the type is walked along its key in short statements, and a page of entities is read at
one moment. An entity is removed in one transaction, all of it or nothing, and only if it has the
mark with which it was read. While a living node may hold it in memory, that node removes it
(`runtime.hosting.erasure`). Otherwise the epochs of its shards are raised first, so that a process
that was frozen all the while writes nothing after its events.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sharding_app.adapters.postgres.deletion import NodesAlive
from sharding_app.adapters.postgres.sql import HIGHEST, QUERIES
from sharding_app.adapters.postgres.transfer import (
    Contradiction,
    KnownType,
    StoredRow,
    StoredSnapshot,
    Transfer,
)
from sharding_app.ports.journal import Archival
from sharding_app.protocol.ids import Epoch, ShardId

PAGE_ENTITIES = 500


class Dormant(NamedTuple):
    """An entity whose last event is old."""

    entity: str
    last: int
    "Number of its last event."
    events: int


class Stored(NamedTuple):
    """All that is stored of an entity."""

    entity: str
    mark: str
    "Any event, snapshot or start after it gives another one, and so does another life of the id."
    snapshots: list[StoredSnapshot]
    events: list[StoredRow]
    remembered: bool

    @property
    def rows(self) -> int:
        return len(self.snapshots) + len(self.events) + self.remembered


class Archive(Transfer):
    """One connection, for one type. `with Archive(...) as archive`."""

    _fenced: dict[ShardId, Epoch]

    def __enter__(self) -> "Archive":
        super().__enter__()
        self._fenced = {}
        return self

    # -- Reading -----------------------------------------------------------------------------------

    def dormant(self, number: int, entity: str | None, seconds: float) -> Iterator[Dormant]:
        """Read which entities of a type have had no event for that number of seconds."""
        wanted = {
            "type_id": number, "first": entity or "", "last": entity or HIGHEST,
            "window": seconds, "limit": PAGE_ENTITIES,
        }  # fmt: skip
        after = ""
        while True:
            rows = self._rows("archive_page", {**wanted, "after": after})
            for one, is_old, last, events, written in rows:
                if is_old and self.lies_here(one, written):
                    yield Dormant(one, last, events)
            if len(rows) < PAGE_ENTITIES:
                return
            after = rows[-1][0]

    def filling(self, number: int) -> list[str]:
        """Return the projections that still read the type for the first time."""
        return [name for (name,) in self._rows("archive_filling", {"type_id": number})]

    def waiting(self, known: KnownType, entities: Sequence[str]) -> set[str]:
        """Return which of these entities have messages or timers that wait, or are to get some."""
        wanted = {"type_id": known.number, "type": known.config.name, "entities": list(entities)}
        return {entity for (entity,) in self._rows("archive_waiting", wanted)}

    def stored(self, number: int, places: Mapping[str, ShardId]) -> list[Stored]:
        """Read all that is stored of these entities, as of one moment; `places` has their
        shards.
        """
        entities = list(places)
        wanted = {"type_id": number, "entities": entities, "shards": list(places.values())}
        events: dict[str, list[StoredRow]] = {}
        snapshots: dict[str, list[StoredSnapshot]] = {}
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            marks = dict(self._rows("archive_marks", wanted))
            for row in self._rows("archive_events", wanted):
                events.setdefault(row[0], []).append(StoredRow(*row))
            for row in self._rows("archive_snapshots", wanted):
                snapshots.setdefault(row[0], []).append(StoredSnapshot(*row))
            remembered = {entity for (entity,) in self._rows("archive_remembered", wanted)}
        return [
            Stored(each, marks[each], snapshots.get(each, []), events.get(each, []), each in remembered)
            for each in entities
        ]

    # -- Removing ----------------------------------------------------------------------------------

    def remove(self, number: int, entity: str, shard: ShardId, mark: str) -> Archival:
        """Remove an entity that stands in a closed file and has this mark; `shard` is the one to
        which its id leads now. Raises NodesAlive if a living node may hold it in memory.
        """
        named: dict[str, Any] = {"type_id": number, "entity": entity, "present": shard, "mark": mark}
        found = self._rows("archive_find", named)
        if not found:
            return Archival(left="gone")
        if alive := self._rows("erase_homes", {"homes": [home for _, home in found]}):
            raise NodesAlive([name for (name,) in alive])
        unknown = [each for each in found if each[1] is not None or each[0] not in self._fenced]
        if unknown:
            fenced = self._rows("archive_fence", {
                "type_id": number, "shards": [each for each, _ in unknown], "homes": [home for _, home in unknown],
            })  # fmt: skip
            self._fenced.update(fenced)
            if len(fenced) < len(unknown):
                raise NodesAlive
            self.look_again(number)
        shards = [each for each, _ in found]
        epochs = [self._fenced[each] for each in shards]
        with self._connection.transaction():
            held = self._rows("erase_held", {"type_id": number, "shards": shards, "epochs": epochs})
            rows = self._rows("archive_remove", {**named, "shard": shards[0], "epoch": epochs[0]})
            if not rows or held != [(True,)]:
                # Another run may have raised them: the next look at this entity raises them again.
                for each in shards:
                    self._fenced.pop(each, None)
                raise NodesAlive
        return Archival(*rows[0])

    def look_again(self, number: int) -> None:
        """Look behind the fence whether the entity still lies where it was looked for, and in that
        shard. A fence that was made before would have been raised by a move, or by a resize.
        """

    def kept(self, number: int, lasts: Mapping[str, tuple[int, str]]) -> set[str]:
        """Return which of these entities have this event, with this time, in the journal."""
        wanted = {
            "type_id": number, "entities": list(lasts), "seqs": [seq for seq, _ in lasts.values()],
            "ats": [at for _, at in lasts.values()],
        }  # fmt: skip
        return {entity for (entity,) in self._rows("archive_kept", wanted)}

    def note_files(self, action: str, name: str, detail: str) -> None:
        self._connection.execute(QUERIES["archive_note"], {"action": action, "type": name, "detail": detail})

    # -- Putting back ------------------------------------------------------------------------------

    def put(
        self, known: KnownType, given: Sequence[Stored], places: Mapping[str, ShardId]
    ) -> tuple[int, int, list[str]]:
        """Put entities back, all of each or nothing. Return how many rows were missing and how many
        were there, and the entities that have a history of their own: these stay as they are.
        Raises NodesAlive, Contradiction.
        """
        with self._connection.transaction():
            marks = self._marks(known.number, given, places)
            new = [each for each in given if not marks[each.entity]]
            there = [each for each in given if marks[each.entity] == each.mark]
            others = [each.entity for each in given if marks[each.entity] not in ("", each.mark)]
            snapshots = [one for each in new for one in each.snapshots]
            events = [one for each in new for one in each.events]
            remembered = [each.entity for each in new if each.remembered]
            stored = 0
            if snapshots:
                stored += self.put_snapshots(known, snapshots, [places[each.entity] for each in snapshots])
            if events:
                shards = [places[each.entity] for each in events]
                stored += self.put_events(known, events, shards, archived=True)
            if remembered:
                stored += self.put_remembered(known, remembered, [places[each] for each in remembered])
            marks = self._marks(known.number, new, places)
            for each in new:
                if marks[each.entity] != each.mark:
                    raise Contradiction(f"the rows of {each.entity!r} are not those of its line")
        return stored, sum(each.rows for each in there), others

    def _marks(self, number: int, given: Sequence[Stored], places: Mapping[str, ShardId]) -> dict[str, str]:
        """Return the marks of these entities in the journal; empty: nothing is stored."""
        entities = [each.entity for each in given]
        wanted = {"type_id": number, "entities": entities, "shards": [places[each] for each in entities]}
        return dict(self._rows("archive_marks", wanted))
