"""A direct Postgres session that shows the process is alive: the lifeline holds two."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from sharding_app.core.ids import Incarnation, Term
from sharding_app.core.records import Backend, Server


class SessionLost(Exception):
    """The session is gone or did not answer in time. What it held is, or soon will be, free."""


class SessionRefused(SessionLost):
    """The server is there, and takes no session of ours: it has no room, or we have no right. Only `open` raises it."""


class Pulse(msgspec.Struct, frozen=True):
    """What one ping brought back."""

    server: Server
    coordinator_locked: bool
    "Whether anybody holds the coordinator's lock now."


class LifelineSession(Protocol):
    """Every method raises SessionLost, and `open` SessionRefused too; after that only `open` may be called."""

    older: int
    "How many older live candidates the last `elect` has found, to whom the lock is left."

    async def open(self) -> Backend:
        """Connect, with the timeouts that end a frozen or cut-off session (`idle_session_timeout` and the rest)."""
        ...

    async def lock(self, key: int) -> bool:
        """Try to take a session advisory lock; never waits inside the server."""
        ...

    async def unlock(self, key: int) -> None: ...

    async def ping(self) -> Pulse:
        """Show that this session is there. Reads no table, and nothing that grows with the cluster."""
        ...

    async def elect(self, incarnation: Incarnation) -> Term | None:
        """Become coordinator on this session: take the coordinator's lock unless an older live candidate is there
        ('up', not deaf, both locks held), then raise the term. None: not elected. Repeated calls by the holder
        return the same term."""
        ...

    async def resign(self) -> None:
        """Give the coordinator's lock back."""
        ...

    def watch(self, heard: Callable[[], None]) -> Callable[[], None]:
        """While nothing is asked: call `heard` when the server says something, above all that the session has ended.
        It may be called more than once. Returns what ends the watch; before that nothing else may be called."""
        ...

    async def close(self) -> None: ...
