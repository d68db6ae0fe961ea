"""What the witness of a simulated world takes for a broken promise, and what it does not."""

import pytest

from sharding_app.entities.entity_type import EntityType
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.records import CoordinatorRow, ShardRow
from sharding_app.testing.simulation.checker import Witness
from sharding_app.testing.simulation.particular import SLATE
from sharding_app.testing.simulation.promises import Call
from sharding_app.testing.simulation.topology import Cast, Named
from sharding_app.testing.simulation.workload import SNAPPED
from sharding_app.testing.simulation.world import World
from tests.simulation.calm import SECONDS, calm_world


def one_of(entity_type: EntityType, cast: Cast) -> Named:
    return next(each for each in cast.entities if each[0] is entity_type)


def add(world: World, named: Named) -> Call:
    """Have a client add a token, and return the call when it is answered."""
    client, calls = world.clients[0], world.witness.calls
    known = len(calls)
    client.loop.call_soon_threadsafe(client.caller.call, client.asking, named, "add")
    assert world.scheduler.run(
        until=lambda: len(calls) > known and calls[known].ended is not None, deadline=world.now + SECONDS
    )
    return calls[known]


def test_a_promotion_that_takes_the_only_state_of_an_entity_lets_it_begin_anew() -> None:
    with calm_world(lambda cast: [one_of(SLATE, cast)]) as world:
        slate = one_of(SLATE, world.cast)
        world.server.standby.part(asynchronous=True)
        assert add(world, slate).acknowledged
        world.server.fail_over()
        assert world.witness.journal[f"sim.Slate/{slate[1]}"] == []
        while not add(world, slate).acknowledged:
            assert world.failure is None
        assert len(world.witness.journal[f"sim.Slate/{slate[1]}"]) == 1
        assert world.failure is None


@pytest.mark.parametrize(
    ("told", "late"),
    [("nothing", True), ("in time", False), ("of another epoch", True), ("before its last event", True)],
)
def test_an_erasure_whose_home_is_gone_takes_nothing_that_came_later(told: str, late: bool) -> None:
    with calm_world(lambda cast: [one_of(SNAPPED, cast)]) as world:
        diary = one_of(SNAPPED, world.cast)
        witness, name = world.witness, f"sim.Diary/{diary[1]}"
        before = world.now
        assert add(world, diary).acknowledged
        epoch = witness.journal[name][-1].epoch
        if told != "nothing":
            witness.cut_short[name] = (
                epoch + (told == "of another epoch"),
                before if told == "before its last event" else world.now,
            )
        witness.erased("", world.server.cluster.type_ids["sim.Diary"], diary[1], 1, [])
        failure = world.failure
        assert (failure is not None and failure.name == "nothing_is_erased_late") is late


def test_a_commit_that_breaks_a_promise_is_told_to_the_world_and_not_to_the_node() -> None:
    """The node would take it for an error of its own, and the seed would blame the node."""
    world = World(0, 1, [], None)
    world.server.cluster.type_ids["sim.Ledger"] = 1
    row = EventRow(1, "ledger-0", 1, 0, 5, "Added", 1, b'{"token":"a"}', None, None, None)
    world.witness.committed("", [row])
    assert world.failure is not None
    assert world.failure.name == "one_writer"


@pytest.mark.parametrize(
    ("home", "epoch", "rises"), [("n2-1", 3, True), ("n1-1", 2, True), ("n2-1", 2, False), ("n1-1", 1, False)]
)
def test_a_shard_has_a_greater_epoch_at_each_next_home(home: str, epoch: int, rises: bool) -> None:
    world = World(0, 1, [], None)
    world.server.cluster.coordinator = CoordinatorRow(1, "n1-1")
    world.server.serving = world.server.connect("n1-1")
    before = ShardRow("sim.Ledger", 0, 2, "n1-1", "home")
    world.witness.decided(1, before, ShardRow("sim.Ledger", 0, epoch, home, "home"))
    assert (world.failure is None or world.failure.name != "epochs_rise") is rises


def test_every_check_of_the_witness_gives_what_it_finds_to_the_world() -> None:
    checks = {
        name: check
        for name, check in vars(Witness).items()
        if not name.startswith("_") and (getattr(check, "__doc__", None) or "").startswith("Check promise")
    }
    assert len(checks) >= 9
    assert [name for name, check in checks.items() if not hasattr(check, "__wrapped__")] == []
