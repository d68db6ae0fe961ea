"""Commits of shards whose rows are locked, by a forgotten transaction or a slow migration say."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Generic, Protocol, TypeVar

from sharding_app.ports.journal import JournalUnavailable
from sharding_app.protocol.ids import ShardId
from sharding_app.runtime.journal.commits import Resident

logger = logging.getLogger("sharding.journal")

LOOK_SECONDS = 0.1
LOOK_MAX_SECONDS = 0.5

Key = tuple[int, ShardId]


class OfShard(Protocol):
    slot: Resident
    generation: int

    @property
    def key(self) -> Key: ...


T = TypeVar("T", bound=OfShard)


class Journal(Protocol):
    async def locked(self, shards: Collection[Key]) -> Mapping[Key, str]: ...


class LockedShards(Generic[T]):
    def __init__(self, journal: Journal, wake: Callable[[], None]) -> None:
        """`wake` is called when shards are free again and their commits can be taken."""
        self._journal = journal
        self._wake = wake
        self._commits: dict[Key, list[T]] = {}
        self._free: dict[Key, None] = {}
        "Shards that are not locked any more."
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(commits) for commits in self._commits.values())

    @property
    def shards(self) -> int:
        """Number of locked shards."""
        return len(self._commits)

    def is_due(self, busy: Collection[Key]) -> bool:
        """Whether some commits can be taken, of shards that are not busy."""
        return any(key not in busy for key in self._free)

    def take(self, busy: Collection[Key]) -> list[T]:
        """Return the commits whose shards are free again, in their order.

        Those of a busy shard stay: the append that is under way may hold later ones, which have to
        wait behind them.
        """
        free = [key for key in self._free if key not in busy]
        for key in free:
            del self._free[key]
        return [commit for key in free for commit in self._commits.pop(key)]

    def holds(self, commit: T) -> bool:
        """Whether a commit has to wait behind others."""
        return commit.key in self._commits

    def keep(self, commits: list[T], holders: Mapping[Key, str]) -> None:
        """Let commits of locked shards wait.

        `holders` names the session that has locked each shard.
        """
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
        """Put commits of locked shards behind those that wait. Return the rest."""
        rest = []
        for commit in batch:
            waiting = self._commits.get(commit.key)
            if waiting is None:
                rest.append(commit)
            else:
                waiting.append(commit)
        return rest

    async def run(self) -> None:
        """While shards are locked, ask which of them are free again."""
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
