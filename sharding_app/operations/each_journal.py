"""Asks several journal databases for one answer, and says which of them do not answer.

Contract: the cluster's own database has to answer: its errors are the caller's. A further journal
that fails is named with the reason, and not asked again for AGAIN_SECONDS, so that no page waits
for it over and over.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from sharding_app.adapters.django.database import (
    ReadTooLong,
    alias_of,
    bounded_reads,
    journal_alias,
    run_query,
    soon_connected,
    whereabouts,
)
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.whereabouts import Whereabouts

AGAIN_SECONDS = 5.0
_UNDEFINED_TABLE = "42P01"
ONE_JOURNAL = (CLUSTERS_OWN,)
"""The names of all journals, where there are no further ones."""

T = TypeVar("T")


class Down(NamedTuple):
    """A journal that could not be asked."""

    name: str
    why: str


@dataclass(slots=True)
class Asked(Generic[T]):
    found: dict[str, T] = field(default_factory=dict)
    "By the names of the journals."
    down: list[Down] = field(default_factory=list)


class JournalsDown(DatabaseError):
    """An answer needs journals that do not answer."""

    def __init__(self, down: Sequence[Down]) -> None:
        super().__init__("; ".join(f"the journal {each.name!r} cannot be read: {each.why}" for each in down))
        self.down = tuple(down)


_lock = threading.Lock()
_failed: dict[str, tuple[float, str]] = {}
"""When a journal failed, and how."""


def ask(names: Iterable[str], read: Callable[[str], T]) -> Asked[T]:
    """Ask each of these journals; `read` is given the alias. Raises DatabaseError for the cluster's
    own alone, and ReadTooLong.
    """
    asked: Asked[T] = Asked()
    for name in names:
        if not name:
            asked.found[name] = read(journal_alias())
            continue
        try:
            with in_journal(name) as alias:
                asked.found[name] = read(alias)
        except JournalsDown as error:
            asked.down += error.down
    return asked


def journal_name(name: str) -> str:
    """Return the name of a journal for people: its alias."""
    return name or journal_alias()


@contextmanager
def in_journal(name: str) -> Iterator[str]:
    """Give the alias of a journal for reads in the block. Raises ReadTooLong, and JournalsDown for
    a further one that does not answer.
    """
    if not name:
        yield journal_alias()
        return
    if why := _still_down(name):
        raise JournalsDown([Down(name, why)])
    try:
        with soon_connected(alias_of(name)) as connection:
            yield connection.alias
    except ReadTooLong:
        raise
    except DatabaseError as error:
        raise JournalsDown([_fallen(name, error)]) from error


def _fallen(name: str, error: DatabaseError) -> Down:
    """Take note of a journal that has failed; of one whose server answers, only for this time."""
    why = str(error).strip().partition("\n")[0]
    if getattr(error.__cause__, "sqlstate", None) == _UNDEFINED_TABLE:
        why = f"its tables are missing: run manage.py migrate --database {name} sharding"
    if isinstance(error, OperationalError | InterfaceError):
        with _lock:
            _failed[name] = time.monotonic(), why
    return Down(name, why)


def _still_down(name: str) -> str:
    with _lock:
        failed_at, why = _failed.get(name, (float("-inf"), ""))
        if time.monotonic() - failed_at < AGAIN_SECONDS:
            return why
        _failed.pop(name, None)
    return ""


class Copies:
    """Tells rows that are a copy from those of entities that lie in a journal. A move makes a copy,
    and leaves one behind.
    """

    def __init__(
        self,
        places: Mapping[int, Whereabouts] | None = None,
        shards: Mapping[tuple[int, ShardId], Collection[str]] | None = None,
    ) -> None:
        """`places`: those of the types that have copies, by their numbers. `shards`: the journals
        between which they move, or have moved.
        """
        self._places = places or {}
        self._shards = shards or {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def lies_in(self, name: str, number: int, entity: str, written: ShardId) -> bool:
        """Tell whether an entity lies in a journal that has a row of it; `written`: the shard in
        that row.
        """
        places = self._places.get(number)
        return places is None or places.journal_of(entity, written) == name

    def parameters(self, name: str) -> dict[str, list[int]]:
        """Return what statements that count rows of a journal leave out: its copies of shards, with
        the numbers of shards by which hashes tell them; 0: rows alone do.
        """
        found = [
            (number, shard, self._places[number].modulus)
            for (number, shard), journals in self._shards.items()
            if name in journals and not self._places[number].has(name, shard)
        ]
        numbers, shards, moduli = ([each[place] for each in found] for place in range(3))
        return {"copied_types": numbers, "copied_shards": shards, "copied_numbers": moduli}


def read_copies(alias: str | None = None) -> Copies:
    """Learn which types have copies, and where their entities lie. Raises DatabaseError."""
    alias = alias or journal_alias()
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        moves = run_query(cursor, "left_moves", {"types": None})
        numbers = {number for number, *_ in moves}
        return Copies(
            {number: whereabouts(cursor, number) for number in sorted(numbers)},
            {(number, shard): (source, target) for number, _, shard, source, target, _ in moves},
        )


def copies_among(journals: Collection[str]) -> Copies:
    """Learn it where there are several journals: one has no copies. Raises DatabaseError."""
    return read_copies() if len(journals) > 1 else Copies()


def name_of(alias: str) -> str:
    """Return the name of the journal to which an alias leads; empty: the cluster's own."""
    return CLUSTERS_OWN if alias == journal_alias() else alias


def journal_of_shard(number: int, shard: ShardId) -> str:
    """Return the name of the journal in which a shard lies, by its row."""
    alias = journal_alias()
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        rows = run_query(cursor, "journal_of", {"type_id": number, "shard": shard})
    return str(rows[0][0]) if rows else CLUSTERS_OWN


def journal_of_entity(names: Sequence[str], number: int, entity: str, shard: ShardId | None) -> str:
    """Return the name of the journal that has the rows of an entity: that of its shard, or, where
    that is not known, the first one with any that are no copy. Raises JournalsDown if that cannot
    be told.
    """
    if list(names) == [CLUSTERS_OWN]:
        return CLUSTERS_OWN
    if shard is not None:
        return journal_of_shard(number, shard)

    def shards_in(alias: str) -> list[ShardId]:
        with bounded_reads(alias), connections[alias].cursor() as cursor:
            rows = run_query(cursor, "erase_shards", {"type_id": number, "entity": entity})
        return [shard for (shard,) in rows]

    copies = read_copies()
    asked = ask(names, shards_in)
    for name, shards in asked.found.items():
        if any(copies.lies_in(name, number, entity, shard) for shard in shards):
            return name
    if asked.down:
        raise JournalsDown(asked.down)
    return CLUSTERS_OWN
