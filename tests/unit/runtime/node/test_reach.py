"""A node whose lifeline lives while it cannot connect for its work gives its shards up (promise
13).
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Coroutine
from itertools import combinations, count
from typing import Any, TypeVar

import pytest

from sharding_app.adapters.memory import MemoryLifelineSession, MemoryStore
from sharding_app.adapters.memory.faults import Plan
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.liveness.reach import Reach
from sharding_app.protocol.records import News
from sharding_app.runtime.liveness.lifeline import Lifeline
from sharding_app.runtime.node.health import NodeHealth
from sharding_app.runtime.node.runner import NodeRunner, _chance
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.support.steady_loop import SteadyLoop
from tests.unit.runtime.one_of_each import Cart

T = TypeVar("T")


def test_a_node_that_reaches_all_stays() -> None:
    reach = Reach(5.0)
    assert [reach.look((), server_answers=True, now=now) for now in (0.0, 100.0)] == ["reaches", "reaches"]


def test_it_steps_aside_when_the_time_is_over() -> None:
    reach = Reach(5.0)
    assert reach.look(["the journal"], server_answers=True, now=10.0) == "cut_off"
    assert reach.look(["the journal"], server_answers=True, now=14.9) == "cut_off"
    assert reach.look(["the cluster's rows"], server_answers=True, now=15.0) == "step_aside"


def test_a_connection_that_comes_back_starts_the_time_anew() -> None:
    reach = Reach(5.0)
    reach.look(["the journal"], server_answers=True, now=0.0)
    assert reach.look([], server_answers=True, now=4.0) == "reaches"
    assert reach.look(["the journal"], server_answers=True, now=6.0) == "cut_off"


def test_while_the_server_is_away_no_node_steps_aside() -> None:
    reach = Reach(5.0)
    for now in range(100):
        assert reach.look(["the journal"], server_answers=False, now=now) == "away"
    assert reach.look(["the journal"], server_answers=True, now=100) == "cut_off"


class NoRoom:
    """The server takes no new connection of this client: its role's limit is reached."""

    def __init__(self, client: str) -> None:
        self._client = client

    def plan(self, client: str, kind: str) -> Plan | None:
        return Plan(None, None, 0.01) if client == self._client and kind.startswith("open") else None


def sessions_of(lifeline: Lifeline) -> list[MemoryLifelineSession]:
    return [each for each in lifeline._sessions if isinstance(each, MemoryLifelineSession)]


def on_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        return runner.run(main)


@pytest.mark.parametrize("line", ["journal", "rows"])
def test_the_shards_of_a_node_without_its_connections_find_other_homes(line: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TravelLoop)
        async with MemoryCluster([Cart], nodes=2) as cluster:
            with cluster.in_use():
                ids = [f"cart-{number}" for number in range(12)]
                for each in ids:
                    assert await loop.hurry(Cart.ref(each).add("book", 1)) == 1
                node = cluster.nodes["node2"]
                health = NodeHealth(lambda: node, lambda: 0.0)
                async with asyncio.timeout(60 * SLACK):
                    while not health.ask("ready").ok:
                        await loop.travel(0.1)
                server = cluster.server
                server.faults = NoRoom(node.incarnation)
                store, lifeline = node.ports.store, node.lifeline
                assert isinstance(store, MemoryStore)
                assert isinstance(lifeline, Lifeline)
                kept = {store.connection.session} if line == "journal" else set()
                lifelines = {each._connection.session for each in sessions_of(lifeline)}
                for session in server.sessions.of(node.incarnation):
                    if session not in lifelines | kept:
                        server.sessions.end(session)
                with contextlib.suppress(JournalUnavailable):  # the end of a connection shows when it is used
                    await node.node_ports.journal.read(1, ["somebody"])
                await loop.travel(2.5)
                assert not node.ended.done()
                verdict = health.ask("ready")
                assert not verdict.ok
                assert "no connection for" in verdict.text
                assert health.ask("alive").ok
                await loop.travel(8)
                assert node.ended.result() == "cut off"
                await cluster.kill_node("node2")  # as its process does, before it begins anew
                for each in ids:
                    assert await loop.hurry(Cart.ref(each).add("book", 1)) == 2

    on_virtual_time(main())


def test_rows_that_are_locked_move_no_shard() -> None:
    """A dump, a migration or a VACUUM FULL locks the table for every node alike: no other one could
    do the work.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TravelLoop)
        async with MemoryCluster([Cart], nodes=2) as cluster:
            with cluster.in_use():
                for number in range(12):
                    assert await loop.hurry(Cart.ref(f"cart-{number}").add("book", 1)) == 1
                nodes = list(cluster.nodes.values())
                asked = 0

                async def locked(incarnation: str) -> News:
                    nonlocal asked
                    asked += 1
                    raise StoreUnavailable("canceling statement due to lock timeout (55P03)", answered=True)

                for node in nodes:
                    node.ports.store.news = locked  # type: ignore[method-assign]
                await loop.travel(60)
                assert asked > 60, "all the while it was asked"
                assert not any(node.ended.done() for node in nodes)
                for number in range(12):
                    assert await loop.hurry(Cart.ref(f"cart-{number}").add("book", 1)) == 2

    on_virtual_time(main())


OF_A_NODE = 6


@contextlib.asynccontextmanager
async def living(cluster: MemoryCluster, *names: str) -> AsyncIterator[list[NodeRunner]]:
    """Node processes that begin at the same moment, and begin anew as real ones do."""
    numbers, types = count(1), list(cluster.types.values())
    configs = [dataclasses.replace(cluster.config, name=name) for name in names]
    runners = [NodeRunner(each, types, cluster._node_ports, lambda: f"n-{next(numbers)}") for each in configs]
    lives = [asyncio.ensure_future(each.run()) for each in runners]
    try:
        yield runners
    finally:
        for each in runners:
            each.request_stop(1.0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TravelLoop)
        await loop.hurry(asyncio.gather(*lives))


def up(runners: list[NodeRunner]) -> int:
    return sum(each.up.is_set() for each in runners)


@pytest.mark.parametrize("room", range(OF_A_NODE, 2 * OF_A_NODE))
def test_of_two_nodes_that_start_with_room_for_one_that_one_comes_up(
    room: int, caplog: pytest.LogCaptureFixture
) -> None:
    """None keeps connections that are of no use without the others."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TravelLoop)
        async with MemoryCluster([Cart], nodes=0) as cluster:
            with cluster.in_use():
                cluster.server.room = cluster.server.sessions.count() + room
                async with living(cluster, "one", "two") as runners:
                    await loop.travel(60)
                    assert up(runners) == 1
                    assert await loop.hurry(Cart.ref("a").add("book", 1)) == 1
                    cluster.server.room = None
                    await loop.travel(10)
                    assert up(runners) == 2
                    assert await loop.hurry(Cart.ref("a").add("book", 1)) == 2

    on_virtual_time(main())
    assert "too many connections" in caplog.text


def test_nodes_with_names_that_are_alike_come_again_at_different_times() -> None:
    """Two that come together take half of the room each, and none comes up."""
    for number in range(10):
        chances = [_chance(f"n{name}-{number}") for name in range(10)]
        assert all(0.5 <= each <= 1 for each in chances)
        apart = [abs(one - other) for one, other in combinations(chances, 2)]
        assert sum(apart) / len(apart) > 0.1, "a sixth by chance"
