"""The last of it: known homes go on without a coordinator, and all of it stops in order."""

from __future__ import annotations

from sharding_app.adapters.memory.server import COORDINATOR_LOCK
from sharding_app.simulation.phases.all_down import CALM_SECONDS, STOP_SECONDS, stop_nodes
from sharding_app.simulation.promises import PromiseBroken
from sharding_app.simulation.stage import Stage
from sharding_app.simulation.standing import is_at_home


def no_coordinator(stage: Stage) -> None:
    """Promise 6: known homes go on while there is no coordinator."""
    world = stage.world
    stage.reach_all("every entity answers before")
    coordinator = world.server.cluster.coordinator.incarnation
    operator = world.server.connect("operator")
    holder = world.server.sessions.holder(COORDINATOR_LOCK)
    if world.failure is None and holder is not None:
        world.server.sessions.end(holder)
    world.server.sessions.lock(operator, COORDINATOR_LOCK)
    world.trace.note("world", None, "%s is deposed, nobody can be elected", coordinator)
    stage.until(
        lambda: all(each.node is None or each.node.coordinator is None for each in world.nodes),
        3.0, "the former coordinator stands down", promise=7,
    )  # fmt: skip
    stage.pass_time(0.2)
    at_home = [each for each in world.cast.entities if is_at_home(world, each)]
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
    """Promise 9: what is kept for a client goes with it, where it can say so."""
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
