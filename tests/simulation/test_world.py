"""Single situations that seeds have found, brought about directly."""

from contextlib import ExitStack

from sharding_app.simulation.phases.boot import boot
from sharding_app.simulation.stage import Stage
from sharding_app.simulation.trace import listening
from sharding_app.simulation.workload import ENTITIES
from sharding_app.simulation.world import World


def write_is_refused_and_it_stands_again(seed: int) -> bool:
    """Depose a coordinator behind its back; return whether it learnt that by a refused write."""
    world = World(seed=seed, nodes=3, faults=[], steps=None)
    with ExitStack() as stack:
        stack.callback(world.scheduler.close)
        stack.enter_context(listening(world.trace, lambda text: None))
        stage = Stage(world)
        boot(stage)
        stage.reach_all("every entity answers", 10.0, ENTITIES)
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
    """It is the oldest node, to whom the others leave the lock: it must not leave it to nobody for good."""
    assert any(write_is_refused_and_it_stands_again(seed) for seed in range(4))
