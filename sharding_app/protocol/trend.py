"""A node's figures over the last hour and the last day: a bounded machine in memory.

Contract: pure. It is fed one `Reading` each `STEP_SECONDS`, and keeps `KEPT` samples for each span.
A sample is made of two readings: a count gives the rate between them, a histogram the quantile of
the values between them, a level its last value, a peak the largest one of all readings between
them. No sample is made of other samples, so a quantile of four minutes is as exact as one of ten
seconds. Two spans hold about 40 kB. Each type of entities that the node hosts has two spans more,
of fewer figures: about 30 kB.
"""

from array import array
from collections.abc import Mapping, Sequence
from math import isnan, nan
from types import MappingProxyType
from typing import NamedTuple

from sharding_app.protocol.histogram import difference, quantile

STEP_SECONDS = 10
KEPT = 360
SPANS = (STEP_SECONDS, 24 * STEP_SECONDS)
"""Seconds between two samples: of an hour, and of a day."""

RATES = ("commands", "failures", "recoveries", "cpu")
QUANTILES = ("command_p99", "append_p99")
LEVELS = ("entities", "shards", "memory_bytes")
PEAKS = ("loop_lag_seconds", "journal_waiting", "messages_in_memory")
FIGURES = (*RATES, *QUANTILES, *LEVELS, *PEAKS)

TYPE_RATES = ("commands", "events", "failures", "recoveries")
TYPE_QUANTILES = ("command_p99",)
TYPE_LEVELS = ("entities", "shards")
TYPE_FIGURES = (*TYPE_RATES, *TYPE_QUANTILES, *TYPE_LEVELS)
MOST_TYPES = 100
"""Types with figures of their own: the first ones that a node hosts."""

FAILURES = ("failed", "recovery_failed", "stopped_by_force")
"""Counters of a type for failures that a caller has seen."""


class Reading(NamedTuple):
    """A node's counters and condition at one moment, each in the order of its names above."""

    at: float
    counts: Sequence[float]
    histograms: Sequence[Sequence[int]]
    levels: Sequence[float]
    peaks: Sequence[float]


class Trend:
    """The samples of one span, oldest first."""

    __slots__ = ("at", "began", "period", "_before", "_names", "_peaks", "_values")

    def __init__(self, period: float, names: Sequence[str] = FIGURES) -> None:
        """`names`: of what a reading has, in its order."""
        self._names = names
        self.period = period
        self.began: float | None = None
        "Time of the first reading."
        self.at = array("d")
        self._values = {name: array("f") for name in names}
        self._before: Reading | None = None
        self._peaks: Sequence[float] = ()

    def add(self, reading: Reading) -> None:
        before = self._before
        if before is None:
            self.began, self._before = reading.at, reading
            return
        self._peaks = tuple(map(max, self._peaks, reading.peaks)) if self._peaks else reading.peaks
        # Readings come a little early or late.
        if reading.at - before.at < self.period - STEP_SECONDS / 2:
            return
        self._append(before, reading)
        self._before, self._peaks = reading, ()

    def figures(self) -> Mapping[str, list[float | None]]:
        """Return the values of each figure; None: nothing was counted."""
        return {
            name: [None if isnan(value) else value for value in values]
            for name, values in self._values.items()
        }

    def _append(self, before: Reading, reading: Reading) -> None:
        seconds = reading.at - before.at
        rates = [
            max(0.0, now - former) / seconds
            for now, former in zip(reading.counts, before.counts, strict=True)
        ]
        quantiles = [
            _or_nan(quantile(difference(now, former), 0.99))
            for now, former in zip(reading.histograms, before.histograms, strict=True)
        ]
        sample = (*rates, *quantiles, *reading.levels, *self._peaks)
        for name, value in zip(self._names, sample, strict=True):
            _push(self._values[name], value)
        _push(self.at, reading.at)


class Trends:
    """A node's spans, and the time of its next reading."""

    __slots__ = ("of_types", "spans", "_due")

    def __init__(self) -> None:
        self.spans = {period: Trend(period) for period in SPANS}
        self.of_types: dict[str, dict[int, Trend]] = {}
        "The spans of each type."
        self._due: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether it is time for a reading. Each is due once."""
        if self._due is not None and now < self._due:
            return False
        self._due = now + STEP_SECONDS if self._due is None else max(self._due + STEP_SECONDS, now)
        return True

    def add(self, reading: Reading, types: Mapping[str, Reading] = MappingProxyType({})) -> None:
        """Add the readings of the node and of its types."""
        for trend in self.spans.values():
            trend.add(reading)
        for name, of_type in types.items():
            spans = self.of_types.get(name)
            if spans is None:
                if len(self.of_types) >= MOST_TYPES:
                    continue
                spans = self.of_types[name] = {period: Trend(period, TYPE_FIGURES) for period in SPANS}
            for trend in spans.values():
                trend.add(of_type)


def _or_nan(value: float | None) -> float:
    return nan if value is None else value


def _push(values: "array[float]", value: float) -> None:
    if len(values) >= KEPT:
        del values[0]
    values.append(value)
