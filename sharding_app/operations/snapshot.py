"""The cluster read once: its rows, through Django's connection, and the answers of its nodes.

Status, doctor, health check, metrics and dashboard all read it here. Reading the rows raises
Django's DatabaseError, also if the tables are missing. No query reads an event, so the journal's
rows are only estimated. Messages that need attention are counted along an index, up to a limit;
where that takes too long, the rest is read all the same.
Shards are counted by the server: rows of them are read only for those that are not at home, and
for the type that a page is about.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.utils import CursorWrapper

from sharding_app.adapters.django.database import (
    ReadTooLong,
    bounded_reads,
    further_journals,
    journal_alias,
    run_query,
    steady_reads,
)
from sharding_app.operations import projections
from sharding_app.operations.each_journal import Copies, ask, name_of, read_copies
from sharding_app.operations.projections import ProjectionLook
from sharding_app.protocol.ids import Incarnation, ShardId
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.messages import NodeStats, ShardRegionState
from sharding_app.protocol.records import (
    CoordinatorRow,
    Member,
    NumberOfWorkers,
    ShardRow,
    ShardStep,
    TypeConfig,
)
from sharding_app.runtime.node.process import Process

logger = logging.getLogger("sharding.client")


@dataclass(frozen=True, slots=True)
class TypeRow:
    number: int
    config: TypeConfig
    "A set of workers has as many shards here as it has workers."
    registered: datetime
    workers: NumberOfWorkers | None = None
    "Of a set of workers."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardGroup:
    """The shards of one type that are in the same step at the same home."""

    type: str
    step: ShardStep
    home: Incarnation | None
    shards: int
    epoch: int = 0
    "The highest of their epochs."
    journal: str = ""
    "The one in which they lie."


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A shard of a type that a node hosts, which is not at home on a node with a row."""

    row: ShardRow
    seconds: float
    "Since its row was written."
    target: str | None = None
    "The journal for a move to which it is closed; None: it is not."
    closed_seconds: float = 0.0


OVERDUE_SECONDS = 60.0
"""A message or a timer that has been due for longer is overdue."""
MOST_COUNTED = 1000
"""More messages of a type are not counted for a snapshot."""
UNCOUNTED_SECONDS = 60.0
"""After a count that took too long none is tried for this time: the server has other work."""
CHANGES_COUNTED = 20
"""More changes behind a part of a projection, and more entities that wait there, are not counted:
they tell the oldest one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCounts:
    """The messages and timers of one type's entities that need attention. Each count ends at
    MOST_COUNTED.
    """

    type: str
    overdue: int = 0
    oldest_seconds: float = 0.0
    "Seconds for which the oldest of the overdue ones has been due."
    failing: int = 0
    "Those that wait for another attempt after a failure."
    parked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalCounts:
    """One of several journals."""

    name: str
    "Empty: the one in the cluster's own database."
    shards: int = 0
    events: int = 0
    "As the server's statistics know it: with copies."
    messages: int = 0
    trouble: str = ""
    "Why it could not be read: nothing of it is in the sums."


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """One reading of the rows. Times are the server's."""

    now: datetime
    cluster_id: str
    coordinator: CoordinatorRow
    elected: datetime | None
    events: int
    "In the journal, as the server's statistics know it. They count copies too."
    members: Sequence[Member]
    joined: Mapping[Incarnation, datetime]
    types: Sequence[TypeRow]
    shards: Sequence[ShardGroup]
    unsettled: Sequence[Unsettled] = ()
    messages: int = 0
    "Messages and timers on their way, as the server's statistics know it."
    message_counts: Sequence[MessageCounts] = ()
    "Types that have ever stored a message or timer; empty if this role may not read their rows."
    uncounted: Sequence[str] = ()
    "Journals whose messages and timers are in no count, since that takes too long."
    projections: Sequence[ProjectionLook] = ()
    "With counts of each part that end early; empty if this role may not read their rows."
    journals: Sequence[JournalCounts] = ()
    "All of them, where there are several; else empty."
    has_unread_journals: bool = False
    """DATABASE went on in another lineage, and its coordinator has not read yet which shards lie in
    further journals."""
    has_copies: bool = False
    "Moves have made copies of shards' events in other journals."

    @property
    def has_coordinator(self) -> bool:
        """Whether the coordinator's node holds a lock. Of nodes that all die, the rows stay."""
        return any(each.incarnation == self.coordinator.incarnation and each.locks for each in self.members)

    @property
    def moving(self) -> int:
        """Shards that are handed over."""
        return sum(each.shards for each in self.shards if each.step == "handoff")

    @property
    def journal_names(self) -> list[str]:
        """The names of all journals, the cluster's own first."""
        return [each.name for each in self.journals] or [CLUSTERS_OWN]

    @property
    def journals_down(self) -> list[JournalCounts]:
        """Those that could not be read."""
        return [each for each in self.journals if each.trouble]

    def shards_at(self, home: Incarnation) -> int:
        """The number of shards that have this home."""
        return sum(each.shards for each in self.shards if each.home == home)

    def shards_of(self, type_name: str) -> list[ShardGroup]:
        """The shards of one type."""
        return [each for each in self.shards if each.type == type_name]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswers:
    """The nodes' answers about themselves."""

    regions: Mapping[Incarnation, ShardRegionState]
    stats: Mapping[Incarnation, NodeStats] = field(default_factory=dict)
    silent: frozenset[Incarnation] = frozenset()
    "Nodes that were asked and did not answer."


