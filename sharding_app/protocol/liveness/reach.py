"""Reach: whether this node can still do its work in Postgres (promise 13).

Its lifeline shows that it lives, and while it does its shards stay here. But they are worth nothing
here while the node cannot open its other connections. Without the journal's nothing is stored;
without the one to the rows a lapsed lease never comes back. The usual reason is a limit of
connections, just after a restart of the server.

The reverse holds too. If the rows answer and the server takes no session of the lifeline, the node
can handle nothing, and each connection that it keeps is one that another node lacks. Nodes that
start together with room for one of them would keep each other out forever.

::

    reaches ──a line cannot be opened──> cut off ──for longer than the limit──> step aside
       ^                                    │
       └──────── all are open ──────────────┤
                                            v
                              away: neither the rows nor the lifeline answer

While the server is *away* for the whole node, the lease decides, not this, and the node stays as
ready as it was: a server that restarts must not take all nodes out of service.
"""

from collections.abc import Collection
from typing import Literal

State = Literal["reaches", "away", "cut_off", "step_aside"]


class Reach:
    __slots__ = ("_limit", "_since", "state")

    def __init__(self, limit_seconds: float) -> None:
        self.state: State = "reaches"
        self._limit = limit_seconds
        self._since: float | None = None

    def look(self, missing: Collection[str], *, server_answers: bool, now: float) -> State:
        """Take in the state of the connections, and return the node's state."""
        if not missing:
            self._since = None
            self.state = "reaches"
        elif not server_answers:
            self._since = None
            self.state = "away"
        else:
            if self._since is None:
                self._since = now
            self.state = "step_aside" if now - self._since >= self._limit else "cut_off"
        return self.state
