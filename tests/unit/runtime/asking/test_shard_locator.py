"""What a process concludes from readings of the store that come late, on virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharding_app.adapters.memory import MemoryServer, MemoryStore
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Member, Server
from sharding_app.runtime.asking.shard_locator import GRACE_FOR_NODEGONE_SECONDS, ShardLocator
from sharding_app.testing.cluster import LoopClock
from tests.unit.runtime.virtual_time import VirtualLoop

DELAY = 1.0
NEW = Member(incarnation="new", name="new", host="h", pid=1, age=0, state="up", types=("t",))


class LateStore(MemoryStore):
    """Takes its snapshot at once; the first answer is long under way."""

    delay = DELAY

    async def members(self) -> tuple[Server, list[Member]]:
        found = await super().members()
        delay, self.delay = self.delay, 0.0
        await asyncio.sleep(delay)
        return found


class Told:
    def __init__(self) -> None:
        self.no_homes: list[str] = []

    def homes_told(self, type_name: str, home: Incarnation, shards: object, term: int = 0) -> None:
        raise AssertionError("no shard has a home")

    def no_home(self, type_name: str, reason: str) -> None:
        self.no_homes.append(reason)

    def numbering(self, type_name: str) -> Numbering | None:
        return None

    def renumbered(self, type_name: str, numbering: Numbering, term: int) -> None:
        raise AssertionError("there is no type")


class World:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = MemoryServer(now=loop.time)
        self.gone: list[Incarnation] = []
        self.told = Told()
        self.locator = ShardLocator(
            "p-me", LateStore(self.server), LoopClock(loop), lambda to, message: True,
            is_proxy=True, on_gone=self._gone, on_era=lambda era: None, is_silent=lambda incarnation: True,
        )  # fmt: skip
        self.locator.told = self.told

    def _gone(self, incarnation: Incarnation) -> None:
        self.gone.append(incarnation)
        self.locator.gone(incarnation)

    def join(self) -> None:
        self.server.cluster.join(NEW, (1, 2))


def run(main: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        world = World()
        task = asyncio.ensure_future(world.locator.run())
        await main(world)
        task.cancel()
        await asyncio.wait([task])

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(whole())


@pytest.mark.parametrize("how", ["suspect", "watch"])
def test_a_reading_from_before_a_node_joined_does_not_declare_it_gone(how: str) -> None:
    async def main(world: World) -> None:
        world.locator.suspect("other")
        await asyncio.sleep(DELAY / 10)
        world.join()
        if how == "suspect":
            world.locator.suspect("new")
        else:
            world.locator.watch({"new"})
        await asyncio.sleep(DELAY + 5.0)
        assert world.gone == ["other"]

    run(main)


def test_who_has_no_row_is_gone_after_the_grace() -> None:
    async def main(world: World) -> None:
        world.locator.suspect("other")
        await asyncio.sleep(DELAY + 2 * GRACE_FOR_NODEGONE_SECONDS)
        assert world.gone == ["other"]

    run(main)


def test_a_reading_from_before_a_node_joined_does_not_say_that_no_node_hosts_the_type() -> None:
    async def main(world: World) -> None:
        world.locator.suspect("other")
        await asyncio.sleep(DELAY / 10)
        world.join()
        world.locator.ask("t", [1], again=True)
        await asyncio.sleep(DELAY)
        assert world.told.no_homes == []

    run(main)
