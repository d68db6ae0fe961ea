"""What a cluster is doing, read once: rows for what should be, the nodes' own answers for what is in memory.

`judge` turns what was read into a `Report`; it does no I/O. Problems are what an operator should look at now.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sharding_app.core.ids import Incarnation, Term
from sharding_app.core.membership import member_names
from sharding_app.core.messages import ShardRegionState
from sharding_app.core.records import CoordinatorRow, Member, ShardRow, TypeConfig
from sharding_app.core.terms import era_began
from sharding_app.core.wire import kept_out
from sharding_app.management.console import counted

LATELY = timedelta(days=7)
"""So long a failover of the database is worth a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was read. Times are the server's."""

    now: datetime
    cluster_id: str
    members: Sequence[Member]
    coordinator: CoordinatorRow
    types: Sequence[TypeConfig]
    shards: Sequence[ShardRow]
    joined: Mapping[Incarnation, datetime]
    elected: datetime | None
    events: int
    "In the journal, as the server's statistics know it."
    answers: Mapping[Incarnation, ShardRegionState]
    failed: frozenset[Incarnation]


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
    "That live there by their rows."
    entities: int | None
    "In memory; None: it did not answer."
    refused: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeStatus:
    name: str
    kind: str
    shards: int
    "Into how many its ids are hashed."
    extractor: str
    hash_version: str
    role: str
    placed: int
    handing_off: int
    stopped: int
    homeless: int
    "Neither at a living node nor on the way to one."
    homes: dict[str, int]
    entities: int
    cannot_start: dict[str, str]
    "Entities that should run without a message and cannot be started, with the error; of very many only some."
    cannot_start_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    at: datetime
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
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    "What is worth knowing, and needs no hurry."

    @property
    def healthy(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        return {"healthy": self.healthy, **asdict(self)}


def judge(facts: Facts) -> Report:
    """Say what is there, and what is wrong with it."""
    names = member_names(facts.members)
    nodes = [_node(each, facts, names) for each in facts.members]
    types = [_type(each, facts, names) for each in facts.types]
    leader = facts.coordinator.incarnation
    report = Report(
        at=facts.now,
        cluster=facts.cluster_id,
        coordinator=names.get(leader or ""),
        coordinator_incarnation=leader,
        term=facts.coordinator.term,
        elected=facts.elected,
        nodes=nodes,
        types=types,
        events=facts.events,
        entities=sum(each.entities for each in types),
        failed=sorted(names.get(each, each) for each in facts.failed),
    )
    report.problems.extend(_problems(report, facts, names))
    report.notes.extend(_notes(report, facts))
    return report


def still_missing(report: Report, node: str | None) -> str:
    """Say what a release still waits for before it goes on; empty: nothing."""
    if node is not None:
        found = [each for each in report.nodes if each.name.partition("(")[0] == node or each.name == node]
        if not any(each.state == "up" and each.locks == 2 and not each.deaf for each in found):
            return f"node {node} is not up"
        if refused := [why for each in found for why in each.refused.values()]:
            return "; ".join(refused)
        if silent := [each.name for each in found if each.name in report.failed]:
            return f"node {silent[0]} does not answer"
    elif report.problems:
        return report.problems[0]
    if moving := sum(each.handing_off for each in report.types):
        return f"{counted(moving, 'shard')} on the move"
    return ""


def _problems(report: Report, facts: Facts, names: Mapping[Incarnation, str]) -> list[str]:
    if not report.nodes:
        return ["No node is there: start `manage.py sharding_node`."]
    found = []
    if report.coordinator is None:
        gone = "none was elected yet" if not report.coordinator_incarnation else "the last one is gone"
        found.append(f"There is no coordinator ({gone}): known shards go on, new ones wait.")
    found += [f"Node {names[each]} is refused: {why}." for each, why in kept_out(facts.members).items()]
    for node in report.nodes:
        if node.state != "joining" and node.locks < 2:
            held = "neither of its locks" if node.locks == 0 else "only one of its two locks"
            found.append(f"Node {node.name} is suspect: it holds {held} in PostgreSQL.")
        if node.deaf:
            found.append(f"Node {node.name} is deaf: it does not hear itself through the channel layer.")
        found += [f"Node {node.name} may not host a type: {why}." for why in node.refused.values()]
    found += [f"Node {name} did not answer within a second." for name in report.failed]
    hosted = {name for each in facts.members for name in each.types}
    wanted = {name for answer in facts.answers.values() for name in answer.asked_in_vain}
    found += [f"Commands for {name} fail: no node hosts it." for name in sorted(wanted - hosted)]
    for each in report.types:
        if each.homeless and each.name in hosted:
            count = "1 shard" if each.homeless == 1 else f"{each.homeless} shards"
            found.append(f"{count} of {each.name} without a home.")
        if each.cannot_start_count:
            count = "1 entity" if each.cannot_start_count == 1 else f"{each.cannot_start_count} entities"
            entity, why = next(iter(each.cannot_start.items()), ("", ""))
            found.append(f"{count} of {each.name} cannot start: {entity!r}: {why}.")
    return found


def moved_on_at(term: Term, now: datetime) -> datetime | None:
    """When the database went on in another lineage, if that was lately."""
    seconds = era_began(term)
    at = None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return at if at is not None and now - at < LATELY else None


def _notes(report: Report, facts: Facts) -> list[str]:
    """The database's failovers; regions that are full; types that no live node declares: of former code, or of another
    project on this database."""
    found = []
    if at := moved_on_at(report.term, report.at):
        found.append(
            f"PostgreSQL went on in another lineage at {at:%Y-%m-%d %H:%M} UTC, after a failover or a restore: what it lacked"
            " of the last events is gone."
        )
    names = member_names(facts.members)
    found += [
        f"Node {names.get(node, node)} is full of {region.type}: {sum(region.entities):,} of at most"
        f" {region.limit:,} entities are in memory, and others leave it for those that are called."
        for node, answer in facts.answers.items()
        for region in answer.regions
        if region.is_full
    ]
    hosted = {name for each in facts.members for name in each.types}
    return found + [
        f"No node hosts {each.name}, and {counted(each.homeless, 'shard')} of it lived somewhere once."
        for each in report.types
        if each.homeless and each.name not in hosted and report.nodes
    ]


def _node(member: Member, facts: Facts, names: Mapping[Incarnation, str]) -> NodeStatus:
    answer = facts.answers.get(member.incarnation)
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
        since=facts.joined.get(member.incarnation),
        shards=sum(row.home == member.incarnation for row in facts.shards),
        entities=None if answer is None else sum(sum(each.entities) for each in answer.regions),
        refused={} if answer is None else answer.refused,
    )


def _type(config: TypeConfig, facts: Facts, names: Mapping[Incarnation, str]) -> TypeStatus:
    rows = [row for row in facts.shards if row.type == config.name]
    homes = Counter(names.get(row.home or "") for row in rows if row.step == "home")
    regions = [
        region for each in facts.answers.values() for region in each.regions if region.type == config.name
    ]
    handing_off = sum(row.step == "handoff" for row in rows)
    return TypeStatus(
        name=config.name,
        kind=config.kind,
        shards=config.number_of_shards,
        extractor=config.extractor,
        hash_version=config.hash_version,
        role=config.role,
        placed=sum(homes[name] for name in names.values()),
        handing_off=handing_off,
        stopped=sum(row.step == "stopped" for row in rows),
        homeless=sum(row.home not in names for row in rows),
        homes={name: homes[name] for name in names.values() if homes[name]},
        entities=sum(sum(region.entities) for region in regions),
        cannot_start={
            each.entity: f"{each.error}, {each.attempts} times in {each.since_seconds:.0f} s"
            for region in regions
            for each in region.failed_starts
        },
        cannot_start_count=sum(region.cannot_start for region in regions),
    )
