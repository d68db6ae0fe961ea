"""Shards and singletons that need a lease: not without it, not after it is lost."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from itertools import groupby

import pytest
import pytest_asyncio

from sharding_app import AskTimeout, DeclarationError, EntityEnvelope, ShardingSettings
from sharding_app.entities.registry import registry
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.records import ShardRow
from sharding_app.runtime.base.config import no_leases
from sharding_app.runtime.hosting.shard_leases import LeaseKeeper, ShardGate
from sharding_app.runtime.node.health import NodeHealth
from sharding_app.runtime.node.node import Node
from tests.support.slack import SLACK
from tests.unit.runtime.counter_cluster import until
from tests.unit.runtime.counters import Get, Increment, WhoAreYou
from tests.unit.runtime.hosting.arbiter import (
    CONFIG,
    TERMS,
    Arbiter,
    ArbiterLeases,
    Leased,
    LeasedCluster,
    Ruler,
    leased,
    ruler,
)

pytestmark = pytest.mark.asyncio

SHARD = "-shard-protocol.Leased-0"
SINGLETON = "-singleton-protocol.ruler"


def anybody(name: str, owner: str) -> bool:
    return True


@pytest.fixture
def arbiter() -> Arbiter:
    return Arbiter()


@pytest_asyncio.fixture
async def cluster(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, arbiter: Arbiter
) -> AsyncIterator[LeasedCluster]:
    """Two nodes that host what the test's module says."""
    for cls in (Leased, Ruler):
        monkeypatch.setattr(cls, "born", [])
        monkeypatch.setattr(cls, "stopped", [])
    names = request.param if hasattr(request, "param") else "protocol.Leased"
    made = LeasedCluster([registry.get(names)], nodes=2, config=CONFIG)
    made.arbiter = arbiter
    async with made:
        with made.in_use():
            yield made


only_singleton = pytest.mark.parametrize("cluster", ["singleton:protocol.ruler"], indirect=True)


def running(cluster: LeasedCluster, name: str = "protocol.Leased") -> list[str]:
    return [node for node, each in cluster.nodes.items() if each.hosts[name].shards]


async def ask() -> object:
    return await leased.ask(EntityEnvelope("1", Get("1")), timeout=10)


async def test_e1_a_shard_is_silent_until_its_lease_is_granted(
    cluster: LeasedCluster, arbiter: Arbiter
) -> None:
    with pytest.raises(AskTimeout):
        await leased.ask(Get("1"), timeout=0.3)
    waiting = asyncio.ensure_future(ask())
    await until(lambda: len(arbiter.asked("acquire")) > 3)
    assert not waiting.done()
    assert running(cluster) == []
    ((name, owner),) = set(arbiter.asked("acquire"))
    assert name == f"{cluster.server.cluster_id}{SHARD}"
    assert owner in [node.incarnation for node in cluster.nodes.values()]
    arbiter.grants = anybody
    assert await waiting == 0
    assert len(running(cluster)) == 1
    assert Leased.born == ["1"]


async def test_e1_a_request_that_fails_or_is_not_answered_is_made_again(
    cluster: LeasedCluster, arbiter: Arbiter, caplog: pytest.LogCaptureFixture
) -> None:
    arbiter.fails = OSError("no arbiter")
    waiting = asyncio.ensure_future(ask())
    await until(lambda: len(arbiter.asked("acquire")) > 2)
    assert not waiting.done()
    arbiter.fails, arbiter.silent = None, True
    asked = len(arbiter.asked("acquire"))
    await until(lambda: len(arbiter.asked("acquire")) > asked + 1)
    assert not waiting.done()
    arbiter.silent, arbiter.grants = False, anybody
    assert await waiting == 0
    assert any("no arbiter" in each.message for each in caplog.records)


async def test_e1_a_lease_that_is_lost_stops_the_shard_and_it_answers_again(
    cluster: LeasedCluster, arbiter: Arbiter
) -> None:
    arbiter.grants = anybody
    await leased.ask(EntityEnvelope("1", Increment()))
    assert await ask() == 1
    before = cluster.server.cluster.shards["protocol.Leased", 0].epoch
    arbiter.grants = lambda name, owner: False
    arbiter.take_away()
    await until(lambda: running(cluster) == [])
    waiting = [asyncio.ensure_future(ask()) for _ in range(5)]
    await until(lambda: cluster.server.cluster.shards["protocol.Leased", 0].epoch > before)
    assert not any(each.done() for each in waiting)
    arbiter.grants = anybody
    assert await asyncio.gather(*waiting) == [0] * 5, "another object: it kept its count in memory"
    assert Leased.born == ["1", "1"]
    assert Leased.stopped == [], "no stop message: it had to stop at once"


