"""Whether a node with direct links is cut off from all others, though they are there.

A node that reaches PostgreSQL keeps its shards, whether other processes reach it or not. Over a
channel layer its echo shows that others can. Over direct links only another node can show it.

Contract. A node is alone when no other node was heard for longer than `patience_seconds`, and all
that time at least one other held its locks and said that it hears. The patience is longer than a
lease: a frozen node loses its locks within that time, and a node whose only peer is frozen is not
alone. The oldest waits for longer. So of two that do not reach each other the younger one says that
it is deaf, and then the older one has no other that hears. Time in which this process stood still
is not counted twice: what is heard is looked at before the time.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.records import Member

OLDEST_WAITS = 2.0
"""More seconds for the oldest: all others have said by then that they are deaf."""


class Others(NamedTuple):
    """The other nodes, as their rows say it."""

    names: tuple[str, ...] = ()
    "Of those that are up, hold a lock, and say that they hear."
    older: bool = False
    "One of these is older than this node."


def others_of(members: Iterable[Member], me: Incarnation) -> Others:
    """Read the rows. A node without a row of its own counts as the youngest."""
    rows = {each.incarnation: each for each in members}
    mine = rows.pop(me, None)
    hear = [each for each in rows.values() if each.locks and not each.deaf and each.state == "up"]
    older = mine is None or any(each.age < mine.age for each in hear)
    return Others(tuple(each.incarnation for each in hear), older)


class Company:
    """Counts the time in which this node was without answer. Holds no clock."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._since: float | None = None
        "Others were there, and none was heard, at each look since then."

    def heard(self) -> None:
        """Take note that another node was heard a moment ago."""
        self._since = None

    def is_alone(self, now: float, others: Others) -> bool:
        """Tell whether this node is alone. To be asked only when no other was heard lately."""
        if not others.names:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        return now - self._since > self._patience + (0.0 if others.older else OLDEST_WAITS)
