"""A layer that loses frames without a word: every process suspects every other, and few words are
made of that.
"""

import asyncio
from collections.abc import Iterable

import pytest

from sharding_app.adapters.memory import MemoryServer, MemoryStore
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import AnyMessage, Done, Suspect
from sharding_app.protocol.records import Member
from sharding_app.runtime.asking.shard_locator import ShardLocator
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.node.process import Process
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import LoopClock, MemoryCluster
from tests.support.steady_loop import SteadyLoop
from tests.unit.runtime.counters import Counter
from tests.unit.runtime.virtual_time import VirtualLoop


class Silent:
    """A layer that takes every frame and delivers none."""

    def refuses(self, client: str) -> bool:
        return False

    def route(self, client: str, channel: str) -> tuple[float, ...]:
        return ()


def count(process: Process, told: list[Suspect]) -> None:
    put = process.locator._put

    def counted(target: str, message: AnyMessage) -> bool:
        if isinstance(message, Suspect):
            told.append(message)
        return put(target, message)

    process.locator._put = counted


def say(processes: Iterable[Process], word: AnyMessage) -> None:
    everybody = list(processes)
    for process in everybody:
        for other in everybody:
            if other is not process:
                process.try_send(other.incarnation, word)


def test_twenty_nodes_and_a_client() -> None:
    told: list[Suspect] = []

    async def main() -> None:
        config = NodeConfig(number_of_shards=80)
        async with MemoryCluster([Counter], nodes=20, config=config) as cluster:
            processes = [cluster.client, *cluster.nodes.values()]
            say(processes, Done([]))
            loop = cluster.loop
            assert isinstance(loop, TravelLoop)
            await loop.travel(3.0)
            for process in processes:
                count(process, told)
            cluster.network.faults = Silent()
            say(processes, Done([]))
            await loop.travel(5.0)

    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        runner.run(main())
    assert len(told) <= 21 * 9, f"{len(told)} messages of 21 processes in five seconds; 380 a second before"


@pytest.mark.parametrize("number", [20, 100])
def test_links_that_fall_silent_one_after_the_other(number: int) -> None:
    """One process with links to all others: each is suspected at another moment, and again each
    second.
    """
    told: list[tuple[Incarnation, AnyMessage]] = []

    def put(to: Incarnation, word: AnyMessage) -> bool:
        told.append((to, word))
        return True

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = MemoryServer(now=loop.time)
        members = [
            Member(incarnation=f"n-{age:03}", name=f"n{age}", host="h", pid=age, age=age, state="up", locks=2)
            for age in range(number)
        ]
        for each in members:
            server.cluster.join(each, (1, 2))
        homes = ShardLocator(
            "p-me", MemoryStore(server, "p-me"), LoopClock(loop), put,
            is_proxy=True, on_gone=lambda incarnation: None, on_era=lambda era: None, is_silent=lambda incarnation: True,
        )  # fmt: skip
        homes.coordinator_told("n-000", 1)
        looking = asyncio.ensure_future(homes.run())
        for _ in range(5):
            for each in members[5:]:
                homes.suspect(each.incarnation)
                await asyncio.sleep(1.0 / number)
        looking.cancel()
        await asyncio.wait([looking])

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    suspects = [word for _, word in told if isinstance(word, Suspect)]
    assert {each for word in suspects for each in word.incarnations} == {
        f"n-{age:03}" for age in range(5, number)
    }
    assert len({to for to, _ in told}) <= 3
    assert len(suspects) <= 3 * 6, "a few words, whatever their number"
