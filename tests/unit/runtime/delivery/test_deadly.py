"""A durable message whose handler ends its process does not take one node after the other."""

import asyncio
from dataclasses import replace
from typing import ClassVar

import pytest

from sharding_app import Entity, EventSourced, ShardingSettings, command
from sharding_app.protocol.delivery.deliveries import BackOff
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.delivery.test_messages import CONFIG, SETTINGS
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio


class Careless(EventSourced, name="deadly.Careless"):
    settings = ShardingSettings(role="senders", number_of_shards=1)

    @command
    def send_it(self, in_memory: bool) -> None:
        self.send(Spark.ref("b").explode if in_memory else Bomb.ref("b").explode)


class Bomb(EventSourced, name="deadly.Bomb"):
    settings = ShardingSettings(role="targets", number_of_shards=1)
    begun: ClassVar[list[str]] = []

    @command
    async def explode(self) -> None:
        self.begun.append("tick")
        await asyncio.Event().wait()


class Spark(Entity, name="deadly.Spark"):
    settings = ShardingSettings(role="targets", number_of_shards=1)

    @command
    async def explode(self) -> None:
        Bomb.begun.append("tick")
        await asyncio.Event().wait()


@pytest.mark.parametrize("in_memory", [False, True])
async def test_two_nodes_that_die_of_a_message_count_as_a_failure_of_it(
    monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    monkeypatch.setattr(Bomb, "begun", [])
    twice = BackOff(failures=2, first_seconds=0.05, again_seconds=0.02)
    config = replace(CONFIG, deliveries=replace(SETTINGS, back_off=twice, answer_seconds=60.0))
    async with MemoryCluster([Careless, Bomb, Spark], nodes=0, config=config) as cluster:
        with cluster.in_use():
            await cluster.add_node(roles=("senders",))
            rows = cluster.server.messages.rows
            for deaths in range(4):
                name = (await cluster.add_node(roles=("targets",))).config.name
                if not deaths:
                    await Careless.ref("a").send_it(in_memory)
                await until(lambda deaths=deaths: len(Bomb.begun) > deaths)  # type: ignore[misc]
                await cluster.kill_node(name)
                if deaths == 1:
                    await until(lambda: [each.failures for each in rows.values()] == [1])
            await until(lambda: [each.parked for each in rows.values()] == [True])
            (stored,) = rows.values()
            assert stored.error.startswith(
                "home_died: the node of 'b' died" if in_memory else
                "poisonous: 'explode' of 'b' was in flight when two nodes died"
            )  # fmt: skip
            await cluster.add_node(roles=("targets",))
            assert not await Bomb.ref("b").exists()
            assert len(Bomb.begun) == 4
