"""Replies that never come: their home dropped them, since it took the asking process for dead.
Replies that come though their home was taken for dead. Refusals of a coordinator that come late.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from sharding_app.errors import AskTimeout, InvalidCall, NotSerializable
from sharding_app.protocol.builtin_commands import EVENTS
from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.link.limits import MessageTooLarge
from sharding_app.protocol.messages import Answer, AnyMessage, Deliver, Done, Failed, NoHome
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.region import RegionLimits
from sharding_app.runtime.asking.outbox import Outbox
from sharding_app.runtime.asking.regions import LET_GO_AFTER_SECONDS, RegionClient
from sharding_app.runtime.links.links import Links
from sharding_app.testing.cluster import LoopClock
from tests.unit.runtime.virtual_time import VirtualLoop

TIMEOUT = 5.0


class Locator:
    term = 0

    def ask(self, type_name: str, shards: list[int], *, again: bool) -> None: ...

    def found(self, type_name: str, shards: object) -> None: ...

    def not_found(self, type_name: str) -> None: ...

    def watch(self, homes: set[Incarnation]) -> None:
        self.watched = homes


class World:
    def __init__(self) -> None:
        self.locator = Locator()
        self.full = False
        self.too_large: set[int] = set()
        self.sent: list[tuple[Incarnation, int]] = []
        clock = LoopClock(asyncio.get_running_loop())
        outbox = Outbox(
            "p-me", cast(Links, self), Counter(), lambda *call: self.region_client.not_sent(*call)
        )
        self.region_client = RegionClient("p-me", clock, outbox, self.locator, RegionLimits(), TIMEOUT)
        self.region_client.add_type("t", 1)

    def put(self, target: Incarnation, message: AnyMessage) -> bool:
        """Stand for the links."""
        assert isinstance(message, Deliver)
        if message.request in self.too_large:
            raise MessageTooLarge(2, 1)
        if self.full:
            return False
        self.sent.append((target, message.request))
        return True

    def ask(self, *, tell: bool = False) -> "asyncio.Future[bytes]":
        return self.region_client.ask(Call("t", "e", "c", b"", tell=tell))


def run(main: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await main(World())

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(whole())


@pytest.mark.parametrize("how", ["ask", "tell", "cancelled"])
def test_a_route_does_not_wait_for_ever_for_a_reply_that_is_lost(how: str) -> None:
    async def main(world: World) -> None:
        client = world.region_client
        lost = world.ask(tell=how == "tell")
        client.homes_told("t", "old", [(0, 1)])
        if how == "cancelled":
            lost.cancel()
        await asyncio.sleep(TIMEOUT)
        client.tick()
        if how == "ask":
            assert isinstance(lost.exception(), AskTimeout)
        client.homes_told("t", "new", [(0, 2)])
        await asyncio.sleep(LET_GO_AFTER_SECONDS - 1.0)
        world.ask()
        client.tick()
        assert world.sent == [("old", 1)], "it may still be answered"
        assert world.locator.watched == {"old"}
        await asyncio.sleep(1.0)
        client.tick()
        assert world.sent == [("old", 1), ("new", 2)]
        assert list(client.pending) == [2]
        assert client.regions["t"].calls == 1

    run(main)


def test_a_home_at_which_a_follower_waits_is_watched_while_a_call_waits_behind_that() -> None:
    """Its death may have been told to others only, before this process knew the coordinator."""

    async def main(world: World) -> None:
        client = world.region_client
        question = client.ask(Call("t", "e", EVENTS, b"", timeout=60.0))
        client.homes_told("t", "old", [(0, 1)])
        await asyncio.sleep(TIMEOUT)
        client.tick()
        assert world.locator.watched == set(), "it waits for an event, and the home owes nothing"
        client.homes_told("t", "new", [(0, 2)])
        world.ask()
        client.tick()
        assert world.locator.watched == {"old"}
        client.gone("old")
        assert world.sent == [("old", 1), ("new", 1), ("new", 2)]
        client.tick()
        assert world.locator.watched == set()
        question.cancel()

    run(main)


def test_what_a_link_had_no_room_for_does_not_gather_for_ever() -> None:
    async def main(world: World) -> None:
        client = world.region_client
        world.full = True
        world.ask(tell=True)
        client.homes_told("t", "old", [(0, 1)])
        await asyncio.sleep(LET_GO_AFTER_SECONDS)
        world.ask(tell=True)
        await asyncio.sleep(TIMEOUT)
        client.tick()
        world.full = False
        client.tick()
        assert world.sent == [("old", 2)]

    run(main)


@pytest.mark.parametrize("reply", [Answer(1, b"late"), Failed(1, "stopped", "late"), Done([1])])
@pytest.mark.parametrize("again", ["waits", "is at its next home"])
def test_a_reply_of_a_home_that_was_taken_for_dead_resolves_nothing(reply: AnyMessage, again: str) -> None:
    async def main(world: World) -> None:
        client = world.region_client
        asked = world.ask(tell=isinstance(reply, Done))
        client.homes_told("t", "old", [(0, 1)])
        client.gone("old")
        if again == "is at its next home":
            client.homes_told("t", "new", [(0, 2)])
        client.receive("old", reply)
        await asyncio.sleep(0)
        assert not asked.done()
        if again == "waits":
            client.homes_told("t", "new", [(0, 2)])
        assert world.sent == [("old", 1), ("new", 1)]
        client.receive("new", reply)
        route = client.regions["t"].routes[0]
        assert (route.outstanding, route.size, client.pending) == (0, 0, {})

    run(main)


@pytest.mark.parametrize("reason", ["no_host", "no_such_shard", "refused"])
def test_a_refusal_of_a_former_term_refuses_nothing(reason: str) -> None:
    """Its link was cut for seconds. The present coordinator has placed the shard since."""

    async def main(world: World) -> None:
        client = world.region_client
        world.locator.term = 3
        asked = world.ask()
        client.receive("former", NoHome(2, "t", reason, [0]))
        assert not asked.done()
        client.receive("present", NoHome(3, "t", reason, [0]))
        assert asked.exception() is not None

    run(main)


def test_a_shard_that_a_resize_has_made_is_not_refused_by_a_word_from_before_it() -> None:
    """The store has told of the resize first."""

    async def main(world: World) -> None:
        client = world.region_client
        client.renumbered("t", Numbering(4, revision=2), 1)
        shard = client.shard_of("t", "e")
        asked = world.ask()
        client.receive("coordinator", NoHome(1, "t", "no_such_shard", [shard]))
        assert not asked.done()
        client.homes_told("t", "home", [(shard, 1)])
        assert world.sent == [("home", 1)]

    run(main)


def test_a_shard_that_there_is_not_is_refused() -> None:
    """The settings of this process have another number than those of the cluster."""

    async def main(world: World) -> None:
        asked = world.ask()
        world.region_client.receive("coordinator", NoHome(0, "t", "no_such_shard", [0]))
        assert isinstance(asked.exception(), InvalidCall)

    run(main)


def test_a_command_that_no_link_carries_fails_though_its_home_is_gone_at_that_moment() -> None:
    """ShardHome and NodeGone come in one frame, before the error has been passed on."""

    async def main(world: World) -> None:
        client = world.region_client
        first = world.ask()
        world.too_large.add(1)
        client.homes_told("t", "old", [(0, 1)])
        client.gone("old")
        await asyncio.sleep(0)
        error = first.exception()
        assert isinstance(error, NotSerializable)
        assert (error.code, error.stored) == ("arguments_too_large", "nothing")
        route = client.regions["t"].routes[0]
        assert (route.outstanding, len(route.waiting), client.regions["t"].calls) == (0, 0, 0)
        world.ask()
        client.homes_told("t", "new", [(0, 2)])
        client.homes_told("t", "newest", [(0, 3)])
        client.answered("new", Answer(2, b""), 0.0)
        world.ask()
        assert world.sent == [("new", 2), ("newest", 3)], "the shard's calls go on"

    run(main)
