"""Orders of coordinators: one of a former coordinator that comes late is not carried out."""

import pytest

from sharding_app.protocol.coordinator.terms import next_term
from sharding_app.protocol.messages import AnyMessage, HandOff, HostShard, ShardStarted
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until
from tests.unit.runtime.counters import Counter, Get, counters

pytestmark = pytest.mark.asyncio


async def test_a_hand_off_by_a_former_coordinator_stops_no_shard_of_a_new_era(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server went back to before that hand-off: its row names this home at the same epoch.

    The new coordinator has asked for the shard, and heard that it runs. Nothing more of it has come
    yet, a RegisterAck for example.
    """
    assert await counters.ask(Get("1")) == 0
    node = cluster.nodes[cluster.home_of(Counter, "1")]
    host = node.hosts["protocol.Counter"]
    (shard,) = host.shards.values()
    former = node.locator.term
    term = next_term(former, same_lineage=False, now_seconds=1_800_000_000)
    told: list[AnyMessage] = []

    def send(target: str, message: AnyMessage) -> bool:
        told.append(message)
        return True

    monkeypatch.setattr(node, "try_send", send)
    monkeypatch.setattr(node, "coordinator", None)
    place = host.type.name, [shard.number], [shard.epoch]
    node.control("n-later", HostShard(term, *place))
    await until(lambda: ShardStarted(term, *place) in told)
    node.control("n-former", HandOff(former, *place))
    assert host.shards == {shard.number: shard}
    assert not shard.stopping
    node.control("n-later", HandOff(term, *place))
    await until(lambda: not host.shards)
