"""The nodes' figures over time, or those of one type of entities, for all viewers in this process:
asked for while a page shows them.

Contract: an answer is shared until it is half a period old, or `MAX_AGE_SECONDS`. The last
`KEPT_ANSWERS` of those that are not older are kept. A node that does not answer is left out, and
named. May be called from any thread but the portal's own.

Nodes take their samples at moments of their own, by clocks of their own. Here they are put into the
slots of one grid, so that they can be added up. The newest slot is one that all nodes have passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sharding_app.errors import ShardingError
from sharding_app.operations.cache import ANSWER_SECONDS, JOIN_SECONDS, ask_cluster
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import NodeTrend
from sharding_app.protocol.trend import FIGURES, KEPT, LEVELS, PEAKS, QUANTILES, TYPE_FIGURES
from sharding_app.runtime.node.process import Process

MAX_AGE_SECONDS = 30.0
KEPT_ANSWERS = 16
LONGEST_SECONDS = 1e9
"""A node that says it has run for longer is not believed."""
WORST = frozenset((*QUANTILES, "loop_lag_seconds"))
"""Figures of which the cluster's is that of the worst node; of the others it is the sum."""
LARGEST = frozenset((*QUANTILES, *PEAKS, *LEVELS))
"""Figures of which several slots show the largest value; of the others they show the mean."""

Values = tuple[float | None, ...]
"""One value for each slot; None: it is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeValues:
    since: datetime
    "When the node began to take samples."
    figures: Mapping[str, Values]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, weakref_slot=True)
class ClusterTrend:
    """The figures of all nodes that have answered, on one grid."""

    period: int
    first: int
    "The number of the first slot: its end is at `(first + 1) * period` seconds since 1970."
    nodes: Mapping[Incarnation, NodeValues] = field(default_factory=dict)
    silent: frozenset[Incarnation] = frozenset()
    trouble: str = ""
    "Why no node could be asked."

    @property
    def begins(self) -> datetime:
        return datetime.fromtimestamp(self.first * self.period, UTC)

    @property
    def ends(self) -> datetime:
        return self.begins + timedelta(seconds=self.period * KEPT)

    def slot(self, at: datetime) -> int:
        """Return the slot of a moment, which may lie outside of the grid."""
        return int(at.timestamp() // self.period) - self.first

    def knows(self, node: Incarnation = "") -> bool:
        """Whether there is a value of this node, or of any."""
        chosen = [self.nodes[node]] if node else self.nodes.values()
        return any(value is not None for each in chosen for value in each.figures["shards"])

    def total(self, figure: str) -> Values:
        """Return the cluster's values: in each slot of the nodes that are known there."""
        together = max if figure in WORST else sum
        return tuple(
            together(known) if (known := [each for each in slot if each is not None]) else None
            for slot in zip(*(node.figures[figure] for node in self.nodes.values()), strict=True)
        )


def grouped(values: Sequence[float | None], size: int, *, largest: bool) -> list[float | None]:
    """Return one value for each `size` slots: the largest one, or the mean."""
    groups = (values[start : start + size] for start in range(0, len(values), size))
    known = ([each for each in group if each is not None] for group in groups)
    return [(max(each) if largest else sum(each) / len(each)) if each else None for each in known]


def on_grid(
    times: Sequence[float], values: Sequence[float | None], period: int, first: int, *, largest: bool
) -> Values:
    """Put a node's samples, given by the seconds since 1970 of their ends, into the slots.

    A node takes one sample in each period, a little early or late. A single empty slot is due to
    that, and has the value before it; more of them in a row are a gap.
    """
    slots: list[list[float]] = [[] for _ in range(KEPT)]
    taken = [False] * KEPT
    for at, value in zip(times, values, strict=True):
        place = at // period - first
        if not 0 <= place < KEPT:  # what is no number at all is left out too
            continue
        number = int(place)
        taken[number] = True
        if value is not None:
            slots[number].append(value)
    found = [(max(each) if largest else sum(each) / len(each)) if each else None for each in slots]
    for number in range(1, KEPT):
        if not taken[number] and taken[number - 1] and (number + 1 == KEPT or taken[number + 1]):
            found[number] = found[number - 1]
    return tuple(found)


def put_together(
    answers: Mapping[Incarnation, NodeTrend],
    asked: Sequence[Incarnation],
    period: int,
    now: datetime,
    figures: Sequence[str] = FIGURES,
) -> ClusterTrend:
    """Put the nodes' answers on one grid. A figure that a node does not know is unknown."""
    seconds = now.timestamp()
    first = int(seconds // period) - KEPT
    nodes = {}
    for node, answer in answers.items():
        times = [seconds - (answer.clock - at) for at in answer.at]
        nodes[node] = NodeValues(
            now - timedelta(seconds=min(max(0.0, answer.clock - answer.began), LONGEST_SECONDS)),
            {
                name: on_grid(times, answer.figures[name], period, first, largest=name in LARGEST)
                if name in answer.figures
                else (None,) * KEPT
                for name in figures
            },
        )
    return ClusterTrend(period=period, first=first, nodes=nodes, silent=frozenset(asked) - nodes.keys())


class TrendCollector:
    """Shares answers. One for each process."""

    def __init__(
        self,
        ask: Callable[[list[Incarnation], int, str], Mapping[Incarnation, NodeTrend]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask or _ask
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[int, str], tuple[float, list[Incarnation], ClusterTrend]] = {}
        "By the period and the type, that of the latest question last."

    def trend(
        self, nodes: list[Incarnation], period: int, now: datetime, type_name: str = ""
    ) -> ClusterTrend:
        """Return the figures of these nodes, or those of one type there. `now`: the time of the
        database.
        """
        with self._lock:
            key = period, type_name
            asked_at, asked, trend = self._kept.get(key, (float("-inf"), [], None))
            age = self._clock() - asked_at
            if trend is None or asked != nodes or age >= min(period / 2, MAX_AGE_SECONDS):
                trend = self._take(nodes, period, now, type_name)
                taken_at = self._clock()
                self._kept = {
                    each: kept
                    for each, kept in self._kept.items()
                    if each != key and taken_at - kept[0] < MAX_AGE_SECONDS
                }
                self._kept[key] = taken_at, list(nodes), trend
                if len(self._kept) > KEPT_ANSWERS:
                    del self._kept[next(iter(self._kept))]
            return trend

    def _take(self, nodes: list[Incarnation], period: int, now: datetime, type_name: str) -> ClusterTrend:
        figures = TYPE_FIGURES if type_name else FIGURES
        try:
            answers = self._ask(nodes, period, type_name) if nodes else {}
        except ShardingError as error:
            empty = put_together({}, nodes, period, now, figures)
            return ClusterTrend(period=period, first=empty.first, silent=empty.silent, trouble=str(error))
        return put_together(answers, nodes, period, now, figures)


def _ask(nodes: list[Incarnation], period: int, type_name: str) -> Mapping[Incarnation, NodeTrend]:
    async def question(process: Process) -> Mapping[Incarnation, NodeTrend]:
        return await process.queries.trends(nodes, period, ANSWER_SECONDS, type_name)

    return ask_cluster(question, JOIN_SECONDS, ANSWER_SECONDS)


trends = TrendCollector()
