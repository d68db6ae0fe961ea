"""Copies of events and snapshots that shards have left behind in their former journals: deletes
them, and deletes an entity in them.

Contract: the cluster's own database says where a shard lies, so nothing reads a copy any more. It
is deleted only while that is so: each piece holds the shard's row of `sharding_move`, and no other
shard moves into the copy's database or out of it meanwhile. Before the first piece the journal in
which the shard lies has answered, as one of this cluster, and has a row of the shard. An erasure of
an entity goes through its left copies too, and tells projections nothing there: they follow the
entity where it lies. It leaves a copy of it that is being made to the command that makes it, and no
move of the type begins meanwhile: what the entity stores after its erasure may come there.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sharding_app.adapters.postgres.connection import Conninfo, open_session
from sharding_app.adapters.postgres.deletion import EVENTS_AT_ONCE, next_rows
from sharding_app.adapters.postgres.further_journals import (
    Connection,
    Further,
    UnknownJournals,
    connect,
    rows,
    whereabouts_of,
)
from sharding_app.adapters.postgres.moving_locks import hold_rows, keep_beginnings_away
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.within import secure
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.ids import EntityId, ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.moving import listed
from sharding_app.protocol.whereabouts import Whereabouts

JOURNAL_ORIGIN = "journal"
ROWS_AT_FIRST = 2_000


class Moved(NamedTuple):
    """A shard that is on its way to another journal, or has left a copy in its former one."""

    type_id: int
    type: str
    shard: ShardId
    source: str
    target: str
    step: str

    @property
    def is_left(self) -> bool:
        """Whether the move is over, and a copy left behind."""
        return self.step == "moved"


class NotDeleted(Exception):
    """Nothing more is deleted; the text says why, and what to do."""


def moves(cluster: Connection, types: Sequence[str] | None = None) -> list[Moved]:
    """Return the shards of these types, or of all, that move or have left a copy."""
    wanted = None if types is None else list(types)
    return [Moved(*row) for row in rows(cluster, "left_moves", {"types": wanted})]


def whereabouts(cluster: Connection, type_id: int) -> Whereabouts:
    """Return in which journals the entities of a type lie, by the cluster's rows."""
    return whereabouts_of(rows(cluster, "whereabouts", {"type_id": type_id})[0])


# -- All that shards have left behind -------------------------------------------------------------


def delete_left_copies(
    conninfo: Conninfo,
    further: Further,
    type_name: str,
    shards: Sequence[ShardId] | None,
    by: str,
    progress: Callable[[Erasure], object] = bool,
    *,
    rows_at_once: int | None = None,
    gone: str | None = None,
    names: Callable[[str], str] = repr,
) -> Erasure:
    """Delete the copies that shards of a type have left behind; None: all of its shards. Return the
    rows. `gone`: a journal that is lost for good, whose copies are forgotten. `names`: journals for
    people. Raises NotDeleted, JournalDown, psycopg.Error.

    A shard without a left copy is passed over, so a call that was interrupted can be repeated.
    """
    total = Erasure()
    with _journal(CLUSTERS_OWN, conninfo, further) as cluster:
        left = [
            each
            for each in moves(cluster, [type_name])
            if each.is_left and (shards is None or each.shard in shards)
        ]
        for source in sorted({each.source for each in left}):
            some = [each for each in left if each.source == source]
            _refuse_lost(cluster, conninfo, further, some, names)
            if source == gone:
                told = (
                    f"shards {listed(each.shard for each in some)} in {names(source)}, which is lost, by {by}"
                )
                _forget(cluster, _named(some), type_name, "left_copies_forgotten", told)
                continue
            with _journal(source, conninfo, further) as journal:
                if not hold_rows(journal, some[0].type_id):
                    raise NotDeleted(
                        f"Another sharding_move_journal of {type_name} is at work in {names(source)}: wait until it has ended."
                    )
                copy = _Copy(cluster, journal, some, names)
                copy.refuse_living()
                for piece in copy.deleted(rows_at_once):
                    total += piece
                    progress(total)
                # A former call's deletion is visible before a standby has it, and once the copy is
                # forgotten, nothing looks for its rows any more.
                secure(journal)
                copy.forget(f"shards {listed(each.shard for each in some)} in {names(source)}, by {by}")
    return total


