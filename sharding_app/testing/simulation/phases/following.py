"""Followers when all is calm: they have all that is stored, and get what comes at once."""

from __future__ import annotations

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.topology import Named

LEVEL_SECONDS = 30.0
"""More than a question waits, and then some pauses after failures."""
TOLD_SECONDS = 1.0
SET_SECONDS = 1.0
AWAY_SECONDS = 0.5


def following(stage: Stage) -> None:
    world, followers = stage.world, stage.world.followers
    if not followers.are_there or world.failure is not None:
        return
    stage.until(lambda: not followers.behind(), LEVEL_SECONDS, "followers have all events", promise=19)
    followers.look_back()
    _are_told(stage, "followers are told of a commit")
    if world.cast.moves and not stage.is_over:
        keys = {(made.name, world.shard_of(made.name, entity)): None for made, entity in _followed(stage)}
        world.injector.move(list(keys), None)
        stage.settle("every shard has a live home after a move")
        _are_told(stage, "followers are told of a commit after a move")
    _see_no_more_than_the_standby(stage)


def _are_told(stage: Stage, what: str) -> None:
    """Commit something, and see that it reaches the followers."""
    if stage.is_over:
        return
    calls = stage.calls(_followed(stage), "add")
    stage.until(lambda: all(each.acknowledged for each in calls), SET_SECONDS, "events are stored")
    stage.until(lambda: not stage.world.followers.behind(), TOLD_SECONDS, what, promise=19)


def _see_no_more_than_the_standby(stage: Stage) -> None:
    """Commit events that the synchronous standby lacks, and let it take over: no follower has seen
    them, also one that begins just then.
    """
    world, followers = stage.world, stage.world.followers
    if stage.is_over:
        return
    client = world.clients[0]
    late = followers.unfollowed()
    world.server.standby.part()
    stage.calls([*_followed(stage), *late], "add")
    stage.pass_time(AWAY_SECONDS)
    client.loop.call_soon_threadsafe(followers.follow, client.name, client.asking, late)
    stage.pass_time(AWAY_SECONDS)
    world.server.fail_over()
    stage.settle("every shard has a live home after a standby has taken over")
    stage.until(lambda: not followers.behind(), LEVEL_SECONDS, "followers go on after that", promise=19)
    followers.look_back()


def _followed(stage: Stage) -> list[Named]:
    followed = {each.entity for each in stage.world.followers.of}
    return [each for each in stage.world.cast.entities if f"{each[0].name}/{each[1]}" in followed]
