"""Nodes that answer with figures over time without running."""

from __future__ import annotations

from collections.abc import Mapping

from sharding_app.errors import Unavailable
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import NodeTrend
from sharding_app.protocol.trend import FIGURES, KEPT


def trend_of(period: int, *, samples: int = KEPT, value: float = 10.0, clock: float = 1e6) -> NodeTrend:
    """A node that has always done the same, and took its last sample a moment ago."""
    at = [clock - 1 - period * number for number in reversed(range(samples))]
    figures: dict[str, list[float | None]] = {name: [value] * samples for name in FIGURES}
    return NodeTrend(0, period, clock, clock - 1 - period * samples, at, figures)


class FakeTrends:
    """Stands where the nodes are asked. `silent` ones are late; `trouble` is why no node can be
    asked.
    """

    def __init__(self) -> None:
        self.silent: set[Incarnation] = set()
        self.trouble = ""
        self.asked: list[int] = []
        self.samples = KEPT

    def __call__(self, nodes: list[Incarnation], period: int) -> Mapping[Incarnation, NodeTrend]:
        if self.trouble:
            raise Unavailable(self.trouble)
        self.asked.append(period)
        return {node: trend_of(period, samples=self.samples) for node in nodes if node not in self.silent}
