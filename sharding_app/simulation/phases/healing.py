"""The faults are over: everything works again by itself."""

from __future__ import annotations

from sharding_app.simulation.stage import Stage

ASIDE_SECONDS = 12.0


def quiet(stage: Stage) -> None:
    """Promise 10: it heals by itself."""
    world = stage.world
    world.conditions.heal()
    world.server.start()
    for each in world.nodes:
        if each.runs:
            each.process.resume()
        else:
            each.boot()
    for client in world.clients:
        client.process.resume()
    stage.runs_without_a_message("after all that")
    stage.reach_all("every entity answers again")
    stage.settle("every shard has a live home, every node is up")


def deafness(stage: Stage) -> None:
    """Promise 13, in some seeds: a deaf node steps aside, and comes back as another incarnation."""
    world = stage.world
    if world.seed % 5:
        return
    node = world.nodes[world.scheduler.random.randrange(len(world.nodes))]
    former = node.incarnations[-1]
    world.conditions.deaf[node.name] = None
    world.trace.note("world", None, "%s is deaf", former)

    def aside() -> bool:
        rows = world.server.cluster
        return rows.coordinator.incarnation != former and all(
            row.home != former for row in rows.shards.values()
        )

    stage.until(aside, ASIDE_SECONDS, "a deaf node gives up coordinator and shards", promise=13)
    world.conditions.heal()
    stage.settle("it heals after deafness")