def read_snapshot(alias: str | None = None) -> ClusterSnapshot:
    """Read all rows once."""
    alias = alias or journal_alias()
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        row = run_query(cursor, "snapshot_cluster")[0]
        now, cluster_id, term, leader, elected, unread, events, messages, may_count = row
        nodes = run_query(cursor, "snapshot_nodes")
        types = run_query(cursor, "snapshot_types")
        shards = run_query(cursor, "snapshot_shards")
        unsettled = run_query(cursor, "snapshot_unsettled")
        names = {each[3] for each in shards} | set(further_journals())
        has_several = bool(names - {CLUSTERS_OWN})
        copies = read_copies(alias) if has_several else Copies()
        counts = _message_counts(cursor, copies, CLUSTERS_OWN, alias) if may_count else []
        projected = projections.look_if_allowed(most=CHANGES_COUNTED)
    groups = [
        ShardGroup(type=name, step=step, home=home, shards=number, epoch=epoch, journal=journal)
        for name, step, home, journal, number, epoch in shards
    ]
    journals: list[JournalCounts] = []
    counts_of = {CLUSTERS_OWN: counts}
    if has_several:
        ordered = sorted(names | {CLUSTERS_OWN})
        journals, further = _further(ordered, groups, events, messages or 0, copies)
        counts_of |= further
    return ClusterSnapshot(
        now=now,
        cluster_id=cluster_id or "",
        coordinator=CoordinatorRow(term or 0, leader),
        elected=elected,
        events=sum(each.events for each in journals) if journals else events,
        members=[_member(row) for row in nodes],
        joined={row[0]: row[13] for row in nodes},
        types=[_type(row) for row in types],
        shards=groups,
        unsettled=[Unsettled(ShardRow(*row[:5]), row[5], row[6], row[7] or 0.0) for row in unsettled],
        messages=sum(each.messages for each in journals) if journals else messages or 0,
        message_counts=_summed([each for found in counts_of.values() for each in found or ()]),
        uncounted=[name for name, found in counts_of.items() if found is None],
        projections=projected or (),
        journals=journals,
        has_unread_journals=has_several and unread,
        has_copies=bool(copies),
    )


def _further(
    names: Sequence[str],
    groups: Sequence[ShardGroup],
    events: int,
    messages: int,
    copies: Copies,
) -> tuple[list[JournalCounts], dict[str, list[MessageCounts] | None]]:
    """Read what further journals have; return all journals, and the counts of these."""
    asked = ask(names[1:], partial(_read_counts, copies))
    down = {each.name: each.why for each in asked.down}
    shards: Counter[str] = Counter()
    for each in groups:
        shards[each.journal] += each.shards
    journals = [
        JournalCounts(name=CLUSTERS_OWN, shards=shards[CLUSTERS_OWN], events=events, messages=messages)
    ]
    counts: dict[str, list[MessageCounts] | None] = {}
    for name in names[1:]:
        found_events, found_messages, counts[name] = asked.found.get(name, (0, 0, []))
        journals.append(
            JournalCounts(
                name=name,
                shards=shards[name],
                events=found_events,
                messages=found_messages,
                trouble=down.get(name, ""),
            )
        )
    return journals, counts


def _read_counts(copies: Copies, alias: str) -> tuple[int, int, list[MessageCounts] | None]:
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        *_, events, messages, may_count = run_query(cursor, "snapshot_cluster")[0]
        counts = _message_counts(cursor, copies, name_of(alias), alias) if may_count else []
    return events, messages or 0, counts


