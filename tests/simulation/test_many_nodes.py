"""Hundreds of nodes in one virtual cluster: a third of them dies at once, all homes and the
coordinator among them.
"""

from contextlib import ExitStack

import pytest

from sharding_app.testing.simulation import workload
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.phases.boot import boot
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.trace import listening
from sharding_app.testing.simulation.world import World
from tests.acceptance.scenario import SECONDS
from tests.simulation.planted import planted

SEED = 2
MANY = 300 if SECONDS else 150
"""Of nodes. What it costs grows with the square."""


def a_third_dies(seed: int, nodes: int) -> PromiseBroken | None:
    """Play it with a few calls; return the promise that was broken."""
    world = World(seed=seed, nodes=nodes, faults=[], steps=None)
    with ExitStack() as stack:
        stack.callback(world.scheduler.close)
        stack.enter_context(listening(world.trace, world._mistake))
        stack.callback(setattr, workload, "observer", None)
        workload.observer = world.witness
        world.scheduler.on_turn = world._after_turn
        world.scheduler.on_error = world._unhandled
        world.scheduler.on_spin = world._spins
        stage = Stage(world)
        boot(stage)
        stage.reach_all("every entity answers")
        cluster = world.server.cluster
        wanted = {row.home for row in cluster.shards.values()} | {cluster.coordinator.incarnation}
        dying = sorted(world.nodes, key=lambda each: each.incarnations[-1] not in wanted)[: nodes // 3]
        dead = {each.incarnations[-1] for each in dying}
        assert wanted <= dead
        for each in dying:
            each.crash()
        stage.reach_all("every entity answers again")
        stage.until(lambda: not dead & cluster.members.keys(), 10.0, "the dead are buried")
        world.registry.look()
    return world.failure


@pytest.mark.slow
def test_a_third_of_hundreds_of_nodes_dies_at_once() -> None:
    assert a_third_dies(SEED, MANY) is None


def test_a_death_that_is_not_told_is_found() -> None:
    with planted("gone_is_not_told"):
        broken = a_third_dies(SEED, 30)
    assert broken is not None
    assert broken.promise == 10
