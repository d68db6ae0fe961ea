"""A link in calm that one end closes and forgets just when the other sends much, in some seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.liveness import home_of

if TYPE_CHECKING:
    from sharding_app.runtime.links.links import Links
    from sharding_app.testing.simulation.loop import SimLoop

MOST_ENTITIES = 3
ROUNDS = 5
"""Calls of each entity: as many as its mailbox takes, together no more than a region takes, and
more than fit into a frame.
"""
QUIET_SECONDS = 1.0
STORED_SECONDS = 1.5


def forgotten(stage: Stage) -> None:
    """Make a sender begin again with several frames under way: their order stays (promise 5)."""
    world = stage.world
    if world.seed % 4 >= 2 or world.failure is not None:
        return
    client, entity = world.clients[0], world.cast.entities[0]
    slot = home_of(world, entity)
    if slot is None or slot.node is None:
        return
    there = [each for each in dict.fromkeys(world.cast.entities) if home_of(world, each) is slot]
    called = there[:MOST_ENTITIES]
    # A client that knows no home yet keeps fewer calls of a shard than are made below.
    stage.reach_all("the entities answer", entities=called)
    links, theirs, me = slot.node.links, client.asking.links, client.incarnation

    def all_is_acknowledged() -> bool:
        forth, back = theirs._tasks.get(links.incarnation), links._tasks.get(me)
        return (
            forth is not None
            and back is not None
            and forth.link.idle(float("inf"))
            and back.link.idle(float("inf"))
        )

    stage.until(all_is_acknowledged, QUIET_SECONDS, "each message is acknowledged")
    links._table.forget(float("inf"), lost=False)
    links._table._positions.clear()
    world.trace.note("world", None, "%s forgets the links on which nothing is under way", links.incarnation)
    if world.seed % 4:
        _repeat(stage, slot.process.loops[0], links, theirs)
    calls = stage.calls(called * ROUNDS, "add")
    stage.until(
        lambda: all(each.acknowledged for each in calls),
        STORED_SECONDS, "a link begins again with all that was under way",
    )  # fmt: skip
    world.transition("link", "forgotten by its peer", "begun again")


def _repeat(stage: Stage, loop: SimLoop, links: Links, theirs: Links) -> None:
    """Let a repetition of the stream's first frame come late.

    It is empty and bears no time of its reader, which its writer had not heard yet. So the node
    begins the stream again with it.
    """
    link, now = theirs._tasks[links.incarnation].link, theirs._clock.now()
    data = link._writer.write(link._sender.stream, 1, 0, 0, 0, 0, (), int(now * 1000))

    async def comes() -> None:
        await links.take(data)

    stage.job(loop, comes())
    stage.until(lambda: stage.is_idle, QUIET_SECONDS, "a late repetition comes")
