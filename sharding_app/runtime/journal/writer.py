"""Group commit: one append takes all commits since the last one, without an artificial delay.

On a node with several connections for appends a further append begins beside the others when that
pays (`runtime.journal.backlog`), with commits of other shards. Each connection has an appender of
its own (`runtime.journal.appender`), so that an append whose outcome is in doubt, or that waits for
a lock, holds up its own shards only.
"""

import asyncio
from collections.abc import Callable, Sequence

from sharding_app.ports.journal import EventRow, Journal
from sharding_app.runtime.journal.appender import Appender, Figures
from sharding_app.runtime.journal.backlog import Backlog
from sharding_app.runtime.journal.commits import Commit, OnCommit, tell_committed


class JournalWriter:
    def __init__(self, journal: Journal, may_write: Callable[[], bool]) -> None:
        self.figures = Figures()
        self.on_commit: OnCommit = []
        """Called with the rows of each commit once it is acknowledged: those of an entity in the
        order of their numbers. Empty without followers.
        """
        self._backlog = Backlog(journal, may_write)
        self._appenders = [
            Appender(journal, number, self._backlog, self.figures, self.on_commit)
            for number in range(journal.connections)
        ]
        self.put: Callable[[Commit], None] = self._backlog.put

    def resume(self) -> None:
        """Go on with the commits that wait: the lease is valid again."""
        self._backlog.ended()
        self._backlog.look()

    def committed(self, rows: Sequence[EventRow]) -> None:
        """Take in rows that were committed beside the writer, in a transaction of the user's."""
        tell_committed(self.on_commit, rows)

    @property
    def waiting(self) -> int:
        return self._backlog.waiting

    @property
    def under_way(self) -> int:
        """Number of appends under way."""
        return self._backlog.under_way

    @property
    def overlapping(self) -> int:
        """Number of appends that began while another one was under way."""
        return self._backlog.overlapping

    @property
    def stands_for(self) -> float:
        """Seconds for which commits have waited, and none has ended. 0: none waits."""
        backlog = self._backlog
        if not (backlog.under_way or backlog.waiting):
            return 0.0
        return asyncio.get_running_loop().time() - backlog.ended_at

    @property
    def locked_shards(self) -> int:
        return self._backlog.locked.shards

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for appender in self._appenders:
                group.create_task(appender.run())
            group.create_task(self._backlog.locked.run())