async def test_e1_one_that_is_asked_for_no_more_is_given_back(
    cluster: LeasedCluster, arbiter: Arbiter
) -> None:
    arbiter.grants = anybody
    await ask()
    (home,) = running(cluster)
    await cluster.stop_node(home)
    assert await ask() == 0
    ((first, owner), *_) = arbiter.asked("acquire")
    assert (first, owner) in arbiter.asked("release")
    assert arbiter.holders[first] != owner


async def test_a_shard_that_waits_for_its_lease_can_be_moved(
    cluster: LeasedCluster, arbiter: Arbiter
) -> None:
    waiting = asyncio.ensure_future(ask())
    await until(lambda: bool(arbiter.asked("acquire")))
    ((name, owner), *_) = arbiter.asked("acquire")
    arbiter.grants = lambda name, who: who != owner
    (home,) = [each for each, node in cluster.nodes.items() if node.incarnation == owner]
    await cluster.stop_node(home)
    assert await waiting == 0
    assert arbiter.holders == {name: next(iter(cluster.nodes.values())).incarnation}


each_kind = pytest.mark.parametrize("cluster", ["protocol.Leased", "singleton:protocol.ruler"], indirect=True)


async def waits(cluster: LeasedCluster, arbiter: Arbiter) -> tuple[Node, Node, str]:
    """Let the shard wait for its lease; return its home, the other node, and the lease's name."""
    if "protocol.Leased" in cluster.types:
        leased.tell(EntityEnvelope("1", Increment()))  # the singleton is placed without a message
    await until(lambda: bool(arbiter.asked("acquire")))
    ((name, owner), *_) = arbiter.asked("acquire")
    home, other = sorted(cluster.nodes.values(), key=lambda node: node.incarnation != owner)
    return home, other, name


def move_behind_its_back(cluster: LeasedCluster, home: Node) -> None:
    """Rewrite the shard's row, as a server does that goes on from an older state and from there
    elsewhere.
    """
    rows = cluster.server.cluster.shards
    ((key, row),) = rows.items()
    rows[key] = ShardRow(row.type, row.shard, row.epoch + 1, home.incarnation, "home")


@each_kind
async def test_a_lease_that_is_granted_when_the_shard_has_moved_on_is_given_back(
    cluster: LeasedCluster, arbiter: Arbiter
) -> None:
    home, other, name = await waits(cluster, arbiter)
    move_behind_its_back(cluster, other)
    arbiter.grants = lambda _, owner: owner == home.incarnation
    await until(lambda: (name, home.incarnation) in arbiter.asked("release"))
    assert arbiter.holders == {}


