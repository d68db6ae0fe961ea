"""Rates and latencies from the nodes' counters: differences between two answers of a node. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sharding_app.protocol.histogram import ROWS, added, difference, quantile
from sharding_app.protocol.messages import NodeStats, TypeStats
from sharding_app.protocol.trend import FAILURES

LEAST_SECONDS = 0.05
"""Two answers that are closer together give no rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeFigures:
    """One type, in one node or in all of them. Rates are per second; None: there is nothing to
    compare with yet.
    """

    shards: int = 0
    entities: int = 0
    commands: float | None = None
    failures: float | None = None
    p50: float | None = None
    p99: float | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    "Counts since the nodes' starts."
    hottest: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One node, or all of them."""

    entities: int = 0
    commands: float | None = None
    failures: float | None = None
    drops: float | None = None
    appends: float | None = None
    events: float | None = None
    p50: float | None = None
    p99: float | None = None
    append_p50: float | None = None
    append_p99: float | None = None
    batch_p50: float | None = None
    cpu: float | None = None
    "Share of one core."
    types: Mapping[str, TypeFigures] = field(default_factory=dict)


def figures(pairs: Iterable[tuple[NodeStats, NodeStats | None]]) -> Figures:
    """Add up the figures of these nodes: each with its answer, and its former one if there is
    one.
    """
    readings = [_Reading(now, before) for now, before in pairs]
    fresh = [each for each in readings if each.seconds >= LEAST_SECONDS]
    latency = added([counts for each in fresh for counts in each.latencies(None)])
    append = added([each.histogram("journal_append_seconds") for each in fresh])
    batch = added([each.histogram("journal_batch_rows") for each in fresh])
    return Figures(
        entities=sum(each.entities for reading in readings for each in reading.now.types),
        commands=_total(fresh, lambda each: each.rate(each.commands(None))),
        failures=_total(fresh, lambda each: each.rate(each.failures(None))),
        drops=_total(fresh, lambda each: each.rate(each.drops())),
        appends=_total(fresh, lambda each: each.rate(each.counted("journal_appends"))),
        events=_total(fresh, lambda each: each.rate(each.counted("journal_events"))),
        p50=quantile(latency, 0.5),
        p99=quantile(latency, 0.99),
        append_p50=quantile(append, 0.5),
        append_p99=quantile(append, 0.99),
        batch_p50=quantile(batch, 0.5, ROWS),
        cpu=_total(fresh, lambda each: each.rate(each.counted("cpu_milliseconds")) / 1000),
        types=_Types(readings, fresh),
    )


class _Types(Mapping[str, TypeFigures]):
    """The figures of each type, added up when they are first asked for.

    Of most nodes no page shows them, and each second brings new ones.
    """

    def __init__(self, readings: "Sequence[_Reading]", fresh: "Sequence[_Reading]") -> None:
        self._readings = readings
        self._fresh = fresh
        self._names = dict.fromkeys(each.type for reading in readings for each in reading.now.types)
        self._made: dict[str, TypeFigures] = {}

    def __getitem__(self, name: str) -> TypeFigures:
        if name not in self._names:
            raise KeyError(name)
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = _type(name, self._readings, self._fresh)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _type(name: str, readings: "Sequence[_Reading]", fresh: "Sequence[_Reading]") -> TypeFigures:
    parts = [part for reading in readings for part, _ in reading.types(name)]
    counters: Counter[str] = Counter()
    hot: Counter[tuple[str, int]] = Counter()
    for part in parts:
        counters.update(part.counters)
        hot.update({(entity, shard): count for entity, shard, count in part.hottest})
    latency = added([counts for each in fresh for counts in each.latencies(name)])
    return TypeFigures(
        shards=sum(each.shards for each in parts),
        entities=sum(each.entities for each in parts),
        commands=_total(fresh, lambda each: each.rate(each.commands(name))),
        failures=_total(fresh, lambda each: each.rate(each.failures(name))),
        p50=quantile(latency, 0.5),
        p99=quantile(latency, 0.99),
        counters=counters,
        hottest=tuple((entity, shard, count) for (entity, shard), count in hot.most_common(10)),
    )


def _total(fresh: "Sequence[_Reading]", of: "Callable[[_Reading], float]") -> float | None:
    return sum(map(of, fresh)) if fresh else None


class _Reading:
    """One node's two answers."""

    def __init__(self, now: NodeStats, before: NodeStats | None) -> None:
        self.now = now
        self.before = before
        self.seconds = 0.0 if before is None else now.clock - before.clock
        former = {} if before is None else {each.type: each for each in before.types}
        self._all = [(each, former.get(each.type)) for each in now.types]
        # Looked up for each type and figure: a search would take the square of their number.
        self._by_type: dict[str, list[tuple[TypeStats, TypeStats | None]]] = {}
        for pair in self._all:
            self._by_type.setdefault(pair[0].type, []).append(pair)

    def rate(self, count: float) -> float:
        return max(0.0, count) / self.seconds

    def counted(self, name: str) -> int:
        before = 0 if self.before is None else self.before.counters.get(name, 0)
        return self.now.counters.get(name, 0) - before

    def commands(self, name: str | None) -> int:
        return sum(each.commands - (former.commands if former else 0) for each, former in self.types(name))

    def failures(self, name: str | None) -> int:
        return sum(
            each.counters.get(counter, 0) - (former.counters.get(counter, 0) if former else 0)
            for each, former in self.types(name)
            for counter in FAILURES
        )

    def latencies(self, name: str | None) -> list[list[int]]:
        return [
            difference(each.latency, former.latency if former else []) for each, former in self.types(name)
        ]

    def histogram(self, name: str) -> list[int]:
        now, _ = self.now.histograms.get(name, ([], 0.0))
        before, _ = ([], 0.0) if self.before is None else self.before.histograms.get(name, ([], 0.0))
        return difference(now, before)

    def drops(self) -> int:
        before = [] if self.before is None else self.before.drops
        return sum(count for *_, count in self.now.drops) - sum(count for *_, count in before)

    def types(self, name: str | None) -> list[tuple[TypeStats, TypeStats | None]]:
        """Return what it says of a type, now and before; None: of all."""
        return self._all if name is None else self._by_type.get(name, [])
