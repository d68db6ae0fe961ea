"""After the faults everything works again by itself."""

from __future__ import annotations

from sharding_app.testing.simulation.faults import BLACK_HOLE
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.liveness import rows_to_live
from sharding_app.testing.simulation.promises import Call
from sharding_app.testing.simulation.resizes import is_resized, under_way

ASIDE_SECONDS = 12.0
ALONE_SECONDS = 8.0
"""More with direct links: a node waits for this time before it takes itself for alone."""
TOLD_SECONDS = 3.0
RESIZED_SECONDS = 30.0
REPLACED_SECONDS = 3.5


def quiet(stage: Stage) -> None:
    """End all faults: the cluster heals by itself (promise 10)."""
    world = stage.world
    world.conditions.heal()
    world.obstacles.heal()
    world.witness.stubborn.end_all()
    for server in world.servers.values():
        server.start()
        server.ends_own = True
    for each in world.nodes:
        if each.runs:
            each.process.resume()
        else:
            each.boot()
    for client in world.clients:
        client.process.resume()
    stage.runs_without_a_message("after all that")
    stage.reach_all("every entity answers again")
    if is_resized(world.seed):
        what = "resizes come to their end"
        stage.until(lambda: not under_way(world), RESIZED_SECONDS, what, promise=10)
    stage.settle("every shard has a live home, every node is up")
    _tells_take_effect(stage)


def _tells_take_effect(stage: Stage) -> None:
    """Send tells in calm: none is lost, though no answer says so."""
    world = stage.world
    told: list[Call] = []
    for client in world.clients:
        for entity in world.cast.called:
            client.loop.call_soon(
                lambda client=client, entity=entity: told.append(
                    client.caller.call(client.asking, entity, "tell").result()
                )  # type: ignore[misc]
            )
    wanted = len(world.clients) * len(world.cast.called)

    def stored() -> bool:
        tokens = {entry.token for entries in world.witness.journal.values() for entry in entries}
        tokens.update(world.witness.memory.all_noted())
        return len(told) == wanted and all(token in tokens for call in told for token in call.tokens)

    stage.until(stored, TOLD_SECONDS, "what was told in calm is stored", promise=8)


def black_hole(stage: Stage) -> None:
    """Put a node behind a black hole, silent both ways: it is replaced in time (promise 13)."""
    world = stage.world
    if world.seed % 5 != 2 or world.failure is not None:
        return
    node = world.nodes[world.scheduler.random.randrange(len(world.nodes))]
    former = node.incarnations[-1]
    conditions = world.conditions
    conditions.mute_to[node.name] = conditions.deaf[node.name] = None
    for each in conditions.everywhere():
        each.cut_off[node.name] = None
    world.trace.note("world", None, "%s is behind a black hole", former)
    world.coverage.faults[BLACK_HOLE] += 1

    def replaced() -> bool:
        rows = rows_to_live(world)
        return all(row.home not in (None, former) and row.step == "home" for row in rows)

    stage.until(replaced, REPLACED_SECONDS, "a node behind a black hole is replaced", promise=13)
    conditions.heal()
    stage.settle("it heals after a black hole")


def deafness(stage: Stage) -> None:
    """Make a node deaf: it steps aside, and comes back as another incarnation (promise 13)."""
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

    # With direct links a node waits for these seconds more before it takes itself for alone.
    seconds = ASIDE_SECONDS + (ALONE_SECONDS if world.conditions.direct else 0.0)
    stage.until(aside, seconds, "a deaf node gives up coordinator and shards", promise=13)
    world.conditions.heal()
    stage.settle("it heals after deafness")
