"""Durable messages and timers when all is calm: everything that was set in motion arrives."""

from __future__ import annotations

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.message_checker import LONGEST_SECONDS
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.senders import ACCOUNT
from sharding_app.testing.simulation.topology import Named
from sharding_app.testing.simulation.virtual_node import DELIVERIES, DRIFT

ARRIVED_SECONDS = 25.0
"""Twice the longest time until an overdue row is noticed, and the pauses after failures."""
SET_SECONDS = 0.5
LOST_SECONDS = 0.4
KNOWN_SECONDS = 1.5
OVERDUE_OF_EIGHT = 4
FOUND_SECONDS = (DELIVERIES.overdue_seconds + DELIVERIES.net_seconds) * (1 + DRIFT) + 1.0
FIRED_SECONDS = LONGEST_SECONDS + 1.5
"""This and KNOWN_SECONDS are less than the time after which a row counts as overdue."""


def messages(stage: Stage) -> None:
    world = stage.world
    if not world.cast.senders or world.failure is not None:
        return
    checker = world.witness.messages
    stage.until(
        lambda: not checker.waiting(), ARRIVED_SECONDS, "all that was set in motion arrives", promise=15
    )
    if stage.is_over:
        return
    try:
        checker.look_back()
    except PromiseBroken as error:
        world.broke(error)
    for command in ("pay_one", "book_one"):
        _is_in_doubt(stage, command)
    _is_overdue(stage)
    _moves_with_its_shard(stage)


def _is_in_doubt(stage: Stage, command: str) -> None:
    """Lose the answer to the append that stores a message: it arrives all the same, and at once.

    The node ends the session of an append that is in doubt. Where it is faster than the commit,
    again and again, an answer comes through in the end.
    """
    if stage.is_over:
        return
    world, checker = stage.world, stage.world.witness.messages
    account = next(each for each in world.cast.senders if each[0] is ACCOUNT)
    world.conditions.lost_answers = 1.0
    call = stage.call(account, command)
    heard_again = world.now + LOST_SECONDS
    stage.until(lambda: checker.waiting() or world.now >= heard_again, SET_SECONDS, "answers are lost")
    world.conditions.lost_answers = 0.0
    stage.until(
        lambda: call.acknowledged and not checker.waiting(), KNOWN_SECONDS, "a message in doubt arrives", promise=15
    )  # fmt: skip


def _is_overdue(stage: Stage) -> None:
    """Store a message of which no home is told: a node that looks for overdue rows finds it."""
    world = stage.world
    if world.seed % 8 != OVERDUE_OF_EIGHT or world.failure is not None:
        return
    client = world.clients[0]
    account = next(each for each in world.cast.senders if each[0] is ACCOUNT)
    stage.job(client.loop, client.caller.store_in_silence(account))
    checker = world.witness.messages
    stage.until(checker.waiting, SET_SECONDS, "a message is stored")
    stage.until(
        lambda: stage.is_idle and not checker.waiting(), FOUND_SECONDS, "an overdue message is found", promise=15
    )  # fmt: skip


def _moves_with_its_shard(stage: Stage) -> None:
    """Move accounts whose timers are set: the next home fires them, and needs no look for what is
    overdue.
    """
    world = stage.world
    accounts = set_timers(stage)
    if stage.is_over:
        return
    if world.cast.moves:
        keys = {(made.name, world.shard_of(made.name, entity)): None for made, entity in accounts}
        world.injector.move(list(keys), None)
    stage.until(
        lambda: not world.witness.messages.waiting(), FIRED_SECONDS, "timers fire on time after a move", promise=16
    )  # fmt: skip


def set_timers(stage: Stage) -> list[Named]:
    """Have each account set a timer; return the accounts."""
    accounts = [each for each in stage.world.cast.senders if each[0] is ACCOUNT]
    if accounts and not stage.is_over:
        calls = stage.calls(accounts, "set_one")
        stage.until(lambda: all(each.acknowledged for each in calls), SET_SECONDS, "timers are set")
    return accounts
