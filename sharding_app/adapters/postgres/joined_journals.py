"""Reads, removes and puts back what a type has stored in several journals, as if it were one.

Contract: pages of the journals are merged by their keys, so that the order of a file is that of one
journal. Rows of entities that do not lie in a journal are left out: they are a copy that a move is
making there, or has left behind. Work that goes on while a shard moves ends with `Moved`. What is
written goes to the journal of the shard; the type is fenced there as in the cluster's own database.
All journals of a type answer before anything is read or written.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from sharding_app.adapters.postgres.archive import Archive, Dormant, Stored
from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import NodesAlive
from sharding_app.adapters.postgres.further_journals import (
    NONE,
    Connection,
    Further,
    connect,
    epochs,
    refuse_unread,
    stand,
    used,
)
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.transfer import (
    Age,
    KnownType,
    Moved,
    Resizing,
    StoredRow,
    StoredSnapshot,
)
from sharding_app.ports.journal import Archival
from sharding_app.protocol.ids import EntityId, Epoch, ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN, journal_of
from sharding_app.protocol.whereabouts import Whereabouts

T = TypeVar("T")
_BY_KEY = attrgetter("entity", "seq")


class _Part(Archive):
    """A further journal. The type, its nodes and the projections are asked in the cluster's
    database.
    """

    def __init__(self, name: str, connection: Connection, whole: "Journals") -> None:
        self._connection = connection
        self._fenced = {}
        self._name = name
        self._whole = whole

    def type(self, name: str) -> KnownType:
        return self._whole.type(name)

    def same_numbers(self, known: KnownType) -> None:
        self._whole.same_numbers(known)

    def lies_here(self, entity: EntityId, written: ShardId) -> bool:
        return self._whole.whereabouts.journal_of(entity, written) == self._name

    def remove(self, number: int, entity: str, shard: ShardId, mark: str) -> Archival:
        """As of one journal, with the homes of the coordinator's rows, which are raised first."""
        named: dict[str, Any] = {"type_id": number, "entity": entity, "present": shard, "mark": mark}
        found = [each for each, _ in self._rows("archive_find", named)]
        if not found:
            return Archival(left="gone")
        if self._whole.waits_outside(number, entity, shard):
            return Archival(left="messages")
        raised = self._whole.raised(self._name, number, found)
        epoch = raised[found[0]]
        with self._connection.transaction():
            wanted = {"type_id": number, "shards": found, "epochs": [raised[each] for each in found]}
            held = self._rows("erase_held", wanted)
            rows = self._rows("archive_remove", {**named, "shard": found[0], "epoch": epoch})
            if not rows or held != [(True,)]:
                self._whole.forget(found)
                raise NodesAlive
        return Archival(*rows[0])

    def _refuse_hosts(self, name: str) -> None:
        self._whole._refuse_hosts(name)


