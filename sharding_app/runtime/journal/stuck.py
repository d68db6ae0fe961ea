"""Commits that the server takes neither with others nor alone, without blaming their rows.

Contract: they wait in the order of their entity, and later commits of that entity wait behind them.
One entity alone is tried again. When it goes through, the next ones follow at once, twice as many
each time: after a full disk, say, hundreds of entities may wait. After a failed attempt it is one
entity alone again.

Commits whose object is dropped are not written any more. They do not rest like the others: their
shard stops, and begins elsewhere, when their outcome is told.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol, TypeVar

from sharding_app.ports.journal import EventRow
from sharding_app.protocol.ids import ShardId
from sharding_app.runtime.journal.commits import Resident


class OfSlot(Protocol):
    slot: Resident
    generation: int
    rows: Sequence[EventRow]

    @property
    def key(self) -> tuple[int, ShardId]: ...

    @property
    def weight(self) -> int: ...


T = TypeVar("T", bound=OfSlot)

MOST = 64
"""Most entities of one attempt."""


class Stuck(Generic[T]):
    def __init__(self, seconds: float, rows: int, wake: Callable[[], None]) -> None:
        """`seconds` between two attempts, which have at most `rows` of several entities.

        `wake` is called when the next one is due, and when some are outdated.
        """
        self.due = False
        self.others_go_through = False
        "Whether the server has taken commits of other entities since the last failed attempt."
        self.outdated = False
        "Whether objects of some commits have been dropped since: `stale` takes these commits out."
        self._seconds = seconds
        self._rows = rows
        self._wake = wake
        self._commits: dict[Resident, list[T]] = {}
        "By entity; the one that has waited longest since its last attempt comes first."
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._together = 1
        "Number of entities in the next attempt."
        self._failed = False
        "Whether the present attempt has failed."
        self._hindered = False
        "It was due while the shards of all these entities were busy."

    def __len__(self) -> int:
        return sum(len(commits) for commits in self._commits.values())

    def holds(self, slot: Resident) -> bool:
        return slot in self._commits

    def keep(self, commits: list[T], seconds: float = 0.0) -> None:
        """Let commits wait. The next attempt is made after `seconds` at the earliest."""
        for commit in commits:
            self._commits.setdefault(commit.slot, []).append(commit)
        self._failed = True
        self.others_go_through = False
        self._wait(max(seconds, self._seconds))

    def behind(self, batch: list[T]) -> list[T]:
        """Put commits of stuck entities behind those that wait. Return the rest."""
        rest = []
        for commit in batch:
            waiting = self._commits.get(commit.slot)
            if waiting is None:
                rest.append(commit)
            else:
                waiting.append(commit)
        return rest

    def stale(self) -> list[T]:
        """Take out the commits whose object has been dropped since."""
        self.outdated = False
        found: list[T] = []
        for slot, commits in list(self._commits.items()):
            current = [each for each in commits if each.generation == slot.generation]
            if len(current) < len(commits):
                found += [each for each in commits if each.generation != slot.generation]
                if current:
                    self._commits[slot] = current
                else:
                    del self._commits[slot]
        return found

    def take(self, busy: Collection[tuple[int, ShardId]]) -> list[T]:
        """Take out the commits to try now, of shards that are not busy: an append under way may
        hold later ones.
        """
        self.due = self._failed = False
        taken: list[T] = []
        rows = slots = 0
        for slot, commits in list(self._commits.items()):
            if slots == self._together:
                break
            if commits[0].key in busy:
                continue
            slots += 1
            rows += sum(commit.weight for commit in commits)
            if taken and rows > self._rows:
                break
            taken += self._commits.pop(slot)
        self._hindered = bool(self._commits) and not taken
        return taken

    def freed(self) -> None:
        """Some shards are not busy any more."""
        if self._hindered:
            self._hindered = False
            self.due = True

    def go_on(self) -> None:
        """End an attempt. Unless it has failed, the next one may follow."""
        self._together = 1 if self._failed else min(self._together * 2, MOST)
        if self._commits and self._timer is None:
            self.due = True

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._due_at = asyncio.get_running_loop().time() + seconds
            self._look_later()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(min(loop.time() + self._seconds, self._due_at), self._look)

    def _look(self) -> None:
        self._timer = None
        self.outdated = any(
            each.generation != slot.generation for slot, commits in self._commits.items() for each in commits
        )
        if asyncio.get_running_loop().time() >= self._due_at:
            self.due = True
        else:
            self._look_later()
        if self.due or self.outdated:
            self._wake()
