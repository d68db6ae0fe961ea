"""Rows of a user's own on the virtual server: they go where the events of their transaction go, and
so says the judge.
"""

from typing import Any

import pytest

from sharding_app.adapters.memory.standby import Standby
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.virtual_node import VirtualNode
from sharding_app.testing.simulation.world import World
from tests.simulation.calm import SECONDS, calm_world
from tests.support.given import event_row


def book(world: World) -> str:
    """Have a client book, and return the token when the row is committed."""
    client = world.clients[0]
    known = len(world.witness.calls)
    client.loop.call_soon_threadsafe(client.caller.call, client.asking, world.cast.tills[0], "book")
    world.scheduler.run(until=lambda: len(world.witness.calls) > known, deadline=world.now + SECONDS)
    token = world.witness.calls[known].books
    assert world.scheduler.run(until=lambda: token in own_rows(world), deadline=world.now + SECONDS)
    return token


def answered(world: World, token: str) -> bool:
    """Let the call go on to its end; return whether it was a success."""
    (call,) = [each for each in world.witness.calls if each.books == token]
    assert world.scheduler.run(until=lambda: call.ended is not None, deadline=world.now + SECONDS)
    return call.acknowledged


def own_rows(world: World) -> dict[str, str]:
    return world.server.journal.beside


def test_a_promotion_takes_rows_and_events_back_together() -> None:
    with calm_world(lambda cast: cast.tills) as world:
        kept = book(world)
        assert answered(world, kept)
        world.server.standby.part(asynchronous=True)
        lost = book(world)
        assert answered(world, lost)
        assert [*own_rows(world)] == [kept, lost]
        world.server.fail_over()
        assert [*own_rows(world)] == [kept]
        assert lost not in {entry.token for entry in world.witness.journal["sim.Till/till-0"]}
        assert world.failure is None, "an asynchronous standby may lack what was acknowledged"


def test_an_answer_on_its_way_while_the_tail_is_lost_is_no_lie() -> None:
    """What the server had acknowledged went before the caller could hear of it."""
    with calm_world(lambda cast: cast.tills) as world:
        world.server.standby.part(asynchronous=True)
        world.conditions.delay = 1.0
        token = book(world)
        # The node hears of its commit; its answer to the caller is on the way for a second.
        world.scheduler.run(until=lambda: False, deadline=world.now + 0.5)
        world.server.fail_over()
        assert token not in own_rows(world)
        assert answered(world, token)
        assert world.failure is None


def test_a_booking_that_was_answered_survives_a_synchronous_standby_that_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with calm_world(lambda cast: cast.tills) as world:
        monkeypatch.setattr(Standby, "holds", lambda *_: False)
        world.server.standby.part()
        assert answered(world, book(world))
        world.server.fail_over()
        assert isinstance(world.failure, PromiseBroken)
        assert world.failure.name == "acknowledged_survives_promotion"


def test_rows_in_doubt_are_not_told_as_stored_before_the_standby_has_them() -> None:
    with calm_world(lambda cast: cast.tills) as world:
        world.server.standby.part()
        token = book(world)
        (call,) = [each for each in world.witness.calls if each.books == token]
        world.scheduler.run(until=lambda: call.ended is not None, deadline=world.now + SECONDS)
        assert not call.acknowledged
        world.server.fail_over()
        assert token not in own_rows(world)
        assert world.failure is None


def test_nothing_is_written_on_a_server_that_may_lack_what_is_in_memory() -> None:
    with calm_world(lambda cast: cast.tills) as world:
        node = world.nodes[0]
        world.server.promote()
        ended: list[object] = []

        async def write() -> None:
            together = ports(node).together
            try:
                await together([event_row(1, "a", 1)], [])
            except JournalUnavailable as error:
                ended.append(error)

        node.process.loops[0].call_soon_threadsafe(node.process.loops[0].create_task, write())
        assert world.scheduler.run(until=lambda: bool(ended), deadline=world.now + SECONDS)
        assert "timeline" in str(ended[0])


def ports(node: VirtualNode) -> Any:
    assert node.node is not None
    return node.node.node_ports
