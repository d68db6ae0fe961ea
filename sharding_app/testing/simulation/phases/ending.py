"""The last phases: known homes go on without a coordinator, then everything stops in order."""

from __future__ import annotations

from sharding_app.adapters.memory.server import COORDINATOR_LOCK
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.liveness import is_at_home
from sharding_app.testing.simulation.phases.all_down import CALM_SECONDS, STOP_SECONDS, stop_nodes
from sharding_app.testing.simulation.promises import PromiseBroken


def no_coordinator(stage: Stage) -> None:
    """Take the coordinator away: known homes go on (promise 6)."""
    world = stage.world
    stage.reach_all("every entity answers before")
    coordinator = world.server.cluster.coordinator.incarnation
    operator = world.server.connect("operator")
    holder = world.server.sessions.holder(COORDINATOR_LOCK)
    if world.failure is None and holder is not None:
        world.server.sessions.end(holder)
    world.server.sessions.lock(operator, COORDINATOR_LOCK)
    world.trace.note("world", None, "%s is deposed, no node can be elected", coordinator)
    stage.until(
        lambda: all(each.node is None or each.node.coordinator is None for each in world.nodes),
        3.0, "the former coordinator stands down", promise=7,
    )  # fmt: skip
    stage.pass_time(0.2)
    at_home = [each for each in world.cast.called if is_at_home(world, each)]
    stage.reach_all("known homes go on without a coordinator", CALM_SECONDS, at_home, promise=6)
    world.server.sessions.end(operator)


def stop(stage: Stage) -> None:
    world = stage.world
    _a_client_leaves(stage)
    stop_nodes(stage, "nodes stop in order")
    if world.failure is None and world.server.cluster.members:
        left = ", ".join(world.server.cluster.members)
        world.broke(PromiseBroken(10, "leaves_nothing_behind", f"rows of {left}"))
    for client in world.clients[1:]:
        stage.job(client.loop, client.asking.close())
    stage.until(lambda: stage.is_idle, STOP_SECONDS, "clients stop in order")


def _a_client_leaves(stage: Stage) -> None:
    """Stop a client in order: nodes drop their links to it (promise 9)."""
    world = stage.world
    client = world.clients[0]
    former = client.incarnation
    stage.job(client.loop, client.asking.close())
    stage.until(
        lambda: stage.is_idle and not any(
            each.node is not None and former in each.node.links.peers() for each in world.nodes
        ),
        CALM_SECONDS, "every node lets go of a client that leaves in order", promise=9,
    )  # fmt: skip