def _refuse_lost(
    cluster: Connection,
    conninfo: Conninfo,
    further: Further,
    left: Sequence[Moved],
    names: Callable[[str], str],
) -> None:
    """Raise NotDeleted unless the journals in which these shards lie have them."""
    type_id = left[0].type_id
    lying = dict(rows(cluster, "shard_journals", {"type_id": type_id}))
    cluster_id = rows(cluster, "left_there", {"type_id": type_id, "shards": []})[0][0]
    places = {name: place for name, place, _ in rows(cluster, "journals_known", {})}
    for target in sorted({lying.get(each.shard, each.source) for each in left}):
        there = [each.shard for each in left if lying.get(each.shard, each.source) == target]
        if target in {each.source for each in left}:
            raise NotDeleted(
                f"Shards {listed(there)} of {left[0].type} lie in {names(target)}, so these rows are no copy: DATABASE has lost"
                " the move, with a failover or a restore. Compare both journals before anything is deleted."
            )
        with _journal(target, conninfo, further) as journal:
            owner, origin, place, known = rows(journal, "left_there", {"type_id": type_id, "shards": there})[
                0
            ]
        is_elsewhere = bool(target) and (
            origin != JOURNAL_ORIGIN or places.get(target) not in ("", None, place)
        )
        if owner != cluster_id or is_elsewhere:
            raise NotDeleted(
                f"{names(target)}, in which shards {listed(there)} of {left[0].type} lie, is no journal of this cluster: look with"
                " manage.py sharding_journals. The copy may be all that there is of them."
            )
        if lost := set(there) - set(known):
            raise NotDeleted(
                f"{names(target)} has no row of the shards {listed(lost)} of {left[0].type}, which lie there: it was put back to"
                " a former state. The copy may be all that there is of them."
            )


