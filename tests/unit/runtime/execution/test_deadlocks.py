"""Chains of calls that wait for each other, and callers that learn why they have waited."""

import asyncio

import pytest

from sharding_app import AskTimeout, Entity, Unavailable, command
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.waiting import travel

pytestmark = pytest.mark.asyncio


class Dancer(Entity, name="deadlocks.Dancer"):
    """Waits, then calls another one."""

    @command
    async def turn_to(self, other: str, after: float = 0.1, timeout: float = 5) -> str:
        await asyncio.sleep(after)
        try:
            await Dancer.ref(other, timeout=timeout).bow()
        except Unavailable as error:
            return f"{error.code}, {error.stored} stored: {error}"
        except AskTimeout:
            return "gave up"
        return "bowed"

    @command
    def bow(self) -> None:
        """Bow."""


async def _apart(cluster: MemoryCluster, number: int) -> list[str]:
    """Return the ids of as many dancers, on as many nodes.

    The coordinator may hear of a node after the first ones have got all shards: then some move.
    """
    async with asyncio.timeout(60 * SLACK):
        while True:
            found: dict[str, str] = {}
            for each in map(str, range(100)):
                await Dancer.ref(each).bow()
                found.setdefault(cluster.home_of(Dancer, each), each)
            if len(found) == number:
                return sorted(found.values())
            await travel(1)


@pytest.mark.parametrize("nodes", [1, 3])
async def test_one_call_of_a_circle_is_refused_and_the_others_are_answered(nodes: int) -> None:
    async with MemoryCluster([Dancer], nodes=nodes) as cluster:
        with cluster.in_use():
            names = await _apart(cluster, nodes) if nodes > 1 else ["1", "2"]
            others = [*names[1:], names[0]]
            asked = [
                asyncio.ensure_future(Dancer.ref(each, timeout=30).turn_to(other, timeout=20))
                for each, other in zip(names, others, strict=True)
            ]
            await travel(4)
            outcomes = await asyncio.gather(*asked)
            victim = names[others.index(max(names))]
            way = [max(names)]
            while len(way) <= len(names):
                way.append(others[names.index(way[-1])])
            circle = " -> ".join(
                f"deadlocks.Dancer/{each}" + ".bow" * (at > 0) for at, each in enumerate(way)
            )
            for name, outcome in zip(names, outcomes, strict=True):
                if name == victim:
                    assert outcome.startswith("deadlock, nothing stored: ")
                    assert circle in outcome
                else:
                    assert outcome == "bowed"


async def test_waiting_for_a_slow_one_is_no_deadlock() -> None:
    """b is at work for longer than a looks, and a's own caller waits all the while."""
    async with MemoryCluster([Dancer]) as cluster:
        with cluster.in_use():
            slow = asyncio.ensure_future(Dancer.ref("b", timeout=30).turn_to("c", after=6))
            await travel(0.1)
            first = asyncio.ensure_future(Dancer.ref("a", timeout=30).turn_to("b", timeout=20))
            second = asyncio.ensure_future(Dancer.ref("z", timeout=30).turn_to("a", timeout=20))
            await travel(8)
            assert set(await asyncio.gather(slow, first, second)) == {"bowed"}


async def test_a_caller_learns_why_it_has_waited() -> None:
    async with MemoryCluster([Dancer]) as cluster:
        with cluster.in_use():
            slow = asyncio.ensure_future(Dancer.ref("b", timeout=30).turn_to("c", after=9))
            await travel(0.1)
            chained = asyncio.ensure_future(Dancer.ref("a", timeout=30).turn_to("b", timeout=20))
            await travel(0.2)
            behind = asyncio.ensure_future(Dancer.ref("a", timeout=4).bow())
            itself = asyncio.ensure_future(Dancer.ref("b", timeout=4).bow())
            await travel(5)
            with pytest.raises(AskTimeout) as caught:
                await behind
            assert "it was busy with 'turn_to' for" in str(caught.value)
            assert str(caught.value).endswith(", which waits for deadlocks.Dancer/b.bow")
            with pytest.raises(AskTimeout, match=r"it was busy with 'turn_to' for [0-9.]+ s$"):
                await itself
            await travel(6)
            assert set(await asyncio.gather(slow, chained)) == {"bowed"}
