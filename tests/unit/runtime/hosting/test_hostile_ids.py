"""An id that no caller can make, in a frame that a stranger has forged: it is refused at the door,
and ends nothing.
"""

from typing import Any

import pytest

from sharding_app.entities.registry import registry
from sharding_app.errors import ShardingError
from sharding_app.protocol.builtin_commands import START
from sharding_app.protocol.call import Call
from sharding_app.protocol.messages import Deliver
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import CONFIG, until
from tests.unit.runtime.one_of_each import Profile

pytestmark = pytest.mark.asyncio

HOSTILE = ["", "a\0b", "x" * 513, "é" * 257, "\ud800"]
NAMES = ["protocol.Remembered", "entities.Profile", "protocol.Counter"]


@pytest.mark.parametrize("entity", HOSTILE, ids=["empty", "NUL", "long", "long in bytes", "surrogate"])
@pytest.mark.parametrize("name", NAMES)
async def test_it_is_refused_and_nothing_is_loaded_for_it(
    name: str, entity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader and the list of remembered entities are shared: what Postgres does not take would
    stop all of them.
    """
    async with MemoryCluster([registry.get(each) for each in NAMES], config=CONFIG) as cluster:
        with cluster.in_use():
            await cluster.client.region_client.ask(Call(name, "fine", START, b""))
            node = cluster.nodes["node1"]
            host = node.hosts[name]
            number, shard = next(iter(host.shards.items()))
            said: list[ShardingError] = []

            def hear(source: str, message: Deliver, error: ShardingError) -> None:
                said.append(error)

            wanted: list[Any] = []
            monkeypatch.setattr(host.execution.replies, "fail", hear)
            monkeypatch.setattr(host.loader, "want", wanted.append)
            busy = shard.busy
            host.receive("p-x", [Deliver(name, number, shard.epoch, entity, 1, START, b"")])
            assert [each.kind for each in said] == ["bad_entity_id"]
            assert entity not in shard.slots
            assert shard.busy == busy
            assert not wanted
            assert await host.erasing.erase(number, entity, "an operator") == "away"
            assert not host.backlog.of("p-x")
            assert not node.ended.done()


async def test_others_go_on() -> None:
    async with MemoryCluster([Profile], config=CONFIG) as cluster:
        with cluster.in_use():
            await Profile.ref("fine").visit()
            host = cluster.nodes["node1"].hosts["entities.Profile"]
            number, shard = next(iter(host.shards.items()))
            host.receive("p-x", [Deliver("entities.Profile", number, shard.epoch, "a\0b", 1, START, b"")] * 3)
            cluster.forget(Profile)
            assert await Profile.ref("fine").visit() == 2


async def test_a_remembered_id_that_its_extractor_does_not_know_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its row is read by one home after the other: each would end by it."""
    name = "protocol.Remembered"
    async with MemoryCluster([registry.get(name)], config=CONFIG) as cluster:
        with cluster.in_use():
            for entity in ("fine", "bad", "other"):
                await cluster.client.region_client.ask(Call(name, entity, START, b""))
            node = cluster.nodes["node1"]
            host = node.hosts[name]
            remembering = host.remembering
            assert remembering is not None
            shard_of = remembering._shard_of

            def fails(entity: str) -> int:
                if entity == "bad":
                    raise LookupError("no such customer")
                return shard_of(entity)

            monkeypatch.setattr(remembering, "_shard_of", fails)
            for number, shard in list(host.shards.items()):
                host.shard_life.drop(number)
                host.shard_life._stopped_at.clear()
                host.shard_life.start(number, shard.epoch)
            await until(lambda: {"fine", "other"} <= {each for s in host.shards.values() for each in s.slots})
            assert not any("bad" in each.slots for each in host.shards.values())
            assert remembering.counters["unplaced"] == 1
            assert not node.ended.done()
    assert "its extractor raised LookupError" in caplog.text
