"""An entity in memory that is erased: no timer of it fires any more."""

import asyncio
from typing import Any, ClassVar

import pytest

from sharding_app import Entity, command
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.ids import shard_of
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.delivery.test_messages import CONFIG
from tests.unit.runtime.waiting import travel

pytestmark = pytest.mark.asyncio


class Session(Entity, name="erased.Session"):
    rung: ClassVar[list[str]] = []

    @command
    def touch(self, seconds: float) -> None:
        self.schedule(self.ref.expire, key="k", after=seconds)

    @command
    def expire(self) -> None:
        self.rung.append(self.entity_id)


async def test_a_page_that_is_read_during_an_erasure_brings_no_timer_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MemoryCluster([Session], nodes=1, config=CONFIG) as cluster:
        with cluster.in_use():
            await Session.ref("a").touch(9.0)
            (node,) = cluster.nodes.values()
            host = node.hosts["erased.Session"]
            [shard] = [number for number, each in host.shards.items() if "a" in each.slots]
            others = (str(number) for number in range(1000))
            other = next(each for each in others if shard_of(each, CONFIG.number_of_shards) == shard)
            erase = host.journal.erase

            async def meanwhile(*args: Any, **given: Any) -> Any:
                await Session.ref(other).touch(1000.0)  # a page is read for it
                await asyncio.sleep(0.05)
                return await erase(*args, **given)

            monkeypatch.setattr(host.journal, "erase", meanwhile)
            done = await host.erasing.erase(shard, "a", "an operator")
            assert isinstance(done, Erasure)
            assert done.messages == 1
            await travel(20)
            assert Session.rung == []
