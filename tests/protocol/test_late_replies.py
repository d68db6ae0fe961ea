"""Replies that never come: their home dropped them, since it took the asking process for dead."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import AnyMessage, Deliver
from sharding_app.core.region import RegionLimits
from sharding_app.errors import AskTimeout
from sharding_app.runtime.asker import LET_GO_AFTER_SECONDS, Asker
from sharding_app.testing.cluster import LoopClock
from tests.lease.virtual import VirtualLoop

TIMEOUT = 5.0


class Homes:
    def ask(self, type_name: str, shards: list[int], *, again: bool) -> None: ...

    def found(self, type_name: str, shards: object) -> None: ...

    def not_found(self, type_name: str) -> None: ...

    def watch(self, homes: set[Incarnation]) -> None:
        self.watched = homes


class World:
    def __init__(self) -> None:
        self.homes = Homes()
        self.full = False
        self.sent: list[tuple[Incarnation, int]] = []
        clock = LoopClock(asyncio.get_running_loop())
        self.asker = Asker("p-me", clock, self._put, self.homes, RegionLimits(), TIMEOUT)
        self.asker.add_type("t", 1)

    def _put(self, target: Incarnation, message: AnyMessage) -> bool:
        assert isinstance(message, Deliver)
        if self.full:
            return False
        self.sent.append((target, message.request))
        return True

    def ask(self, *, tell: bool = False) -> "asyncio.Future[bytes]":
        return self.asker.ask("t", "e", "c", b"", tell=tell)


def run(main: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await main(World())

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(whole())


@pytest.mark.parametrize("how", ["ask", "tell", "cancelled"])
def test_a_route_does_not_wait_for_ever_for_a_reply_that_is_lost(how: str) -> None:
    async def main(world: World) -> None:
        asker = world.asker
        lost = world.ask(tell=how == "tell")
        asker.homes_told("t", "old", [(0, 1)])
        if how == "cancelled":
            lost.cancel()
        await asyncio.sleep(TIMEOUT)
        asker.tick()
        if how == "ask":
            assert isinstance(lost.exception(), AskTimeout)
        asker.homes_told("t", "new", [(0, 2)])
        await asyncio.sleep(LET_GO_AFTER_SECONDS - 1.0)
        world.ask()
        asker.tick()
        assert world.sent == [("old", 1)], "it may still be answered"
        assert world.homes.watched == {"old"}
        await asyncio.sleep(1.0)
        asker.tick()
        assert world.sent == [("old", 1), ("new", 2)]
        assert list(asker.pending) == [2]
        assert asker.regions["t"].parcels == 1

    run(main)


def test_what_a_link_had_no_room_for_does_not_gather_for_ever() -> None:
    async def main(world: World) -> None:
        asker = world.asker
        world.full = True
        world.ask(tell=True)
        asker.homes_told("t", "old", [(0, 1)])
        await asyncio.sleep(LET_GO_AFTER_SECONDS)
        world.ask(tell=True)
        await asyncio.sleep(TIMEOUT)
        asker.tick()
        world.full = False
        asker.tick()
        assert world.sent == [("old", 2)]

    run(main)
