"""Commits of shards whose rows are locked: by a forgotten transaction, an operator's session, a slow migration.

Contract: they wait in their order beside all others, and what comes later for those shards waits behind them. No append
waits for such a row again: it is asked beside the appends whether it is free, and then its commits come first.
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
    def __init__(self, journal: Journal, freed: Callable[[list[T]], None]) -> None:
        """`freed`: takes the commits whose shards are free again, in their order."""
        self._journal = journal
        self._freed = freed
        self._commits: dict[Key, list[T]] = {}
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(commits) for commits in self._commits.values())

    @property
    def shards(self) -> int:
        """How many are locked."""
        return len(self._commits)

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
            while self._commits:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LOOK_MAX_SECONDS)
                await self._look()

    async def _look(self) -> None:
        stale = [
            key
            for key, commits in self._commits.items()
            if any(each.generation != each.slot.generation for each in commits)
        ]
        try:
            locked = await self._journal.locked(list(self._commits))
        except JournalUnavailable:
            locked = dict.fromkeys(self._commits, "")
        free = [key for key in self._commits if key not in locked or key in stale]
        if free:
            self._freed([commit for key in free for commit in self._commits.pop(key)])
