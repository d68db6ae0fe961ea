"""A world without faults, of which single situations are made."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.phases.boot import boot
from sharding_app.testing.simulation.topology import Cast, Named
from sharding_app.testing.simulation.trace import listening
from sharding_app.testing.simulation.world import World

SECONDS = 20.0


@contextmanager
def calm_world(chosen: Callable[[Cast], Sequence[Named]], seed: int = 0) -> Iterator[World]:
    """Three nodes that are up, with each of the chosen entities at rest in its home."""
    world = World(seed=seed, nodes=3, faults=[], steps=None)
    with ExitStack() as stack:
        stack.callback(world.scheduler.close)
        stack.enter_context(listening(world.trace, lambda text: None))
        stage = Stage(world)
        boot(stage)
        stage.reach_all("every entity answers", SECONDS, chosen(world.cast))
        assert world.failure is None
        yield world
