"""Charts of the nodes' figures over time: small multiples, and a table of the same numbers."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from weakref import WeakKeyDictionary

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View
from sharding_app.dashboard.presenters.line_chart import HEIGHT, LEFT, TOP, axis, line, marks
from sharding_app.operations.trends import LARGEST, WORST, ClusterTrend, Values, grouped
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.trend import KEPT, SPANS

MOST_LINES = 8
"""Nodes that have a line of their own; of more, only the cluster's is drawn."""
MOST_VIEWS = 16
"""Sets of charts that are kept for one answer: of nodes, in languages and time zones."""
ROWS = 12
"""Rows of a table."""
FRESH = 3
"""Slots within which the last value counts as the present one."""


_Nodes = tuple[tuple[str, str, int, str], ...]
"""Nodes that are shown: incarnation, letter, colour and name of each."""


class Range(NamedTuple):
    period: int
    labels_seconds: int
    "Between two labels of the axis of time."


RANGES = {"1h": Range(SPANS[0], 900), "24h": Range(SPANS[1], 4 * 3600)}


class Figure(NamedTuple):
    title: object
    word: Callable[[float | None], str]
    least: float
    "The least top of the axis, so that small numbers look small."


TITLES: Mapping[str, Figure] = {
    "commands": Figure(gettext_lazy("Commands / s"), words.rate, 1),
    "command_p99": Figure(gettext_lazy("Time of a command, p99"), words.duration, 0.001),
    "failures": Figure(gettext_lazy("Failures / s"), words.rate, 1),
    "recoveries": Figure(gettext_lazy("Recoveries / s"), words.rate, 1),
    "append_p99": Figure(gettext_lazy("Time of an append, p99"), words.duration, 0.001),
    "journal_waiting": Figure(gettext_lazy("Commits that wait"), words.count, 1),
    "messages_in_memory": Figure(gettext_lazy("Messages and timers that wait"), words.count, 1),
    "loop_lag_seconds": Figure(gettext_lazy("Event loop late by"), words.duration, 0.001),
    "entities": Figure(gettext_lazy("Entities in memory"), words.count, 1),
    "shards": Figure(gettext_lazy("Shards at home"), words.count, 1),
    "cpu": Figure(gettext_lazy("Processor"), words.percent, 0.1),
    "memory_bytes": Figure(gettext_lazy("Memory"), words.size, 1e6),
}
"""In the order of the page."""

TYPE_TITLES: Mapping[str, Figure] = {
    "commands": TITLES["commands"],
    "command_p99": TITLES["command_p99"],
    "failures": TITLES["failures"],
    "events": Figure(gettext_lazy("Events / s"), words.rate, 1),
    "recoveries": TITLES["recoveries"],
    "entities": TITLES["entities"],
    "shards": TITLES["shards"],
}
"""Those of one type of entities, in the order of its page."""

MARKED = {
    "node_dead": "bad",
    "hand_off_late": "bad",
    "coordinator_elected": "warn",
    "node_up": "good",
    "node_left": "busy",
    "shards_moved": "busy",
}
"""Decisions that are marked on the axis of time, and their colours."""
_STRONGER = {tone: strength for strength, tone in enumerate(("busy", "good", "warn", "bad"))}


def charts(trend: ClusterTrend, shown: Mapping[Incarnation, View], node: str = "") -> list[View]:
    """Return the charts of the cluster, or of one node.

    They are drawn once for each answer, language and time zone.
    """
    return _once(trend, _drawn(shown), node, TITLES)


def type_charts(trend: ClusterTrend, shown: Mapping[Incarnation, View]) -> list[View]:
    """Return the charts of a type of entities, with lines of the nodes that have figures of it.

    They are drawn as often as those of the cluster.
    """
    known = {each: shown[each] for each in shown if each in trend.nodes and trend.knows(each)}
    return _once(trend, _drawn(known), "", TYPE_TITLES)


def _drawn(shown: Mapping[Incarnation, View]) -> _Nodes:
    return tuple((each, shown[each]["letter"], shown[each]["colour"], shown[each]["name"]) for each in shown)


_made: WeakKeyDictionary[ClusterTrend, dict[object, list[View]]] = WeakKeyDictionary()
"""The charts of answers that are still in use: an answer of many nodes takes many megabytes."""


def _once(trend: ClusterTrend, shown: _Nodes, node: str, titles: Mapping[str, Figure]) -> list[View]:
    cluster = str(_("Cluster"))
    made = _made.setdefault(trend, {})
    key = shown, node, cluster, str(timezone.get_current_timezone()), tuple(titles)
    found = made.get(key)
    if found is None:
        if len(made) >= MOST_VIEWS:
            made.clear()
        found = made[key] = _charts(trend, shown, node, cluster, titles)
    return found