@each_kind
async def test_it_is_given_back_though_the_rows_cannot_be_read_when_it_is_granted(
    cluster: LeasedCluster, arbiter: Arbiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, other, name = await waits(cluster, arbiter)
    read, failures = home.ports.store.homes, iter(range(3))

    async def homes(type_name: str, shards: Sequence[int]) -> list[ShardRow]:
        if next(failures, None) is not None:
            raise StoreUnavailable("not now")
        return await read(type_name, shards)

    monkeypatch.setattr(home.ports.store, "homes", homes)
    move_behind_its_back(cluster, other)
    arbiter.grants = lambda _, owner: owner == home.incarnation
    await until(lambda: (name, home.incarnation) in arbiter.asked("release"))
    assert next(failures, None) is None
    assert arbiter.holders == {}


@each_kind
async def test_a_node_that_comes_back_waits_no_more_for_the_lease_of_a_shard_that_has_moved_on(
    cluster: LeasedCluster, arbiter: Arbiter
) -> None:
    home, other, name = await waits(cluster, arbiter)
    cluster.server.stop()
    move_behind_its_back(cluster, other)
    cluster.server.start()
    await until(lambda: (name, other.incarnation) in arbiter.asked("acquire"))
    assert home.may_handle(), "it is back: who coordinates has read the members since"
    arbiter.said.clear()
    await until(lambda: arbiter.asked("acquire").count((name, other.incarnation)) > 5)
    assert {owner for _, owner in arbiter.asked("acquire")} == {other.incarnation}


async def test_a_node_that_stops_all_waits_for_no_lease(cluster: LeasedCluster, arbiter: Arbiter) -> None:
    """Else it would be granted one that another node gives back, and leave late."""
    home, _, _ = await waits(cluster, arbiter)
    home.hosting.stop_all()
    await asyncio.wait_for(home.hosting.released(60), 10 * SLACK)


async def test_a_lost_lease_is_asked_for_anew_once_its_shard_has_stopped_though_it_is_to_start_before(
    arbiter: Arbiter,
) -> None:
    """A former epoch of the shard still stops here when rows name this node again."""
    arbiter.grants = anybody
    granted: list[tuple[int, int]] = []
    lost: list[tuple[int, int]] = []
    keeper = LeaseKeeper(ArbiterLeases(arbiter, "n1"), TERMS, asyncio.get_running_loop().time, "its-check")
    gate = ShardGate(keeper, str, lambda *shard: granted.append(shard), lambda *shard: lost.append(shard))
    running = asyncio.ensure_future(keeper.run())
    assert not gate.admits(0, 1)
    await until(lambda: granted == [(0, 1)])
    arbiter.take_away()
    await until(lambda: lost == [(0, 1)])
    assert not gate.admits(0, 2)
    assert arbiter.asked("release") == []
    gate.left(0, 1)
    await until(lambda: gate.admits(0, 2))
    assert granted == [(0, 1), (0, 2)]
    running.cancel()


async def test_a_lease_that_cannot_be_renewed_is_lost_when_its_time_is_over(
    cluster: LeasedCluster, arbiter: Arbiter
) -> None:
    arbiter.grants = anybody
    await ask()
    began = cluster.clock.now()
    arbiter.fails = OSError("no arbiter")
    await until(lambda: running(cluster) == [])
    assert cluster.clock.now() - began >= 2.5, "it is the holder's until nine tenths are over"
    arbiter.fails = None
    arbiter.take_away()  # for the arbiter its time is over too, a little later
    assert await ask() == 0


@pytest.mark.parametrize("command_id", [None, "again"], ids=["plain", "with an id"])
async def test_nothing_begins_when_its_time_is_over_though_no_timer_has_said_so(
    cluster: LeasedCluster, arbiter: Arbiter, monkeypatch: pytest.MonkeyPatch, command_id: str | None
) -> None:
    """As after a loop that stood still: it comes to the messages that wait before it comes to its
    timers.
    """
    arbiter.grants = anybody
    await leased.ask(EntityEnvelope("1", Increment()))
    ((home, keeper),) = [
        (name, each.hosting.keepers["postgres"])
        for name, each in cluster.nodes.items()
        if each.hosts["protocol.Leased"].shards
    ]
    arbiter.grants, arbiter.silent = (lambda *_: False), True
    asked = len(arbiter.asked("renew"))
    await until(lambda: len(arbiter.asked("renew")) > asked)
    now = cluster.clock.now
    monkeypatch.setattr(keeper, "_now", lambda: now() + 0.9 * TERMS.ttl_seconds)
    waiting = asyncio.ensure_future(
        leased.ask(EntityEnvelope("1", Get("1")), timeout=10, command_id=command_id)
    )
    await until(lambda: waiting.done() or running(cluster) == [])
    assert not waiting.done()
    assert cluster.nodes[home].hosts["protocol.Leased"].counters["leases_lost"] == 1
    arbiter.grants, arbiter.silent = anybody, False
    arbiter.take_away()
    assert await waiting == 0, "another object: it kept its count in memory"


@only_singleton
async def test_j6_a_singleton_waits_for_its_lease_on_the_oldest_and_after_a_crash_on_the_next(
    cluster: LeasedCluster, arbiter: Arbiter
) -> None:
    name = f"{cluster.server.cluster_id}{SINGLETON}"
    first, second = (node.incarnation for node in cluster.nodes.values())
    proxies = [asyncio.ensure_future(ruler.ask(WhoAreYou(), timeout=10)) for _ in range(4)]
    await until(lambda: len(arbiter.asked("acquire")) > 3)
    assert set(arbiter.asked("acquire")) == {(name, first)}
    assert not any(each.done() for each in proxies)
    arbiter.grants = anybody
    assert await asyncio.gather(*proxies) == ["protocol.ruler"] * 4
    arbiter.grants = lambda *_: False
    await cluster.kill_node("node1")
    waiting = asyncio.ensure_future(ruler.ask(WhoAreYou(), timeout=10, command_id="again"))
    await until(lambda: (name, second) in arbiter.asked("acquire"))
    assert not waiting.done()
    assert len(Ruler.born) == 1
    arbiter.take_away()
    arbiter.grants = anybody
    assert await waiting == "protocol.ruler"
    assert len(Ruler.born) == 2


@only_singleton
async def test_j12_a_singleton_stops_when_its_lease_is_lost_and_comes_back_with_it(
    cluster: LeasedCluster, arbiter: Arbiter
) -> None:
    arbiter.grants = anybody
    name = f"{cluster.server.cluster_id}{SINGLETON}"
    await until(lambda: running(cluster, "singleton:protocol.ruler") == ["node1"])
    arbiter.grants = lambda *_: False
    arbiter.take_away()
    await until(lambda: running(cluster, "singleton:protocol.ruler") == [])
    await until(lambda: bool(arbiter.asked("release")))
    arbiter.grants = anybody
    await until(lambda: len(Ruler.born) == 2)
    assert await ruler.ask(WhoAreYou()) == "protocol.ruler"
    did = [what for what, asked, _ in arbiter.said if asked == name and what != "renew"]
    assert [what for what, _ in groupby(did)] == ["acquire", "release", "acquire"]


@only_singleton
async def test_j12_it_is_released_when_the_oldest_leaves(cluster: LeasedCluster, arbiter: Arbiter) -> None:
    arbiter.grants = anybody
    first = cluster.nodes["node1"].incarnation
    assert await ruler.ask(WhoAreYou()) == "protocol.ruler"
    await cluster.stop_node("node1")
    assert await ruler.ask(WhoAreYou()) == "protocol.ruler"
    name = f"{cluster.server.cluster_id}{SINGLETON}"
    assert (name, first) in arbiter.asked("release")
    assert arbiter.holders == {name: cluster.nodes["node2"].incarnation}
    assert Ruler.stopped == ["protocol.ruler"]


async def test_e5_a_node_is_ready_once_its_leases_answer(cluster: LeasedCluster, arbiter: Arbiter) -> None:
    """That a lease is refused is an answer too; once there was one it is not asked again."""
    assert arbiter.checks > 0
    await until(lambda: all(node.hosting.leases_answer for node in cluster.nodes.values()))
    node = cluster.nodes["node1"]
    await until(lambda: node.registered)
    health = NodeHealth(lambda: node, lambda: 0.0)
    assert health.ask("ready").ok
    checks = arbiter.checks
    arbiter.fails = OSError("no arbiter")
    third = await cluster.add_node()
    await until(lambda: third.registered and arbiter.checks > checks + 1)
    assert not third.hosting.leases_answer
    assert health.ask("ready").ok
    late = NodeHealth(lambda: third, lambda: 0.0)
    assert late.ask("ready") == (False, "its leases do not answer yet")
    arbiter.fails = None
    await until(lambda: third.hosting.leases_answer)
    assert late.ask("ready").ok


async def test_a_node_without_such_types_has_no_keeper() -> None:
    made = LeasedCluster([registry.get("protocol.Counter")], nodes=1, config=CONFIG)
    made.arbiter = Arbiter()
    async with made:
        node = made.nodes["node1"]
        assert node.hosting.keepers == {}
        assert node.hosting.leases_answer
        assert made.arbiter.checks == 0
    with pytest.raises(LookupError, match="no leases here"):
        no_leases("postgres")


async def test_use_lease_is_a_text() -> None:
    with pytest.raises(DeclarationError, match="use_lease"):
        ShardingSettings(use_lease=True)  # type: ignore[arg-type] # what a user may try
    assert ShardingSettings(use_lease="").over(ShardingSettings(use_lease="postgres")).use_lease == ""


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sharding")
