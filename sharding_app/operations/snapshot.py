"""The cluster read once: its rows, through Django's connection, and the answers of its nodes.

Status, doctor, health check, metrics and dashboard all read it here. Reading the rows raises
Django's DatabaseError, also if the tables are missing. No query reads an event, so the journal's
rows are only estimated. Messages that need attention are counted along an index, up to a limit.
Shards are counted by the server: rows of them are read only for those that are not at home, and
for the type that a page is about.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from sharding_app.adapters.django.database import bounded_reads, journal_alias, run_query, steady_reads
from sharding_app.operations import projections
from sharding_app.operations.projections import ProjectionLook
from sharding_app.protocol.ids import Incarnation, ShardId
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


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A shard of a type that a node hosts, which is not at home on a node with a row."""

    row: ShardRow
    seconds: float
    "Since its row was written."


OVERDUE_SECONDS = 60.0
"""A message or a timer that has been due for longer is overdue."""
MOST_COUNTED = 1000
"""More messages of a type are not counted for a snapshot."""
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
class ClusterSnapshot:
    """One reading of the rows. Times are the server's."""

    now: datetime
    cluster_id: str
    coordinator: CoordinatorRow
    elected: datetime | None
    events: int
    "In the journal, as the server's statistics know it."
    members: Sequence[Member]
    joined: Mapping[Incarnation, datetime]
    types: Sequence[TypeRow]
    shards: Sequence[ShardGroup]
    unsettled: Sequence[Unsettled] = ()
    messages: int = 0
    "Messages and timers on their way, as the server's statistics know it."
    message_counts: Sequence[MessageCounts] = ()
    "Types that have ever stored a message or timer; empty if this role may not read their rows."
    projections: Sequence[ProjectionLook] = ()
    "With counts of each part that end early; empty if this role may not read their rows."

    @property
    def moving(self) -> int:
        """Shards that are handed over."""
        return sum(each.shards for each in self.shards if each.step == "handoff")

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
        now, cluster_id, term, leader, elected, events, messages, may_count = row
        nodes = run_query(cursor, "snapshot_nodes")
        types = run_query(cursor, "snapshot_types")
        shards = run_query(cursor, "snapshot_shards")
        unsettled = run_query(cursor, "snapshot_unsettled")
        limits = {"late": OVERDUE_SECONDS, "limit": MOST_COUNTED}
        counts = run_query(cursor, "snapshot_messages", limits) if may_count else ()
        projected = projections.look_if_allowed(most=CHANGES_COUNTED)
    return ClusterSnapshot(
        now=now,
        cluster_id=cluster_id or "",
        coordinator=CoordinatorRow(term or 0, leader),
        elected=elected,
        events=events,
        members=[_member(row) for row in nodes],
        joined={row[0]: row[13] for row in nodes},
        types=[_type(row) for row in types],
        shards=[
            ShardGroup(type=name, step=step, home=home, shards=number, epoch=epoch)
            for name, step, home, number, epoch in shards
        ],
        unsettled=[Unsettled(ShardRow(*row[:5]), row[5]) for row in unsettled],
        messages=messages or 0,
        message_counts=[
            MessageCounts(
                type=name, overdue=overdue, oldest_seconds=oldest or 0.0, failing=failing, parked=parked
            )
            for name, overdue, oldest, failing, parked in counts
        ],
        projections=projected or (),
    )


def read_shards(number: int, wanted: range, alias: str | None = None) -> dict[ShardId, ShardRow]:
    """Read the rows of some shards of one type."""
    alias = alias or journal_alias()
    params = {"type_id": number, "first": wanted.start, "beyond": wanted.stop}
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        rows = run_query(cursor, "snapshot_type_shards", params)
    return {row[1]: ShardRow(*row) for row in rows}


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
