"""The cluster's journals, each looked at once: where it lies, whose it is, what it has.

For the command `sharding_journals`, the dashboard, the metrics and the doctor.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.db import connections, transaction
from django.db.migrations.executor import MigrationExecutor

from sharding_app.adapters.django.database import bounded_reads, journal_alias, run_query, secure_here
from sharding_app.operations.each_journal import ask, in_journal, journal_name
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.settings.load import get_settings

JOURNAL_ORIGIN = "journal"


class Moves(NamedTuple):
    """Shards of one type that move from one journal to another, or have moved and left a copy."""

    type: str
    source: str
    target: str
    are_over: bool
    "The shards lie in the target, and their copy in the source is left."
    shards: int
    seconds: float
    "Since the last of them began, or was over."
    at_work: bool
    "A command that moves shards of the type is at work."


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFacts:
    """One journal, as the cluster's rows, the settings and its own database know it."""

    name: str
    "Empty: the one in the cluster's own database."
    weight: float | None
    "By which new shards are spread; None: the settings here do not name it."
    shards: int = 0
    known_place: str = ""
    "The database that the cluster knows by this name."
    place: str = ""
    "The database to which the alias leads."
    owner: str | None = None
    "The cluster that its database says; None: it has said none yet."
    own_cluster: bool = False
    "Its database is that of a cluster of its own."
    events: int = 0
    "As the server's statistics know it."
    messages: int = 0
    bytes: int = 0
    missing_migrations: tuple[str, ...] = ()
    trouble: str = ""
    "Why its database could not be read."
    moves: tuple[Moves, ...] = ()
    "Out of it."
    other: str = ""
    "Another journal, as which the cluster knows the database to which the alias leads."
    coming: int = 0
    "Shards of which a copy is being made here. The events of all copies are in `events`."

    @property
    def alias(self) -> str:
        return journal_name(self.name)

    @property
    def left(self) -> int:
        """How many shards have left a copy here."""
        return sum(each.shards for each in self.moves if each.are_over)

    @property
    def elsewhere(self) -> bool:
        """Whether the alias leads to another database than the cluster knows."""
        return bool(self.known_place and self.place and self.known_place != self.place)

    def belongs_to(self, cluster_id: str) -> bool:
        """Whether nodes of that cluster may use it: it is theirs, or has no owner yet."""
        if not self.name:
            return True
        return self.owner is None or (self.owner == cluster_id and not self.own_cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    place: str
    owner: str | None
    origin: str | None
    events: int
    bytes: int
    messages: int
    missing: tuple[str, ...]


def read_journals() -> list[JournalFacts]:
    """Look at all journals: those of the settings, and those that rows name. Raises DatabaseError
    for the cluster's own database alone.
    """
    alias = journal_alias()
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        known = run_query(cursor, "journals_known")
        moves = [Moves(*row) for row in run_query(cursor, "journals_moves")]
    weights = get_settings().journal_weights or {CLUSTERS_OWN: 1.0}
    weights.setdefault(CLUSTERS_OWN, 0.0)
    shards: Counter[str] = Counter({name: count for name, _, count in known})
    places = {name: place for name, place, _ in known}
    names_at = {place: name for name, place in places.items() if place}
    moving = {name for each in moves for name in each[1:3]}
    names = [CLUSTERS_OWN, *sorted({*weights, *places, *moving} - {CLUSTERS_OWN})]
    asked = ask(names, _read)
    down = {each.name: each.why for each in asked.down}
    found = [
        _facts(name, weights, shards, places, asked.found.get(name), down.get(name, "")) for name in names
    ]
    return [
        replace(
            each,
            moves=tuple(move for move in moves if move.source == each.name),
            coming=sum(move.shards for move in moves if move.target == each.name and not move.are_over),
            other=other if (other := names_at.get(each.place, "")) != each.name else "",
        )
        for each in found
    ]


class StillUsed(Exception):
    """Living nodes use a journal in the place that it is to leave. Nothing was stored."""

    def __init__(self, nodes: Sequence[str]) -> None:
        super().__init__(", ".join(nodes))
        self.nodes = tuple(nodes)


def adopt(facts: JournalFacts, by: str) -> None:
    """Store the present place of a journal. It returns once a synchronous standby has that. Raises
    StillUsed, DatabaseError.
    """
    alias = journal_alias()
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        run_query(cursor, "journal_adopt", {"name": facts.name, "place": facts.place, "by": by})
        # Behind that: none begins to use the former place any more.
        if nodes := [name for (name,) in run_query(cursor, "journal_users", {"name": facts.name})]:
            raise StillUsed(nodes)
    secure_here(alias)


def epochs_there(name: str) -> dict[tuple[str, int], int]:
    """Return the epochs that a further journal has of the cluster's shards. Raises JournalsDown."""
    with in_journal(name) as alias, bounded_reads(alias), connections[alias].cursor() as cursor:
        return {(kind, shard): epoch for kind, shard, epoch in run_query(cursor, "journal_ahead")}


def epochs_here(name: str) -> dict[tuple[str, int], int]:
    """Return the epochs that the coordinator's rows have of the shards of a journal. Raises
    DatabaseError.
    """
    alias = journal_alias()
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        rows = run_query(cursor, "journal_rows", {"journal": name})
    return {(kind, shard): epoch for kind, shard, epoch in rows}


def lying_elsewhere(name: str, shards: Sequence[tuple[str, ShardId]]) -> list[tuple[str, ShardId, str]]:
    """Return which of these shards, of types, lie in another journal than this one, without having
    moved from there, and in which one. Raises DatabaseError.
    """
    alias = journal_alias()
    wanted = {
        "journal": name, "types": [each[0] for each in shards], "shards": [each[1] for each in shards],
    }  # fmt: skip
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        return [(kind, shard, where) for kind, shard, where in run_query(cursor, "lying_elsewhere", wanted)]


def why_unusable(facts: JournalFacts, cluster_id: str, *, moved: bool = False) -> str:
    """Say why nodes do not use a journal; empty: they do. With `moved`, its place does not
    count.
    """
    if facts.weight is None and facts.name:
        return "SHARDING['JOURNALS'] here does not name it. Give this process the settings of the nodes."
    if facts.missing_migrations:
        return (
            f"migrations are missing: {', '.join(facts.missing_migrations)}. Run: manage.py migrate --database "
            f"{facts.alias} sharding"
        )
    if not facts.belongs_to(cluster_id):
        whose = "of a cluster of its own" if facts.own_cluster else f"a journal of the cluster {facts.owner}"
        return f"its database is {whose}. Name another database."
    if facts.other:
        return f"its alias leads to the database of the journal {facts.other!r}. Each journal needs a database of its own."
    if moved and facts.owner is None and facts.shards:
        return "it says no owner, so it is no copy of the journal. Restore the journal's data there first."
    if facts.elsewhere and not moved:
        return (
            f"its alias leads to {facts.place}, and the cluster knows it at {facts.known_place}. If its data was moved "
            f"there, run: manage.py sharding_journals --adopt {facts.name}"
        )
    return ""


def _read(alias: str) -> _Own:
    missing = _missing(alias)
    if missing:
        return _Own(place="", owner=None, origin=None, events=0, bytes=0, messages=0, missing=missing)
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        place, owner, origin, events, size, messages = run_query(cursor, "journal_look")[0]
    return _Own(
        place=place, owner=owner, origin=origin, events=events, bytes=size, messages=messages or 0, missing=()
    )


def _missing(alias: str) -> tuple[str, ...]:
    """Return the migrations of the app that a database does not have."""
    executor = MigrationExecutor(connections[alias])
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == "sharding"]
    return tuple(each.name for each, _ in executor.migration_plan(targets) if each.app_label == "sharding")


def _facts(
    name: str,
    weights: Mapping[str, float],
    shards: Mapping[str, int],
    places: Mapping[str, str],
    own: _Own | None,
    trouble: str,
) -> JournalFacts:
    known = JournalFacts(
        name=name,
        weight=weights.get(name),
        shards=shards.get(name, 0),
        known_place=places.get(name, ""),
        trouble=trouble,
    )
    if own is None:
        return known
    return JournalFacts(
        name=name,
        weight=known.weight,
        shards=known.shards,
        known_place=known.known_place,
        place=own.place,
        owner=own.owner,
        own_cluster=own.origin is not None and own.origin != JOURNAL_ORIGIN,
        events=own.events,
        messages=own.messages,
        bytes=own.bytes,
        missing_migrations=own.missing,
    )
