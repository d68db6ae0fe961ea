"""The report of a cluster: rows for placement, the nodes' own answers for their memory.

`report` turns a reading into a `Report`. Its findings are those of the doctor that need no more
than this reading: an operator should look at the problems among them now.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.conf import settings as django_settings

from sharding_app import __version__
from sharding_app.operations.console import counted
from sharding_app.operations.diagnosis import examinations
from sharding_app.operations.diagnosis.finding import Finding
from sharding_app.operations.diagnosis.look import Limits, Look
from sharding_app.operations.snapshot import ClusterSnapshot, MessageCounts, NodeAnswers, TypeRow
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.liveness.membership import member_names
from sharding_app.protocol.records import Member
from sharding_app.settings.load import get_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    name: str
    incarnation: Incarnation
    state: str
    age: int
    roles: tuple[str, ...]
    version: str
    locks: int
    deaf: bool
    host: str
    pid: int
    since: datetime | None
    shards: int
    "Number of shards that live there, by their rows."
    entities: int | None
    "Number of entities in memory; None: the node did not answer."
    refused: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeStatus:
    name: str
    kind: str
    shards: int
    "Number of shards of the type."
    extractor: str
    hash_version: str
    role: str
    placed: int
    handing_off: int
    stopped: int
    homeless: int
    "Number of shards that are neither at a live node nor on the way to one."
    homes: dict[str, int]
    entities: int
    cannot_start: dict[str, str]
    "Remembered entities that cannot be started, with the error; some of them if there are many."
    cannot_start_count: int = 0
    messages_overdue: int | None
    """Each of these counts messages and timers, and ends at a thousand. None: the server takes too
    long to count them."""
    messages_failing: int | None
    messages_parked: int | None
    shards_wanted: int = 0
    "The number of shards that a resize is to reach, and how far it is; 0: none is under way."
    groups_resized: int = 0
    groups: int = 0
    workers: int | None = None
    "Of a set of workers: how many there are, and how many there are to be."
    workers_wanted: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    at: datetime
    release: str
    "Release of this package, in the process that reports."
    cluster: str
    coordinator: str | None
    coordinator_incarnation: Incarnation | None
    term: int
    elected: datetime | None
    nodes: list[NodeStatus]
    types: list[TypeStatus]
    events: int
    entities: int
    failed: list[str]
    "Nodes that did not answer within a second."
    problems: list[Finding]
    notes: list[Finding]
    "Warnings, and facts worth knowing that need no action now."
    has_copies: bool = False
    "Copies that moves between journals have made are among the events."

    @property
    def healthy(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        return {"healthy": self.healthy, **asdict(self)}


def findings(cluster: ClusterSnapshot, nodes: NodeAnswers | None, trouble: str = "") -> list[Finding]:
    """Examine a reading; `trouble` says why no node could be asked. A shard that lacks a home now
    is a finding, whereas the doctor waits for a moment.
    """
    limits = Limits(
        hand_off_timeout_seconds=get_settings().handoff_timeout_seconds,
        patience_seconds=0.0,
        journals=get_settings().further_journals,
    )
    look = Look(
        limits=limits,
        cluster=cluster,
        nodes=nodes,
        nodes_trouble=trouble,
        projections=tuple(cluster.projections),
    )
    silenced = getattr(django_settings, "SILENCED_SYSTEM_CHECKS", ())
    return examinations.judge(look, silenced, examinations.OF_THE_CLUSTER)


def report(cluster: ClusterSnapshot, nodes: NodeAnswers) -> Report:
    """Make the report of a reading."""
    found = findings(cluster, nodes)
    names = member_names(cluster.members)
    types = [_type(each, cluster, nodes, names) for each in cluster.types]
    leader = cluster.coordinator.incarnation
    return Report(
        at=cluster.now,
        release=__version__,
        cluster=cluster.cluster_id,
        coordinator=names.get(leader or ""),
        coordinator_incarnation=leader,
        term=cluster.coordinator.term,
        elected=cluster.elected,
        nodes=[_node(each, cluster, nodes, names) for each in cluster.members],
        types=types,
        events=cluster.events,
        entities=sum(each.entities for each in types),
        failed=sorted(names.get(each, each) for each in nodes.silent),
        problems=[each for each in found if each.is_severe],
        notes=[each for each in found if not each.is_severe],
        has_copies=cluster.has_copies,
    )


def still_missing(found: Report, node: str | None) -> str:
    """Return the condition that a release still waits for; empty: none."""
    if node is not None:
        nodes = [each for each in found.nodes if each.name.partition("(")[0] == node or each.name == node]
        if not any(each.state == "up" and each.locks == 2 and not each.deaf for each in nodes):
            return f"node {node} is not up"
        if refused := [why for each in nodes for why in each.refused.values()]:
            return "; ".join(refused)
        if silent := [each.name for each in nodes if each.name in found.failed]:
            return f"node {silent[0]} does not answer"
    elif found.problems:
        return found.problems[0].what
    if moving := sum(each.handing_off for each in found.types):
        return f"{counted(moving, 'shard')} on the move"
    return ""


def _node(
    member: Member, cluster: ClusterSnapshot, nodes: NodeAnswers, names: Mapping[Incarnation, str]
) -> NodeStatus:
    answer = nodes.regions.get(member.incarnation)
    return NodeStatus(
        name=names[member.incarnation],
        incarnation=member.incarnation,
        state=member.state,
        age=member.age,
        roles=member.roles,
        version=member.app_version,
        locks=member.locks,
        deaf=member.deaf,
        host=member.host,
        pid=member.pid,
        since=cluster.joined.get(member.incarnation),
        shards=cluster.shards_at(member.incarnation),
        entities=None if answer is None else sum(sum(each.entities) for each in answer.regions),
        refused={} if answer is None else answer.refused,
    )


def _type(
    row: TypeRow, cluster: ClusterSnapshot, nodes: NodeAnswers, names: Mapping[Incarnation, str]
) -> TypeStatus:
    config, workers = row.config, row.workers
    groups = cluster.shards_of(config.name)
    steps: Counter[str] = Counter()
    homes: Counter[str | None] = Counter()
    for each in groups:
        steps[each.step] += each.shards
        if each.step == "home":
            homes[names.get(each.home or "")] += each.shards
    regions = [
        region for each in nodes.regions.values() for region in each.regions if region.type == config.name
    ]
    found = (each for each in cluster.message_counts if each.type == config.name)
    counts = None if cluster.uncounted else next(found, MessageCounts(type=config.name))
    return TypeStatus(
        name=config.name,
        kind=config.kind,
        shards=config.numbering.total,
        shards_wanted=config.wanted,
        groups_resized=config.resized,
        groups=config.numbering.groups if config.wanted else 0,
        extractor=config.extractor,
        hash_version=config.hash_version,
        role=config.role,
        placed=sum(homes[name] for name in names.values()),
        handing_off=steps["handoff"],
        stopped=steps["stopped"],
        homeless=sum(each.shards for each in groups if each.home not in names),
        homes={name: homes[name] for name in names.values() if homes[name]},
        entities=sum(sum(region.entities) for region in regions),
        cannot_start={
            each.entity: f"{each.error}, {each.attempts} times in {each.since_seconds:.0f} s"
            for region in regions
            for each in region.failed_starts
        },
        cannot_start_count=sum(region.cannot_start for region in regions),
        messages_overdue=counts.overdue if counts else None,
        messages_failing=counts.failing if counts else None,
        messages_parked=counts.parked if counts else None,
        workers=None if workers is None else workers.workers,
        workers_wanted=None if workers is None else workers.wanted,
    )
