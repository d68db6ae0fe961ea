"""The links of a process, and the facts that it keeps of peers without a link.

Contract: a peer that is gone gets no link again, with one exception. If the server went back to a
point before its death, it may live, and its death belongs to an era that is over
(`protocol.coordinator.terms`).

When a link is closed for idleness, its position in the peer's stream goes to the next link to that
peer, whose own stream is a later one. So a late repetition is still recognised. The same is done
with a peer without a row that is silent for very long, and its queued messages are dropped. Such a
peer is not refused: if it wakes after all, it goes on where it was, and its region lets go of the
lost answers (`runtime.asking.regions`).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from sharding_app.protocol.coordinator.terms import era_of
from sharding_app.protocol.ids import Incarnation, Term, has_no_row
from sharding_app.protocol.link.link import Link, LinkLimits, Position
from sharding_app.protocol.versions import Wire
from sharding_app.runtime.links.task import LinkTask

Value = TypeVar("Value")

LOST_AFTER_SECONDS = 300.0
"""Far longer than any ask waits, and than a process should be away."""
MAX_LINKS = 10_000
MAX_REMEMBERED = 50_000
"""Limit of the positions of idle peers, and of the known dead. The oldest are forgotten first."""


class Gone(NamedTuple):
    term: Term
    "Of the coordinator that told of the end."
    heard: float
    "The time at which this process heard of it first."


class LinkTable:
    def __init__(
        self, me: Incarnation, limits: LinkLimits, wire: Wire, channel_of: Callable[[Incarnation], str]
    ) -> None:
        self.tasks: dict[Incarnation, LinkTask] = {}
        self._me = me
        self._limits = limits
        self._wire = wire
        self._channel_of = channel_of
        self._positions: OrderedDict[Incarnation, Position] = OrderedDict()
        self._gone: OrderedDict[Incarnation, Gone] = OrderedDict()
        self._last_stream = 0

    @property
    def full(self) -> bool:
        return len(self.tasks) >= MAX_LINKS

    def is_gone(self, peer: Incarnation) -> bool:
        return peer in self._gone

    def seconds_gone(self, peer: Incarnation, now: float) -> float:
        return now - self._gone[peer].heard

    def open(self, peer: Incarnation) -> LinkTask:
        """Make a link to a peer that has none."""
        self._last_stream += 1
        position = self._positions.pop(peer, (0, 0))
        link = Link(self._me, peer, self._limits, self._last_stream, position, self._wire)
        task = self.tasks[peer] = LinkTask(link, self._channel_of(peer))
        return task

    def end(self, peer: Incarnation, term: Term, now: float) -> None:
        """End the link to a peer that is gone, as of that term."""
        self._positions.pop(peer, None)
        known = self._gone.get(peer)
        _remember(self._gone, peer, Gone(term, known.heard if known else now))
        task = self.tasks.pop(peer, None)
        if task is not None:
            task.end()

    def enter_era(self, era: int) -> None:
        """Forget the deaths of former eras: a death that the server has lost did not happen."""
        for peer in [each for each, gone in self._gone.items() if era_of(gone.term) < era]:
            del self._gone[peer]

    def forget(self, now: float, *, lost: bool) -> None:
        """Drop links on which nothing has moved for long.

        `lost`: also those to silent peers without a row.
        """
        for peer, task in list(self.tasks.items()):
            if task.link.idle(now) or (lost and has_no_row(peer) and _is_lost(task, now)):
                _remember(self._positions, peer, task.link.position)
                # A later link to the same peer must have a later stream.
                self._last_stream = max(self._last_stream, task.link.stream)
                del self.tasks[peer]
                task.end()

    def close(self) -> None:
        for task in self.tasks.values():
            task.end()
        self.tasks.clear()


def _is_lost(task: LinkTask, now: float) -> bool:
    since = task.link.silent_since()
    return since is not None and now - since >= LOST_AFTER_SECONDS


def _remember(known: OrderedDict[Incarnation, Value], peer: Incarnation, value: Value) -> None:
    known[peer] = value
    known.move_to_end(peer)
    if len(known) > MAX_REMEMBERED:
        known.popitem(last=False)
