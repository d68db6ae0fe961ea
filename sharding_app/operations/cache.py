"""Looks at the cluster for all viewers in this process: one shared look at a time, and none while
no page or scrape asks.

Contract: a look is at most `MAX_AGE_SECONDS` old. It fails only if the database fails: it names
nodes that do not answer, and states why this process could not ask them (Redis, for example). Rates
need two answers of each node; the first look after a pause waits a moment and asks twice. May be
called from any thread but the portal's own.
"""

import asyncio
import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from django.db import DatabaseError

from sharding_app import wiring
from sharding_app.adapters.django.database import ReadTooLong, UnknownJournal, journal_alias
from sharding_app.errors import ShardingError
from sharding_app.operations.connectivity import database_trouble
from sharding_app.operations.each_journal import JournalsDown
from sharding_app.operations.rates import Figures, figures
from sharding_app.operations.snapshot import ClusterSnapshot, NodeAnswers, read_snapshot
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import NodeStats, ShardRegionState
from sharding_app.protocol.records import Member
from sharding_app.runtime.node.process import Process

MAX_AGE_SECONDS = 0.9
ANSWER_SECONDS = 0.6
JOIN_SECONDS = 2.0
"""Seconds that the first look waits for this process to be connected."""
AGAIN_SECONDS = 0.3
STALE_SECONDS = 30.0
"""A former answer that is older gives no present rate."""
KEPT_SAMPLES = 120
PLACES = 52

T = TypeVar("T")


class Unreachable(Exception):
    """The database does not answer. The message is for people."""


def in_words(error: Exception) -> str:
    """Say why the cluster cannot be shown. A page reads more than the look that it is built of."""
    if isinstance(error, Unreachable | ReadTooLong | JournalsDown | UnknownJournal):
        return str(error)
    return str(database_trouble(journal_alias(), error))


@dataclass(frozen=True, slots=True)
class Sample:
    """A chart's values of one look."""

    at: float
    commands: float
    appends: float
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    cluster: ClusterSnapshot
    stats: Mapping[Incarnation, NodeStats] = field(default_factory=dict)
    regions: Mapping[Incarnation, ShardRegionState] = field(default_factory=dict)
    late: frozenset[Incarnation] = frozenset()
    "Nodes that were asked and did not answer."
    trouble: str = ""
    "Why no node could be asked."
    total: Figures = field(default_factory=Figures)
    by_node: Mapping[Incarnation, Figures] = field(default_factory=dict)
    places: Mapping[Incarnation, int] = field(default_factory=dict)
    "Each node's letter and colour: kept for its name for as long as possible."
    samples: tuple[Sample, ...] = ()

    @property
    def answers(self) -> NodeAnswers | None:
        """The nodes' answers; None: no node could be asked."""
        if self.trouble:
            return None
        return NodeAnswers(regions=self.regions, stats=self.stats, silent=self.late)


def ask_cluster(
    job: Callable[[Process], Awaitable[T]],
    join_seconds: float = JOIN_SECONDS,
    seconds: float = ANSWER_SECONDS,
) -> T:
    """Run a job in this process's place in the cluster. Raises ShardingError with the reason if it
    has none.
    """
    portal = wiring.portal()

    async def there() -> T:
        return await job(await portal.connected(join_seconds))

    future = portal.submit(there())
    try:
        return future.result(join_seconds + seconds + 1.0)
    except concurrent.futures.TimeoutError:
        future.cancel()
        raise ShardingError("the sharding loop of this process does not answer") from None


class Collector:
    """Shares looks. One for each process."""

    def __init__(
        self,
        read: Callable[[], ClusterSnapshot] = read_snapshot,
        ask: "Callable[[list[Incarnation], float], Answers] | None" = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read = read
        self._ask = ask or _ask
        self._clock = clock
        self._pause = pause
        self._lock = threading.Lock()
        self._look: Look | None = None
        self._looked_at = self._failed_at = float("-inf")
        self._trouble = ""
        "Why the last look failed. Viewers who waited for it do not wait for one of their own."
        self._before: dict[Incarnation, NodeStats] = {}
        self._samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self._places: dict[str, int] = {}
        self._patience = JOIN_SECONDS

    def look(self) -> Look:
        """Return a fresh look. Raises Unreachable."""
        came = self._clock()
        with self._lock:
            if self._look is None or self._clock() - self._looked_at >= MAX_AGE_SECONDS:
                if came < self._failed_at:
                    raise Unreachable(self._trouble)
                try:
                    self._look = self._take()
                except Unreachable as error:
                    self._failed_at, self._trouble = self._clock(), str(error)
                    raise
                self._looked_at = self._clock()
            return self._look

    def _take(self) -> Look:
        try:
            cluster = self._read()
        except DatabaseError as error:
            raise Unreachable(in_words(error)) from error
        places = self._placed(cluster.members)
        nodes = [each.incarnation for each in cluster.members]
        if self._clock() - self._looked_at > STALE_SECONDS:
            self._before.clear()
            self._samples.clear()
        try:
            stats, regions = self._ask(nodes, self._patience) if nodes else ({}, {})
            self._patience = JOIN_SECONDS
            if stats and not self._before.keys() & stats.keys():
                self._before = dict(stats)
                self._pause(AGAIN_SECONDS)
                stats, regions = self._ask(nodes, self._patience)
        except ShardingError as error:
            self._patience = AGAIN_SECONDS
            return Look(cluster=cluster, trouble=str(error), places=places)
        by_node = {node: figures([(answer, self._before.get(node))]) for node, answer in stats.items()}
        total = figures([(answer, self._before.get(node)) for node, answer in stats.items()])
        self._before = {**{node: self._before[node] for node in nodes if node in self._before}, **stats}
        if total.commands is not None:
            self._samples.append(
                Sample(self._clock(), total.commands, total.appends or 0.0, total.p50, total.p99)
            )
        return Look(
            cluster=cluster,
            stats=stats,
            regions=regions,
            late=frozenset(nodes) - stats.keys(),
            total=total,
            by_node=by_node,
            places=places,
            samples=tuple(self._samples),
        )

    def _placed(self, members: Sequence[Member]) -> dict[Incarnation, int]:
        """Give each node a place: that of its name, if it had one, else the first free one."""
        twins: dict[str, int] = {}
        names: dict[Incarnation, str] = {}
        for member in members:
            twins[member.name] = number = twins.get(member.name, 0) + 1
            names[member.incarnation] = f"{member.name} {number}"
        present = set(names.values())
        if len(self._places.keys() | present) > max(PLACES, len(present)):
            self._places = {name: place for name, place in self._places.items() if name in present}
        taken = set(self._places.values())
        for name in names.values():
            if name not in self._places:
                place = next(number for number in range(len(taken) + 1) if number not in taken)
                self._places[name] = place
                taken.add(place)
        return {incarnation: self._places[name] for incarnation, name in names.items()}


Answers = tuple[Mapping[Incarnation, NodeStats], Mapping[Incarnation, ShardRegionState]]


def _ask(nodes: list[Incarnation], join_seconds: float) -> Answers:
    async def questions(process: Process) -> Answers:
        stats, regions = await asyncio.gather(
            process.queries.stats(nodes, ANSWER_SECONDS),
            process.queries.region_states(nodes, timeout=ANSWER_SECONDS),
        )
        return stats, regions.answers

    return ask_cluster(questions, join_seconds, ANSWER_SECONDS)


collector = Collector()
