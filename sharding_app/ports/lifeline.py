"""A direct Postgres session that shows that the process is alive: the lifeline holds two."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from sharding_app.protocol.ids import Incarnation, Term
from sharding_app.protocol.records import Backend, Server


class SessionLost(Exception):
    """The session is gone or did not answer in time. Its locks are free, or soon will be."""


class SessionRefused(SessionLost):
    """The server is there and refuses our session: it has no room, or we have no right. Only `open`
    raises it.
    """


class Pulse(msgspec.Struct, frozen=True):
    """The answer to one ping."""

    server: Server
    coordinator_locked: bool
    "Whether any session holds the coordinator's lock now."


class LifelineSession(Protocol):
    """Every method raises SessionLost, and `open` SessionRefused too; after that only `open` may be
    called.
    """

    older: int
    "The number of older live candidates that the last `elect` found, to whom the lock is left."

    async def open(self) -> Backend:
        """Connect, with the timeouts that end a frozen or cut-off session (`idle_session_timeout`
        and the rest).
        """
        ...

    async def lock(self, key: int) -> bool:
        """Try to take a session advisory lock; never waits inside the server."""
        ...

    async def unlock(self, key: int) -> None: ...

    async def ping(self) -> Pulse:
        """Show that this session is there. Reads no table, and nothing that grows with the
        cluster.
        """
        ...

    async def elect(self, incarnation: Incarnation) -> Term | None:
        """Become coordinator on this session, and return the new term. None: not elected.

        Takes the coordinator's lock unless an older live candidate is there ('up', not deaf, both
        locks held), then raises the term. Repeated calls by the holder return the same term.
        """
        ...

    async def resign(self) -> None:
        """Give the coordinator's lock back."""
        ...

    def watch(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Call `heard` when the server sends something unasked, above all that the session has
        ended.

        It may be called more than once. Returns a function that ends the watch; before that no
        other method may be called.
        """
        ...

    async def close(self) -> None: ...
