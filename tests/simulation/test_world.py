"""Single situations that seeds have found, brought about directly."""

import pytest

from sharding_app.testing.simulation import workload
from sharding_app.testing.simulation.promises import BESIDE, Call, Entry
from sharding_app.testing.simulation.tails import Tails
from sharding_app.testing.simulation.workload import ENTITIES
from sharding_app.testing.simulation.world import World
from tests.simulation.calm import calm_world


def write_is_refused_and_it_stands_again(seed: int) -> bool:
    """Depose a coordinator behind its back; return whether it learnt that by a refused write."""
    with calm_world(lambda _: ENTITIES, seed) as world:
        coordinator = world.coordinator()
        assert coordinator is not None
        former = coordinator.incarnations[-1]
        world.injector._move()  # takes effect in the node's next turn
        world.server.cluster.raise_term("nobody")
        node = coordinator.node
        assert node is not None
        assert node.coordinator is not None
        coordinator.process.loops[0].call_soon_threadsafe(node.coordinator.look_now)
        assert world.scheduler.run(
            until=lambda: world.server.cluster.coordinator.incarnation == former, deadline=world.now + 10.0
        )
        return any("is over" in line for line in world.trace.lines(count=1000))


def test_a_coordinator_whose_write_was_refused_stands_again() -> None:
    """It is the oldest node, to whom the others leave the lock: it must not leave the lock free for
    good.
    """
    assert any(write_is_refused_and_it_stands_again(seed) for seed in range(4))


def call(world: World, command: str) -> Call:
    """Have a client call the first entity, and return the call when it has ended."""
    client, calls = world.clients[0], world.witness.calls
    known = len(calls)
    client.loop.call_soon_threadsafe(client.caller.call, client.asking, ENTITIES[0], command)
    assert world.scheduler.run(until=lambda: len(calls) > known, deadline=world.now + 5)
    assert world.scheduler.run(until=lambda: calls[known].ended is not None, deadline=world.now + 5)
    return calls[known]


def ask(world: World, query: str = "total") -> object:
    """Have a client ask until there is an answer."""
    asked = call(world, query)
    for _ in range(20):
        if asked.acknowledged:
            break
        asked = call(world, query)
    assert asked.error is None
    return asked.value


@pytest.mark.parametrize("query", ["total", BESIDE])
def test_a_home_that_has_not_heard_of_a_promotion_answers_from_what_is_lost_until_its_lease_is_over(
    monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    with calm_world(lambda _: ENTITIES) as world:
        monkeypatch.setattr(workload, "observer", world.witness)
        kept = ask(world)
        world.server.standby.part(asynchronous=True)
        assert call(world, "add").acknowledged
        lost = ask(world)
        home = world.node_of(world.witness._last[call(world, "total").entity].node)
        assert home is not None
        world.conditions.cut_off[home.config.name] = None
        world.server.fail_over()
        assert ask(world, query) == lost
        assert world.scheduler.run(until=lambda: not world.is_valid(home), deadline=world.now + 5)
        assert ask(world) == kept
        assert world.failure is None


def test_what_is_lost_is_answered_by_no_home_that_has_heard_of_it() -> None:
    before = [Entry(1, 1, "a", 0.0), Entry(2, 1, "b", 1.0)]
    tails = Tails()
    tails.lost("till", before, [], now=10.0)
    asked = Call(1, "c", "till", "total", (), began=11.0, value=(2, "b"))
    assert not tails.of(asked), "nothing has handled it since"
    tails.handles("till", aware=False, now=12.0)
    assert tails.of(asked)
    assert not tails.of(Call(1, "c", "till", "total", (), began=11.0, value=(2, "c"))), "was never so"
    assert not tails.of(Call(1, "c", "till", "total_surely", (), began=11.0, value=(2, "b"))), "is fenced"
    assert not tails.of(Call(1, "c", "other", "total", (), began=11.0, value=(2, "b")))
    tails.handles("till", aware=True, now=13.0)
    tails.handles("till", aware=False, now=14.0)
    assert tails.of(asked), "it was on its way"
    assert not tails.of(Call(2, "c", "till", "total", (), began=12.5, value=(2, "b"))), "another has started"


def test_a_row_that_says_something_else_of_its_node_is_written_again() -> None:
    """A server that has gone back may hold an older state of a row, of which no answer ever
    tells.
    """
    with calm_world(lambda _: ENTITIES) as world:
        rows, incarnation = world.server.cluster, world.nodes[0].incarnations[-1]
        assert rows.update_member(incarnation, None, True, None, False, None)
        assert rows.members[incarnation].deaf
        assert world.scheduler.run(
            until=lambda: not rows.members[incarnation].deaf, deadline=world.now + 10.0
        )
        assert world.failure is None
