"""An arbiter of leases that does what a test says, and types that need its leases."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

from sharding_app import ClusterSharding, ClusterSingleton, HashCodeMessageExtractor, ShardingSettings
from sharding_app.entities.sharding.regions import Region
from sharding_app.protocol.liveness.shard_lease import LeaseTerms
from sharding_app.runtime.base.config import NodeConfig, NodePorts
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counters import Counter, Stop

TERMS = LeaseTerms(ttl_seconds=3.0, renew_seconds=0.05, retry_seconds=0.05, answer_seconds=0.5)
CONFIG = NodeConfig(
    stop_timeout_seconds=0.2, restart_backoff_seconds=0.1, passivate_after_seconds=0, shard_leases=TERMS
)


class Leased(Counter):
    born: ClassVar[list[str]] = []
    stopped: ClassVar[list[str]] = []


class Ruler(Counter):
    born: ClassVar[list[str]] = []
    stopped: ClassVar[list[str]] = []


class Arbiter:
    """Grants nothing unless `grants` says so. `said` is what was asked of it, checks left out."""

    def __init__(self) -> None:
        self.grants: Callable[[str, str], bool] = lambda name, owner: False
        self.fails: Exception | None = None
        self.silent = False
        self.holders: dict[str, str] = {}
        self.said: list[tuple[str, str, str]] = []
        self.checks = 0

    def take_away(self) -> None:
        """All leases are gone, behind the backs of those who had them."""
        self.holders.clear()

    def asked(self, what: str) -> list[tuple[str, str]]:
        return [(name, owner) for did, name, owner in self.said if did == what]


class ArbiterLeases:
    def __init__(self, arbiter: Arbiter, owner: str) -> None:
        self._arbiter = arbiter
        self._owner = owner

    async def acquire(self, names: Sequence[str]) -> Collection[str]:
        await self._say("acquire", names)
        free = (each for each in names if self._arbiter.holders.get(each, self._owner) == self._owner)
        granted = [each for each in free if self._arbiter.grants(each, self._owner)]
        self._arbiter.holders |= dict.fromkeys(granted, self._owner)
        return granted

    async def renew(self, names: Sequence[str]) -> Collection[str]:
        await self._say("renew", names)
        return [each for each in names if self._arbiter.holders.get(each) == self._owner]

    async def release(self, names: Sequence[str]) -> None:
        await self._say("release", names)
        for each in names:
            if self._arbiter.holders.get(each) == self._owner:
                del self._arbiter.holders[each]

    async def close(self) -> None:
        """There is nothing to close."""

    async def _say(self, what: str, names: Sequence[str]) -> None:
        mine = [each for each in names if not each.endswith("-check")]
        self._arbiter.checks += len(names) - len(mine)
        self._arbiter.said += [(what, each, self._owner) for each in mine]
        if self._arbiter.fails is not None:
            raise self._arbiter.fails
        if self._arbiter.silent:
            await asyncio.Event().wait()


class LeasedCluster(MemoryCluster):
    """Its leases come from the arbiter."""

    arbiter: Arbiter

    def _node_ports(self, incarnation: str) -> NodePorts:
        ports = super()._node_ports(incarnation)
        ports.leases = lambda path: ArbiterLeases(self.arbiter, incarnation)
        return ports


leased: Region = ClusterSharding.start(
    "protocol.Leased",
    entity=Leased,
    settings=ShardingSettings(use_lease="postgres"),
    extractor=HashCodeMessageExtractor(1),
)
ruler = ClusterSingleton.start(
    "protocol.ruler",
    entity=Ruler,
    termination_message=Stop(),
    settings=ShardingSettings(use_lease="postgres"),
)