class _Copy:
    """What shards of one type have left behind in one journal."""

    def __init__(
        self,
        cluster: Connection,
        journal: Connection,
        left: Sequence[Moved],
        names: Callable[[str], str],
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._source = left[0].source
        self._type = left[0].type
        self._names = names
        self._shards = sorted(each.shard for each in left)
        self._of = _named(left)

    def refuse_living(self) -> None:
        """Raise NotDeleted where a further journal does not say that it was left."""
        if self._source and (living := rows(self._journal, "left_lives", self._of)):
            raise NotDeleted(
                f"{self._names(self._source)} does not say yet that it was left by the shards {listed(each for (each,) in living)}"
                f" of {self._type}: run manage.py sharding_move_journal again, which ends the move."
            )

    def deleted(self, rows_at_once: int | None) -> Iterator[Erasure]:
        """Delete all of it, and yield the rows of each piece."""
        for table in ("events", "snapshots"):
            limit, entity, seq = rows_at_once or ROWS_AT_FIRST, "", 0
            while True:
                began = time.monotonic()
                walk = {**self._of, "entity": entity, "seq": seq, "limit": limit}
                page = rows(self._journal, f"copy_walk_{table}", walk)
                if not page:
                    break
                number = self._delete(table, page)
                if number:
                    yield Erasure(number) if table == "events" else Erasure(0, number)
                entity, _, seq, _ = page[-1]
                if rows_at_once is None:
                    limit = next_rows(limit, time.monotonic() - began)

    def _delete(self, table: str, page: Sequence[tuple[Any, ...]]) -> int:
        with self._cluster.transaction():
            held = {shard for (shard,) in rows(self._cluster, "left_hold", self._of)}
            if held != set(self._shards):
                raise NotDeleted(
                    f"Shards {listed(set(self._shards) - held)} of {self._type} have changed meanwhile: look with manage.py"
                    " sharding_journals, and run the command again."
                )
            places = whereabouts(self._cluster, self._of["type_id"])
            known = moves(self._cluster, [self._type])
            mine = [each[:3] for each in page if self._is_copy(places, known, each[0], each[3])]
            if not mine:
                return 0
            entities, firsts, lasts = zip(*mine, strict=True)
            wanted = {
                **self._of, "entities": list(entities), "firsts": list(firsts), "lasts": list(lasts),
            }  # fmt: skip
            return self._journal.execute(QUERIES[f"copy_clear_{table}"], wanted).rowcount

    def _is_copy(
        self, places: Whereabouts, known: Sequence[Moved], entity: EntityId, written: ShardId
    ) -> bool:
        """Tell whether rows of an entity are a copy that these shards have left."""
        shard = places.shard_of(entity, written)
        if places.journal_of(entity, written) == self._source:
            return False
        if _comes(known, shard, self._source):
            return False
        # After a resize its shard may be another one than the one that has left.
        others = {each.shard for each in known if each.is_left and each.source == self._source}
        return shard in self._shards or others <= set(self._shards)

    def forget(self, detail: str) -> None:
        """Say that the copies are gone."""
        _forget(self._cluster, self._of, self._type, "left_copies_deleted", detail)


def _named(left: Sequence[Moved]) -> dict[str, Any]:
    """Return the names by which statements know copies that shards of a type left in a journal."""
    shards = sorted(each.shard for each in left)
    return {"type_id": left[0].type_id, "shards": shards, "source": left[0].source}


def _forget(cluster: Connection, of: dict[str, Any], type_name: str, action: str, detail: str) -> None:
    with cluster.transaction():
        rows(cluster, "left_forget", of)
        cluster.execute(QUERIES["archive_note"], {"action": action, "type": type_name, "detail": detail})


# -- One entity -----------------------------------------------------------------------------------


def count_in_copies(conninfo: Conninfo, further: Further, type_name: str, entity: EntityId) -> Erasure:
    """Count the rows of an entity in copies that shards have left behind. Raises JournalDown,
    UnknownJournals, psycopg.Error.
    """
    total = Erasure()
    with _journal(CLUSTERS_OWN, conninfo, further) as cluster:
        for source, wanted in _copies_with(cluster, further, type_name, entity):
            with _journal(source, conninfo, further) as journal:
                events, snapshots = rows(journal, "left_count", wanted)[0]
            total += Erasure(events, snapshots)
    return total


def erase_in_copies(
    conninfo: Conninfo,
    further: Further,
    type_name: str,
    entity: EntityId,
    *,
    events_at_once: int = EVENTS_AT_ONCE,
) -> Erasure:
    """Delete an entity in copies that shards have left behind, and return the rows. Call it once
    the entity is erased where it lies: a shard that moves before that leaves nothing of it. Raises
    JournalDown, UnknownJournals, psycopg.Error.
    """
    total = Erasure()
    with _journal(CLUSTERS_OWN, conninfo, further) as cluster, cluster.transaction():
        for source, wanted in _copies_with(cluster, further, type_name, entity):
            with _journal(source, conninfo, further) as journal:
                whole = False
                while not whole:
                    piece = rows(journal, "left_erase", {**wanted, "at_most": events_at_once})
                    events, snapshots, whole = piece[0]
                    total += Erasure(events, snapshots)
                secure(journal)  # also where a former call has left nothing
    return total


def _copies_with(
    cluster: Connection, further: Further, type_name: str, entity: EntityId
) -> list[tuple[str, dict[str, Any]]]:
    """Return the journals in which shards of a type have left copies that may have an entity, and
    how statements name it there. The copies stay until the transaction ends, if there is one.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    known = moves(cluster, [type_name])
    if not any(each.is_left for each in known):
        return found
    type_id = known[0].type_id
    keep_beginnings_away(cluster, type_id)
    known = moves(cluster, [type_name])
    left = [each for each in known if each.is_left]
    for source in sorted({each.source for each in left}):
        if source and source not in further:
            raise UnknownJournals([source])
        shards = [each.shard for each in left if each.source == source]
        rows(cluster, "left_hold", {"type_id": type_id, "shards": shards, "source": source})
        places = whereabouts(cluster, type_id)
        wanted: dict[str, Any] = {"type_id": type_id, "entity": entity, "shards": shards}
        if places.by_hash:
            shard = places.shard_of(entity, 0)
            if places.journal_of(entity, 0) == source or _comes(known, shard, source):
                continue
            wanted["shards"] = None  # all of its rows there are a copy
        found.append((source, wanted))
    return found


# -- All ------------------------------------------------------------------------------------------


def _comes(known: Sequence[Moved], shard: ShardId, journal: str) -> bool:
    """Tell whether a shard is on its way to a journal."""
    return any(each.shard == shard and each.target == journal and not each.is_left for each in known)


@contextmanager
def _journal(name: str, conninfo: Conninfo, further: Further) -> Iterator[Connection]:
    """Give a connection to a journal. Raises JournalDown, UnknownJournals."""
    if not name:
        with open_session(conninfo, "deletion") as connection:
            yield connection
        return
    if name not in further:
        raise UnknownJournals([name])
    with connect(name, further, "deletion") as connection:
        yield connection