_left_out_until: dict[str, float] = {}
"""By the alias of a journal, the time until which it is not counted, since that took too long."""


def _message_counts(
    cursor: CursorWrapper, copies: Copies, name: str, alias: str
) -> list[MessageCounts] | None:
    """Count the messages and timers in a journal that are no copies. None: it takes too long."""
    if time.monotonic() < _left_out_until.get(alias, 0.0):
        return None
    limits = {"late": OVERDUE_SECONDS, "limit": MOST_COUNTED}
    try:
        with bounded_reads(alias):
            rows = run_query(cursor, "snapshot_messages", limits | copies.parameters(name))
    except ReadTooLong:
        _left_out_until[alias] = time.monotonic() + UNCOUNTED_SECONDS
        logger.warning(
            "messages and timers are not counted for %g s: the database %r takes too long", UNCOUNTED_SECONDS, alias,
            extra={"action": "messages_uncounted"},
        )  # fmt: skip
        return None
    return [_counts(each) for each in rows]


def _counts(row: tuple[Any, ...]) -> MessageCounts:
    name, overdue, oldest, failing, parked = row
    return MessageCounts(
        type=name, overdue=overdue, oldest_seconds=oldest or 0.0, failing=failing, parked=parked
    )


def _summed(counts: Sequence[MessageCounts]) -> list[MessageCounts]:
    """Make one row of each type."""
    by_type: dict[str, MessageCounts] = {}
    for each in counts:
        one = by_type.get(each.type, MessageCounts(type=each.type))
        by_type[each.type] = MessageCounts(
            type=each.type,
            overdue=min(one.overdue + each.overdue, MOST_COUNTED),
            oldest_seconds=max(one.oldest_seconds, each.oldest_seconds),
            failing=min(one.failing + each.failing, MOST_COUNTED),
            parked=min(one.parked + each.parked, MOST_COUNTED),
        )
    return [by_type[name] for name in sorted(by_type)]


def read_shards(number: int, wanted: range, alias: str | None = None) -> dict[ShardId, ShardRow]:
    """Read the rows of some shards of one type."""
    alias = alias or journal_alias()
    params = {"type_id": number, "first": wanted.start, "beyond": wanted.stop}
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        rows = run_query(cursor, "snapshot_type_shards", params)
    return {
        shard: ShardRow(name, shard, epoch, home, step, journal=journal)
        for name, shard, epoch, home, step, journal in rows
    }


def read_closed(number: int, wanted: range, alias: str | None = None) -> dict[ShardId, str]:
    """Read which of some shards of one type are closed for a move, and to which journal."""
    alias = alias or journal_alias()
    params = {"type_id": number, "first": wanted.start, "beyond": wanted.stop}
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        return dict(run_query(cursor, "snapshot_closed", params))


def read_steadily(alias: str) -> ClusterSnapshot:
    """Read all rows once, whatever a DBA has set on the role."""
    with steady_reads(alias):
        return read_snapshot(alias)


async def read_cluster(process: Process, alias: str) -> tuple[ClusterSnapshot, NodeAnswers]:
    """Read the rows and ask the nodes. Raises DatabaseError or StoreUnavailable.

    A node that left meanwhile need not have answered, and is not part of the cluster.
    """
    cluster = await sync_to_async(read_steadily)(alias)
    states = await process.queries.region_states(each.incarnation for each in cluster.members)
    _, still = await process.ports.store.members()
    present = {each.incarnation for each in still}
    members = [
        each for each in cluster.members if each.incarnation in present or each.incarnation in states.answers
    ]
    answers = NodeAnswers(regions=states.answers, silent=states.failed & present)
    return replace(cluster, members=members), answers


def _names(text: str) -> tuple[str, ...]:
    return tuple(str(each) for each in json.loads(text))


def _type(row: tuple[Any, ...]) -> TypeRow:
    workers = NumberOfWorkers(row[1], *row[9:12]) if row[9] else None
    return TypeRow(row[0], TypeConfig(*row[1:8], *row[12:15]), row[8], workers)


def _member(row: tuple[Any, ...]) -> Member:
    lowest, highest, written = json.loads(row[12])
    return Member(
        incarnation=row[0], name=row[1], host=row[2], pid=row[3], age=row[4], state=row[5], roles=_names(row[6]),
        app_version=row[7], candidate=row[8], types=_names(row[9]), deaf=row[10], asked=row[11],
        wire=(lowest, highest, written), locks=row[14], addresses=_names(row[15]),
    )  # fmt: skip