def _charts(
    trend: ClusterTrend, shown: _Nodes, node: str, cluster: str, titles: Mapping[str, Figure]
) -> list[View]:
    lines = [each for each in shown if each[0] in trend.nodes]
    if node or not 1 < len(lines) <= MOST_LINES:
        lines = []
    moments = _moments(trend)
    return [
        _chart(
            trend, name, figure, node, lines, moments,
            cluster=cluster if not node else next((each[3] for each in shown if each[0] == node), node),
        )
        for name, figure in titles.items()
    ]  # fmt: skip


def _chart(
    trend: ClusterTrend,
    name: str,
    figure: Figure,
    node: str,
    lines: Sequence[tuple[str, str, int, str]],
    moments: Sequence[View],
    *,
    cluster: str,
) -> View:
    main: Values = trend.nodes[node].figures[name] if node else trend.total(name)
    of_nodes = [(each, trend.nodes[each[0]].figures[name]) for each in lines]
    known = [value for value in main if value is not None]
    scale = axis(max(known, default=0.0), figure.least)
    word = figure.word
    last = next((value for value in reversed(main[-FRESH:]) if value is not None), None)
    return {
        "key": name,
        "title": figure.title,
        "worst": name in WORST and not node and len(trend.nodes) > 1,
        "now": word(last),
        "low": word(min(known, default=None)),
        "high": word(max(known, default=None)),
        "known": bool(known),
        "ticks": [{"y": tick.y, "text": word(tick.value) if tick.value else "0"} for tick in scale.ticks],
        "line": line(main, scale.top),
        "lines": [{"colour": each[2], "path": line(values, scale.top)} for each, values in of_nodes],
        "heads": [cluster, *(each[3] for each in lines)],
        "rows": _rows(trend, [main, *(values for _each, values in of_nodes)], word, largest=name in LARGEST),
        "moments": moments,
    }


def _rows(
    trend: ClusterTrend,
    lines: Sequence[Values],
    word: Callable[[float | None], str],
    *,
    largest: bool,
) -> list[View]:
    """Return the rows of a table, the newest first."""
    size = KEPT // ROWS
    columns = [grouped(values, size, largest=largest) for values in lines]
    found = [
        {
            "until": timezone.localtime(trend.begins + timedelta(seconds=trend.period * size * (number + 1))),
            "values": [word(column[number]) for column in columns],
        }
        for number in range(ROWS)
    ]
    return found[::-1]


def _moments(trend: ClusterTrend) -> list[View]:
    """Return the labels of the axis of time: round moments, by the site's clock."""
    every = next(each.labels_seconds for each in RANGES.values() if each.period == trend.period)
    begins = timezone.localtime(trend.begins)
    midnight = begins.replace(hour=0, minute=0, second=0, microsecond=0)
    number = int((begins - midnight).total_seconds() // every) + 1
    found = []
    while (at := midnight + timedelta(seconds=every * number)) < trend.ends:
        found.append({"x": LEFT + trend.slot(at), "text": f"{at:%H:%M}"})
        number += 1
    return found


def marked(trend: ClusterTrend, decisions: Sequence[tuple[datetime, str]]) -> list[View]:
    """Return the marks of decisions, by colour: in each slot that of the weightiest one."""
    tones: dict[int, str] = {}
    for at, action in decisions:
        slot, tone = trend.slot(at), MARKED[action]
        if 0 <= slot < KEPT and _STRONGER[tone] >= _STRONGER.get(tones.get(slot, ""), 0):
            tones[slot] = tone
    return [
        {"tone": tone, "path": marks([slot for slot, each in tones.items() if each == tone])}
        for tone in _STRONGER
        if tone in tones.values()
    ]


def drawing(trend: ClusterTrend) -> View:
    """Return the measures that all charts share."""
    return {
        "width": LEFT + KEPT + 8,
        "height": TOP + HEIGHT + 22,
        "left": LEFT,
        "right": LEFT + KEPT,
        "tick_x": LEFT - 6,
        "label_y": TOP + HEIGHT + 17,
        "begins": timezone.localtime(trend.begins),
        "ends": timezone.localtime(trend.ends),
        "step": words.duration(trend.period)
        if trend.period < 120
        else words.span(timedelta(seconds=trend.period)),
    }


def sources(trend: ClusterTrend, shown: Mapping[Incarnation, View], now: datetime) -> list[View]:
    """Return the nodes, each with the moment since when it has figures."""
    return [
        {
            **home,
            "since": trend.nodes[node].since if node in trend.nodes else None,
            "ago": words.age(trend.nodes[node].since, now) if node in trend.nodes else "",
        }
        for node, home in shown.items()
    ]