class Journals(Archive):
    """All journals of one type. `with Journals(...) as journals`, then `type(name)`.

    Where no shard of the type lies in a further journal, it is an `Archive` of the cluster's own.
    `weights`: those by which shards without a row are spread, if there are any. Raises JournalDown,
    UnknownJournals beside the errors of an `Archive`.
    """

    _stack: ExitStack
    _parts: dict[str, _Part]
    _places: dict[ShardId, str]
    _known: Set[ShardId]
    _name: str
    _looked_at: KnownType
    whereabouts: Whereabouts

    def __init__(
        self,
        conninfo: Conninfo,
        further: Further = NONE,
        *,
        weights: Mapping[str, float] | None = None,
        read_only: bool = False,
    ) -> None:
        super().__init__(conninfo, read_only=read_only)
        self._further = further
        self._weights = weights or {}

    def __enter__(self) -> "Journals":
        super().__enter__()
        self._stack = ExitStack()
        self._parts, self._places, self._known, self._name = {}, {}, set(), ""
        self.whereabouts = Whereabouts(None, {})
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        super().__exit__()

    def type(self, name: str) -> KnownType:
        known = super().type(name)
        if name != self._name:
            self._name, self._looked_at = name, known
            self._look(known)
        return known

    def same_numbers(self, known: KnownType) -> None:
        super().same_numbers(known)
        if set(self._journals(known)) - self._parts.keys():
            raise Resizing(known.config.name)  # a shard has got its first home in another journal
        self._refuse_moved(known.number)

    def _refuse_moved(self, number: int) -> None:
        """Raise Moved if a shard lies in another journal than when the type was looked up."""
        lying = self._rows("shard_journals", {"type_id": number})
        now: dict[ShardId, str] = {shard: journal for shard, journal in lying if journal}
        if any(now.get(shard, CLUSTERS_OWN) != name for shard, name in self._places.items()) or (
            self._known & now.keys() - self._places.keys()
        ):
            raise Moved(self._name)

    def in_use(self) -> list[str]:
        """Return the further journals that have shards of any type."""
        return used(self._connection, self._further)

    def _journals(self, known: KnownType) -> list[str]:
        return used(self._connection, self._further, [known.config.name])

    def _look(self, known: KnownType) -> None:
        """Open the journals of a type, and learn where its shards lie."""
        self._stack.close()
        self._parts = {}
        for name in self._journals(known):
            self._open(name)
        lying: dict[ShardId, str] = dict(self._rows("shard_journals", {"type_id": known.number}))
        self._known = lying.keys()
        self._places = {shard: name for shard, name in lying.items() if name}
        self.whereabouts = Whereabouts(None, {})
        if self._parts:
            by_hash = known.config.extractor.startswith("hash:")
            self.whereabouts = Whereabouts(known.config.numbering if by_hash else None, self._places)

    def _open(self, name: str) -> None:
        if name not in self._parts:
            journal = connect(name, self._further, "transfer", read_only=self._read_only)
            self._parts[name] = _Part(name, self._stack.enter_context(journal), self)

    def lies_here(self, entity: EntityId, written: ShardId) -> bool:
        return self.whereabouts.journal_of(entity, written) == CLUSTERS_OWN

    def _part_of(self, number: int, entity: EntityId) -> Archive:
        """Return the journal in which the history of an entity lies."""
        if not self.whereabouts.by_hash:
            for part in self._parts.values():
                shards = part._rows("erase_shards", {"type_id": number, "entity": entity})
                if any(part.lies_here(entity, shard) for (shard,) in shards):
                    return part
            return _Own(self)
        name = self.whereabouts.journal_of(entity, 0)
        return self._parts[name] if name else _Own(self)

    def _lies_in(self, shard: ShardId) -> str:
        return self._places.get(shard, CLUSTERS_OWN)

    def _by_journal(self, given: Sequence[T], shards: Sequence[ShardId]) -> dict[str, list[T]]:
        found: dict[str, list[T]] = {}
        for each, shard in zip(given, shards, strict=True):
            found.setdefault(self._lies_in(shard), []).append(each)
        return found

    # -- Reading -----------------------------------------------------------------------------------

    def snapshots(
        self, number: int, entity: str | None = None, after: tuple[str, int] = ("", 0)
    ) -> Iterator[StoredSnapshot]:
        parts = (part.snapshots(number, entity, after) for part in self._parts.values())
        return heapq.merge(super().snapshots(number, entity, after), *parts, key=_BY_KEY)

    def events(
        self, number: int, entity: str | None = None, after: tuple[str, int] = ("", 0)
    ) -> Iterator[StoredRow]:
        parts = (part.events(number, entity, after) for part in self._parts.values())
        return heapq.merge(super().events(number, entity, after), *parts, key=_BY_KEY)

    def late(self, number: int, entities: Sequence[str], since: str) -> set[tuple[str, int]]:
        found = super().late(number, entities, since)
        return found.union(*(part.late(number, entities, since) for part in self._parts.values()))

    def remembered(self, number: int, entity: str | None, shards: range, after: str = "") -> Iterator[str]:
        if not self._parts:
            yield from super().remembered(number, entity, shards, after)
            return
        for shard in shards:
            one, last = range(shard, shard + 1), after if shard == shards.start else ""
            name = self._lies_in(shard)
            if name:
                yield from self._parts[name].remembered(number, entity, one, last)
            else:
                yield from super().remembered(number, entity, one, last)

    def dormant(self, number: int, entity: str | None, seconds: float) -> Iterator[Dormant]:
        parts = (part.dormant(number, entity, seconds) for part in self._parts.values())
        return heapq.merge(super().dormant(number, entity, seconds), *parts, key=attrgetter("entity"))

    def waiting(self, known: KnownType, entities: Sequence[str]) -> set[str]:
        """Entities of all types and journals may have messages to these."""
        found = super().waiting(known, entities)
        for name in self.in_use():
            if name in self._parts:
                found |= self._parts[name].waiting(known, entities)
            else:
                with connect(name, self._further, "transfer", read_only=True) as journal:
                    found |= _Part(name, journal, self).waiting(known, entities)
        return found

    def stored(self, number: int, places: Mapping[str, ShardId]) -> list[Stored]:
        if not self._parts:
            return super().stored(number, places)
        found: dict[str, Stored] = {}
        for name, entities in self._by_journal([*places], [*places.values()]).items():
            wanted = {each: places[each] for each in entities}
            rows = self._parts[name].stored(number, wanted) if name else super().stored(number, wanted)
            found |= {each.entity: each for each in rows}
        return [found[each] for each in places]

    def kept(self, number: int, lasts: Mapping[str, tuple[int, str]]) -> set[str]:
        found = super().kept(number, lasts)
        return found.union(*(part.kept(number, lasts) for part in self._parts.values()))

    # -- Moving out --------------------------------------------------------------------------------

    def old_entities(self, number: int, entity: str | None, age: Age) -> Iterator[tuple[str, int]]:
        parts = (part.old_entities(number, entity, age) for part in self._parts.values())
        return heapq.merge(super().old_entities(number, entity, age), *parts, key=itemgetter(0))

    def move_page(
        self, number: int, entity: str, age: Age, write: Callable[[list[StoredRow]], object]
    ) -> bool:
        if not self._parts:
            return super().move_page(number, entity, age, write)
        return self._part_of(number, entity).move_page(number, entity, age, write)

    def move_through(self, number: int, entity: str, seq: int, age: Age) -> None:
        if not self._parts:
            super().move_through(number, entity, seq, age)
        else:
            self._part_of(number, entity).move_through(number, entity, seq, age)

    def remove(self, number: int, entity: str, shard: ShardId, mark: str) -> Archival:
        if self._further:
            self._refuse_moved(number)
        name = self._lies_in(shard)
        if not name:
            return super().remove(number, entity, shard, mark)
        return self._parts[name].remove(number, entity, shard, mark)

    def look_again(self, number: int) -> None:
        super().same_numbers(self._looked_at)
        if self._further:
            self._refuse_moved(number)

    def waits_outside(self, number: int, entity: str, shard: ShardId) -> bool:
        """Whether the cluster's own database has a message for an entity of a further journal."""
        wanted = {"type_id": number, "entity": entity, "shard": shard}
        return bool(self._rows("journal_outside", wanted)[0][0])

    def raised(self, name: str, number: int, shards: Sequence[ShardId]) -> dict[ShardId, Epoch]:
        """Raise the epochs of shards of a further journal, here and there, while no living node is
        their home. Raises NodesAlive.
        """
        homes = {shard: home for shard, (_, home) in epochs(self._connection, number, list(shards)).items()}
        if alive := self._rows("erase_homes", {"homes": [*homes.values()]}):
            raise NodesAlive([each for (each,) in alive])
        unknown = [each for each in shards if homes.get(each) is not None or each not in self._fenced]
        if unknown:
            seen = {"type_id": number, "shards": unknown, "homes": [homes.get(each) for each in unknown]}
            fenced = dict(self._rows("archive_fence", seen))
            if len(fenced) < len(unknown):
                raise NodesAlive
            if not stand(self._connection, self._parts[name]._connection, self._name, number, fenced):
                raise NodesAlive
            self._fenced.update(fenced)
            self.look_again(number)
        return {each: self._fenced[each] for each in shards}

    def forget(self, shards: Sequence[ShardId]) -> None:
        """Another run may have raised them: the next look at them raises them again."""
        for each in shards:
            self._fenced.pop(each, None)

    # -- Putting back ------------------------------------------------------------------------------

    def begin(self, number: int, name: str, by: str, action: str) -> None:
        if self._further:
            self._spread(number, name)
        super().begin(number, name, by, action)
        for journal, part in self._parts.items():
            there = epochs(self._connection, number, journal=journal)
            raised = {shard: epoch for shard, (epoch, _) in there.items()}
            if not stand(self._connection, part._connection, name, number, raised):
                raise NodesAlive

    def _spread(self, number: int, name: str) -> None:
        """Give the type's shards without a row one, each in the journal that the weights give."""
        self._refuse_hosts(name)
        refuse_unread(self._connection)
        shards = range(self.type(name).config.number_of_shards)
        journals = [journal_of(name, each, self._weights) for each in shards]
        wanted = {"type_id": number, "number": len(shards), "shards": [*shards], "journals": journals}
        self._connection.execute(QUERIES["journal_spread"], wanted)
        self._look(self.type(name))

    def refuse_others(self, known: KnownType, firsts: Mapping[EntityId, int], shards: Sequence[int]) -> None:
        for part, (entities, there) in self._parted([*firsts], shards):
            part.refuse_others(known, {each: firsts[each] for each in entities}, there)

    def compare_events(self, known: KnownType, rows: Sequence[StoredRow], shards: Sequence[int]) -> None:
        for part, given in self._parted(rows, shards):
            part.compare_events(known, *given)

    def put_snapshots(self, known: KnownType, rows: Sequence[StoredSnapshot], shards: Sequence[int]) -> int:
        return sum(part.put_snapshots(known, *given) for part, given in self._parted(rows, shards))

    def put_events(
        self, known: KnownType, rows: Sequence[StoredRow], shards: Sequence[int], *, archived: bool = False
    ) -> int:
        return sum(
            part.put_events(known, *given, archived=archived) for part, given in self._parted(rows, shards)
        )

    def put_remembered(self, known: KnownType, entities: Sequence[str], shards: Sequence[int]) -> int:
        return sum(part.put_remembered(known, *given) for part, given in self._parted(entities, shards))

    def put(
        self, known: KnownType, given: Sequence[Stored], places: Mapping[str, ShardId]
    ) -> tuple[int, int, list[str]]:
        stored = there = 0
        others: list[str] = []
        for part, (some, _) in self._parted(given, [places[each.entity] for each in given]):
            number, rows, differ = part.put(known, some, places)
            stored, there, others = stored + number, there + rows, others + differ
        return stored, there, others

    def secure(self) -> None:
        """Wait until the standbys of all journals of the type have it."""
        for part in self._parts.values():
            part.secure()
        super().secure()

    def _parted(
        self, given: Sequence[T], shards: Sequence[ShardId]
    ) -> Iterator[tuple[Archive, tuple[list[T], list[ShardId]]]]:
        """Divide a page by the journals of its shards."""
        for name, some in self._by_journal([*zip(given, shards, strict=True)], shards).items():
            part: Archive = self._parts[name] if name else _Own(self)
            yield part, ([each for each, _ in some], [shard for _, shard in some])


class _Own(_Part):
    """The cluster's own journal, by itself."""

    def __init__(self, whole: Journals) -> None:
        super().__init__(CLUSTERS_OWN, whole._connection, whole)
