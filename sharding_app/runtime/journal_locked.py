"""Commits of shards whose rows are locked: by a forgotten transaction, an operator's session, a slow migration.

Contract: they wait in their order beside all others, and what comes later for those shards waits behind them. No append
waits for such a row again: it is asked beside the appends whether it is free, and then its commits come first. They stay
here until the writer takes them, which it does with nothing else in its hands: a batch that it is still writing in parts may
hold later commits of theirs, and these still have to find them here.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Generic, Protocol, TypeVar

from sharding_app.core.ids import ShardId
from sharding_app.core.shard import Slot
from sharding_app.ports.journal import JournalUnavailable

logger = logging.getLogger("sharding.journal")

LOOK_SECONDS = 0.1
LOOK_MAX_SECONDS = 0.5

Key = tuple[int, ShardId]


class OfShard(Protocol):
    slot: Slot
    generation: int

    @property
    def key(self) -> Key: ...


T = TypeVar("T", bound=OfShard)


class Journal(Protocol):
    async def locked(self, shards: Collection[Key]) -> Mapping[Key, str]: ...


class LockedShards(Generic[T]):
    def __init__(self, journal: Journal, wake: Callable[[], None]) -> None:
        """`wake`: some shards are free again, and their commits are to be taken."""
        self._journal = journal
        self._wake = wake
        self._commits: dict[Key, list[T]] = {}
        self._free: dict[Key, None] = {}
        "Those of the shards that are not locked any more."
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(commits) for commits in self._commits.values())

    @property
    def shards(self) -> int:
        """How many are locked."""
        return len(self._commits)

    @property
    def due(self) -> bool:
        """Whether some commits are to be taken."""
        return bool(self._free)

    def take(self) -> list[T]:
        """Return the commits whose shards are free again, in their order."""
        free, self._free = self._free, {}
        return [commit for key in free for commit in self._commits.pop(key)]

    def holds(self, commit: T) -> bool:
        """Whether it would have to wait behind others."""
        return commit.key in self._commits

    def keep(self, commits: list[T], holders: Mapping[Key, str]) -> None:
        """Let commits of locked shards wait; `holders` says of each shard who has locked it."""
        for commit in commits:
            key = commit.key
            if key not in self._commits:
                shard = commit.slot.shard
                logger.warning(
                    "shard %s/%d is locked in sharding_shard by %s: its commits wait beside the others", shard.type,
                    shard.number, holders.get(key) or "a transaction that is not shown",
                    extra={"action": "shard_locked", "entity_type": shard.type, "shard": shard.number},
                )  # fmt: skip
            self._commits.setdefault(key, []).append(commit)
        self._some.set()

    def behind(self, batch: list[T]) -> list[T]:
        """Put what follows waiting commits behind them. Returns the rest."""
        rest = []
        for commit in batch:
            waiting = self._commits.get(commit.key)
            if waiting is None:
                rest.append(commit)
            else:
                waiting.append(commit)
        return rest

    async def run(self) -> None:
        """Ask, while there are some, which of the shards are free again."""
        while True:
            await self._some.wait()
            self._some.clear()
            pause = LOOK_SECONDS
            while self._commits.keys() - self._free.keys():
                await asyncio.sleep(pause)
                pause = min(2 * pause, LOOK_MAX_SECONDS)
                await self._look()

    async def _look(self) -> None:
        looked_at = [key for key in self._commits if key not in self._free]
        try:
            locked = await self._journal.locked(looked_at)
        except JournalUnavailable:
            locked = dict.fromkeys(looked_at, "")
        for key in looked_at:
            stale = any(each.generation != each.slot.generation for each in self._commits[key])
            if stale or key not in locked:
                self._free[key] = None
        if self._free:
            self._wake()
