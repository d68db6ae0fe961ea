"""Nodes that answer with figures over time without running."""

from __future__ import annotations

from collections.abc import Mapping

from sharding_app.errors import Unavailable
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import NodeTrend
from sharding_app.protocol.trend import FIGURES, KEPT, TYPE_FIGURES


def trend_of(
    period: int, *, samples: int = KEPT, value: float = 10.0, clock: float = 1e6, type_name: str = ""
) -> NodeTrend:
    """A node that has always done the same, and took its last sample a moment ago."""
    at = [clock - 1 - period * number for number in reversed(range(samples))]
    names = TYPE_FIGURES if type_name else FIGURES
    figures: dict[str, list[float | None]] = {name: [value] * samples for name in names}
    return NodeTrend(0, period, clock, clock - 1 - period * samples, at, figures, type_name)


class FakeTrends:
    """Stands where the nodes are asked. `silent` ones are late; `trouble` is why no node can be
    asked. `elsewhere` are nodes that do not host the type that is asked for.
    """

    def __init__(self) -> None:
        self.silent: set[Incarnation] = set()
        self.trouble = ""
        self.elsewhere: set[Incarnation] = set()
        self.asked: list[int] = []
        self.types: list[str] = []
        self.samples = KEPT

    def __call__(
        self, nodes: list[Incarnation], period: int, type_name: str
    ) -> Mapping[Incarnation, NodeTrend]:
        if self.trouble:
            raise Unavailable(self.trouble)
        self.asked.append(period)
        if type_name:
            self.types.append(type_name)
        return {
            node: trend_of(
                period,
                samples=0 if type_name and node in self.elsewhere else self.samples,
                type_name=type_name,
            )
            for node in nodes
            if node not in self.silent
        }
