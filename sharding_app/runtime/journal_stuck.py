"""Commits that the server takes neither with others nor alone, though it does not say that their rows are to blame.

Contract: they wait in the order of their entity, and what comes later for that entity waits behind them. One entity at a
time is tried again; when it goes through, the next one follows at once.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from sharding_app.core.shard import Slot


class OfSlot(Protocol):
    slot: Slot
    generation: int


T = TypeVar("T", bound=OfSlot)


class Stuck(Generic[T]):
    def __init__(self, seconds: float, wake: Callable[[], None]) -> None:
        """`seconds` between two attempts; `wake` is called when the next one is due."""
        self.due = False
        self._seconds = seconds
        self._wake = wake
        self._commits: dict[Slot, list[T]] = {}
        "By entity, the one that has waited longest since its last attempt first."
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(len(commits) for commits in self._commits.values())

    def holds(self, slot: Slot) -> bool:
        return slot in self._commits

    def keep(self, commits: list[T], seconds: float = 0.0) -> None:
        """Let commits of one entity wait; `seconds`: so long at least until the next attempt."""
        self._commits[commits[0].slot] = commits
        self._wait(max(seconds, self._seconds))

    def behind(self, batch: list[T]) -> list[T]:
        """Put what follows waiting commits behind them. Returns the rest."""
        rest = []
        for commit in batch:
            waiting = self._commits.get(commit.slot)
            if waiting is None:
                rest.append(commit)
            else:
                waiting.append(commit)
        return rest

    def stale(self) -> list[T]:
        """Take out those whose object was thrown away meanwhile."""
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

    def take(self) -> list[T]:
        """What is to be tried now."""
        self.due = False
        return self._commits.pop(next(iter(self._commits))) if self._commits else []

    def go_on(self) -> None:
        """The attempt is over: unless it has failed, the next one may follow."""
        if self._commits and self._timer is None:
            self.due = True

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._is_due)

    def _is_due(self) -> None:
        self._timer = None
        self.due = True
        self._wake()
