"""Which links this process has, and what it keeps of peers with which it has none.

Contract: a peer that is gone gets no link again, unless the server went back to a point before its death: then it may live,
and its death belongs to an era that is over (`core.terms`).

What a link knew of its peer's stream when it was closed for idleness is given to the next link to that peer, whose own stream
is a later one: a late repetition is still recognised. The same is done with a peer without a row that is silent for very long,
and what was queued for it is dropped. It is not refused: if it wakes after all, it goes on where it was, and its region lets
go of the answers that were lost (`runtime.asker`).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from sharding_app.core.ids import Incarnation, Term, has_no_row
from sharding_app.core.link import Link, LinkLimits, Position
from sharding_app.core.terms import era_of
from sharding_app.core.wire import Wire
from sharding_app.runtime.link_line import Line

Value = TypeVar("Value")

LOST_AFTER_SECONDS = 300.0
"""Far longer than any ask waits, and than a process should be away."""
MAX_LINKS = 10_000
MAX_REMEMBERED = 50_000
"""Positions of idle peers, and incarnations known to be gone: the oldest are forgotten first."""


class LinkBook:
    def __init__(
        self, me: Incarnation, limits: LinkLimits, wire: Wire, channel_of: Callable[[Incarnation], str]
    ) -> None:
        self.lines: dict[Incarnation, Line] = {}
        self._me = me
        self._limits = limits
        self._wire = wire
        self._channel_of = channel_of
        self._positions: OrderedDict[Incarnation, Position] = OrderedDict()
        self._gone: OrderedDict[Incarnation, Term] = OrderedDict()
        "Incarnations and the term in which this process heard of their end."
        self._last_stream = 0

    @property
    def full(self) -> bool:
        return len(self.lines) >= MAX_LINKS

    def is_gone(self, peer: Incarnation) -> bool:
        return peer in self._gone

    def open(self, peer: Incarnation) -> Line:
        """Make a link to a peer that has none."""
        self._last_stream += 1
        position = self._positions.pop(peer, (0, 0))
        link = Link(self._me, peer, self._limits, self._last_stream, position, self._wire)
        line = self.lines[peer] = Line(link, self._channel_of(peer))
        return line

    def end(self, peer: Incarnation, term: Term) -> None:
        """The peer is gone, as of that term."""
        self._positions.pop(peer, None)
        _remember(self._gone, peer, term)
        line = self.lines.pop(peer, None)
        if line is not None:
            line.end()

    def enter_era(self, era: int) -> None:
        """Forget who has died in former eras: a death that the server has lost did not happen."""
        for peer in [each for each, term in self._gone.items() if era_of(term) < era]:
            del self._gone[peer]

    def forget(self, now: float, *, lost: bool) -> None:
        """Drop the links on which nothing has moved for long, and with `lost` those to peers that nobody declares gone."""
        for peer, line in list(self.lines.items()):
            if line.link.idle(now) or (lost and has_no_row(peer) and _is_lost(line, now)):
                _remember(self._positions, peer, line.link.position)
                # A later link to the same peer must have a later stream.
                self._last_stream = max(self._last_stream, line.link.stream)
                del self.lines[peer]
                line.end()

    def close(self) -> None:
        for line in self.lines.values():
            line.end()
        self.lines.clear()


def _is_lost(line: Line, now: float) -> bool:
    since = line.link.silent_since()
    return since is not None and now - since >= LOST_AFTER_SECONDS


def _remember(known: OrderedDict[Incarnation, Value], peer: Incarnation, value: Value) -> None:
    known[peer] = value
    known.move_to_end(peer)
    if len(known) > MAX_REMEMBERED:
        known.popitem(last=False)
