"""Commits that wait for an append, and when one begins.

Contract: an append takes the commits that have waited longest, up to `MAX_ROWS`; a large row counts
for several. From then until the outcome is known its shards are busy: no other append takes a
commit of them, so each shard's events are appended in the order of its commits. With one connection
nothing has to be marked.

An append of many rows costs little more than one of a few, and one that has begun may end soon. So
a further one waits until the others have lasted for a time, which is shorter where many rows wait.
"""

import asyncio
from collections.abc import Callable

from sharding_app.ports.journal import Journal
from sharding_app.runtime.journal.commits import Commit
from sharding_app.runtime.journal.locked import Key, LockedShards
from sharding_app.runtime.journal.stuck import Stuck

MAX_ROWS = 250
"""Rows of one append. In larger ones a row is hardly cheaper, and all commits would wait for the
last.

While one part is appended, the answers to the one before it are on their way, and so are the
commands that they lead to.
"""
FURTHER_ROWS = MAX_ROWS
SLOW_SECONDS = 0.005
"""When all appends under way have lasted for longer, a further one begins with this number of rows.
Where commits are fast they end before, and a further one would only take processor time.
"""
LATE_SECONDS = 0.02
"""When they have lasted for longer than this, a further one begins with any rows."""
RETRY_MAX_SECONDS = 0.5


class Backlog:
    def __init__(self, journal: Journal, may_write: Callable[[], bool]) -> None:
        self.wakes = tuple(asyncio.Event() for _ in range(journal.connections))
        "By connection: set when its appender is to look for work."
        self.stuck: Stuck[Commit] = Stuck(RETRY_MAX_SECONDS, MAX_ROWS, self.look)
        self.locked: LockedShards[Commit] = LockedShards(journal, self.look)
        self.overlapping = 0
        "Appends that began while another one was under way."
        self._may_write = may_write
        self._several = journal.connections > 1
        self._waiting: list[Commit] = []
        self._rows = 0
        "Rows of these."
        self._ready = 0
        "The most of these rows whose shards may not be busy."
        self._began: dict[int, float] = {}
        "By connection: when the append under way on it began."
        self._held: dict[int, set[Key]] = {}
        "The shards of each."
        self._busy: set[Key] = set()
        "All of these shards."
        self._tries_stuck = False
        self.ended_at = 0.0
        "By the loop's time: when a commit ended last, or the first that waits was put here."
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self.stuck) + len(self.locked)

    @property
    def under_way(self) -> int:
        """Number of appends under way."""
        return len(self._began)

    def put(self, commit: Commit) -> None:
        if not (self._began or self.waiting):
            self.ended()
        self._waiting.append(commit)
        rows = commit.weight
        self._rows += rows
        if not self._busy or commit.key not in self._busy:
            self._ready += rows
        self.look()

    def ended(self) -> None:
        self.ended_at = asyncio.get_running_loop().time()

    def look(self) -> None:
        """Wake an idle appender if something waits for it, now or when the time has come."""
        if len(self._began) == len(self.wakes):
            return
        stuck = self.stuck.due and not self._tries_stuck
        if self.stuck.outdated:  # nothing is written of these
            self._wake_one()
            return
        if self._timer is not None and self._ready < FURTHER_ROWS:
            return  # this is looked at then
        if not (self._ready or stuck or self.locked.is_due(self._busy)):
            return
        if self._pays(self._ready):
            self._wake_one()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._again_at(), self._look_again)

    def _wake_one(self) -> None:
        next(wake for number, wake in enumerate(self.wakes) if number not in self._began).set()

    def take(self, connection: int) -> list[Commit]:
        """Return the commits to append now on that connection, until `release`."""
        if not self._may_write():
            return []
        batch = self._taken()
        if batch:
            self._hold(connection, batch)
        if self._several:
            self.look()
        return batch

    @property
    def may_try_stuck(self) -> bool:
        """Whether stuck entities may be tried now."""
        return self.stuck.due and not self._tries_stuck and self._may_write() and self._pays(0)

    def take_stuck(self, connection: int) -> list[Commit]:
        """Return commits of stuck entities to try now on that connection, until `release` and
        `tried`.
        """
        batch = self.stuck.take(self._busy)
        if batch:
            self._tries_stuck = True
            self._hold(connection, batch)
        return batch

    def tried(self) -> None:
        """End an attempt at stuck entities."""
        self._tries_stuck = False
        self.stuck.go_on()

    def release(self, connection: int) -> None:
        """End an append: the outcome of its commits is known, or they wait beside the others."""
        del self._began[connection]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._several:
            self._busy -= self._held.pop(connection)
            self._ready = self._rows
            self.stuck.freed()

    def _hold(self, connection: int, batch: list[Commit]) -> None:
        if self._began:
            self.overlapping += 1
        self._began[connection] = asyncio.get_running_loop().time()
        if self._several:
            held = self._held[connection] = {each.key for each in batch}
            self._busy |= held

    def _taken(self) -> list[Commit]:
        freed = self.locked.take(self._busy)
        if freed:
            self._waiting[:0] = freed
            rows = sum(each.weight for each in freed)
            self._rows += rows
            self._ready += rows
        if not (self._ready and self._pays(self._ready)):
            return []
        return self._take_further() if self._began else self._take_first()

    def _take_first(self) -> list[Commit]:
        rows = 0
        for number, commit in enumerate(self._waiting):
            weight = commit.weight
            rows += weight
            if rows > MAX_ROWS and number:
                rows -= weight
                batch, self._waiting = self._waiting[:number], self._waiting[number:]
                break
        else:
            batch, self._waiting = self._waiting, []
        self._rows -= rows
        self._ready = self._rows
        return batch

    def _take_further(self) -> list[Commit]:
        """Take commits whose shards are not busy, if they are enough."""
        batch: list[Commit] = []
        left: list[Commit] = []
        rows = 0
        ready = 0
        for number, commit in enumerate(self._waiting):
            if commit.key in self._busy:
                left.append(commit)
                continue
            ready = rows + commit.weight
            if ready > MAX_ROWS and batch:
                left += self._waiting[number:]
                break
            batch.append(commit)
            rows = ready
        if not self._pays(ready):
            self._ready = ready
            return []
        self._waiting = left
        self._rows -= rows
        self._ready = max(self._ready - rows, 0) if ready > rows else 0
        return batch

    def _pays(self, rows: int) -> bool:
        """Whether an append of that number of rows may begin beside those under way."""
        return not self._began or self._lasts() >= (SLOW_SECONDS if rows >= FURTHER_ROWS else LATE_SECONDS)

    def _lasts(self) -> float:
        """Return for how long the youngest append has been under way."""
        return asyncio.get_running_loop().time() - max(self._began.values())

    def _again_at(self) -> float:
        """Return when a further append may begin."""
        began = max(self._began.values())
        return began + (SLOW_SECONDS if self._lasts() < SLOW_SECONDS else LATE_SECONDS)

    def _look_again(self) -> None:
        self._timer = None
        self.look()
