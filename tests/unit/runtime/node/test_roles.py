"""Who may host a type: nodes of its role, and nodes that agree with the cluster about what it
is.
"""

import asyncio
import dataclasses

import msgspec
import pytest

from sharding_app import Entity, InvalidCall, ShardingSettings, query
from sharding_app.protocol.call import Call
from sharding_app.protocol.records import TypeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until

pytestmark = pytest.mark.asyncio


class Backend(Entity, name="roles.Backend"):
    settings = ShardingSettings(role="backend", number_of_shards=8)

    @query
    def hello(self) -> str:
        return self.entity_id


async def test_b1_10_a_type_of_a_role_lives_only_where_the_role_is() -> None:
    """B2.11 too: nodes without the role are proxies, and ask as others do."""
    async with MemoryCluster([Backend], nodes=0) as cluster:
        front = await cluster.add_node("front", roles=())
        for name in ("back1", "back2"):
            node = await cluster.add_node(name, roles=("backend",))
            deadline = asyncio.get_running_loop().time() + 5
            while not node.registered:
                assert asyncio.get_running_loop().time() < deadline, "no coordinator has heard of it in time"
                await asyncio.sleep(0.01)
        with cluster.in_use():
            ids = [str(number) for number in range(40)]
            assert [await Backend.ref(each).hello() for each in ids] == ids

        def homes() -> set[str]:
            return {cluster.home_of(Backend, each) for each in ids}

        assert homes() <= {"back1", "back2", ""}, "it is in none while it moves"
        # A node that was out for a moment, on a busy machine, gets its share a little later.
        await until(lambda: homes() == {"back1", "back2"}, 20)
        assert front.hosts == {}
        assert await front.ask(Call("roles.Backend", "1", "hello", b"\x90")) is not None


async def test_b2_7_the_coordinators_node_need_not_host_anything() -> None:
    """Nodes of one role host and never coordinate, nodes without it coordinate and host nothing."""
    async with MemoryCluster([Backend], nodes=0) as cluster:
        plain = cluster.config
        oldest = await cluster.add_node("oldest", roles=())
        cluster.config = dataclasses.replace(plain, candidate=False)
        worker = await cluster.add_node("worker", roles=("backend",))
        await cluster.add_node("second", roles=("backend",))
        cluster.config = plain
        with cluster.in_use():
            assert await Backend.ref("1").hello() == "1"
            assert oldest.coordinator is not None
            assert oldest.hosts == {}
            await cluster.kill_node("oldest")
            younger = await cluster.add_node("younger", roles=())
            home = cluster.home_of(Backend, "1")
            await cluster.stop_node(home)
            assert await Backend.ref("1").hello() == "1"
            assert younger.coordinator is not None, "though the workers are older"
            assert worker.coordinator is None
        assert cluster.home_of(Backend, "1") == ({"worker", "second"} - {home}).pop()


@pytest.mark.parametrize(
    ("field", "theirs", "told"),
    [
        ("number_of_shards", 16, "number_of_shards is 8 here and 16 in the cluster"),
        ("extractor", "own", "extractor is 'hash:crc32-1' here and 'own' in the cluster"),
        ("hash_version", "murmur", "hash_version is 'crc32-1/"),
        ("role", "other", "role is 'backend' here and 'other' in the cluster"),
        ("store_mode", "ddata", "store_mode is 'postgres' here and 'ddata' in the cluster"),
    ],
)
async def test_f7_a_node_that_differs_is_refused_with_both_sides(
    field: str, theirs: object, told: str
) -> None:
    cluster = MemoryCluster([Backend], nodes=1)
    mine: TypeConfig = cluster.client.configs["roles.Backend"]
    cluster.server.cluster.register_types([msgspec.structs.replace(mine, **{field: theirs})])
    cluster.config = dataclasses.replace(cluster.config, roles=("backend",))
    async with cluster:
        node = await cluster.add_node("differs", roles=("backend",))
        assert node.hosts == {}
        assert told in node.why_refused("roles.Backend")
        with cluster.in_use(), pytest.raises(InvalidCall, match="is refused"):
            await Backend.ref("1").hello()
