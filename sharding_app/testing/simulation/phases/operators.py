"""What operators do with messages and timers in calm: retry, run now, discard, and erase an entity
that has some. A daily timer fires, and goes on a day later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from sharding_app.runtime.node.process import Process
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.hosts import host_at
from sharding_app.testing.simulation.message_checker import AHEAD_SECONDS, DAY_SECONDS, LONGEST_SECONDS
from sharding_app.testing.simulation.operators import discard, run_now
from sharding_app.testing.simulation.phases.turmoil import erase
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.senders import ACCOUNT
from sharding_app.testing.simulation.topology import Named
from sharding_app.testing.simulation.workload import ZONE

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

    Change = Callable[[World, Process, str], Awaitable[None]]

SET_SECONDS = 1.0
DONE_SECONDS = 1.0
"""Less than the time after which a row counts as overdue: the operator's word has to do."""
STAYS_SECONDS = 0.5


def operators(stage: Stage) -> None:
    world = stage.world
    accounts = [each for each in world.cast.senders if each[0] is ACCOUNT]
    if not accounts or world.failure is not None:
        return
    first, last = accounts[0], accounts[-1]
    _is_retried(stage, first)
    _is_run_now(stage, last)
    _is_discarded(stage, first)
    _fires_daily(stage, last)
    _is_erased(stage, first)


def _is_retried(stage: Stage, account: Named) -> None:
    """A message that its target has rejected is parked. It takes effect when it comes again."""
    token = _ordered(stage, account, "hesitate_one", parked=True)
    _operate(stage, token, run_now)
    _comes_to_its_end(stage, token, 15, "a message that an operator retries arrives")


def _is_run_now(stage: Stage, account: Named) -> None:
    """A timer fires whose time is far away."""
    token = _ordered(stage, account, "set_far")
    _operate(stage, token, run_now)
    _comes_to_its_end(stage, token, 16, "a timer that an operator runs fires")


def _is_discarded(stage: Stage, account: Named) -> None:
    for command, parked in (("lose_one", True), ("set_far", False)):
        token = _ordered(stage, account, command, parked=parked)
        _operate(stage, token, discard)
        _is_gone(stage, token)


def _fires_daily(stage: Stage, account: Named) -> None:
    """A daily timer fires at its time of day, and is due at the same time of the next day."""
    checker = stage.world.witness.messages
    token = _ordered(stage, account, "set_daily")
    seconds = AHEAD_SECONDS + LONGEST_SECONDS + DONE_SECONDS
    stage.until(lambda: stage.is_over or checker.has_ended(token), seconds, "a daily timer fires", promise=16)
    if stage.is_over:
        return
    (stored,) = checker.rows_of(token)
    at = checker.time_of(token).astimezone(ZoneInfo(ZONE))
    if abs(stored.due - at - timedelta(seconds=DAY_SECONDS)) > timedelta(milliseconds=1):
        detail = f"{token!r} fires at {at}, and then at {stored.due}"
        stage.world.broke(PromiseBroken(16, "timers_fire_daily", detail))
    _operate(stage, token, discard)
    _is_gone(stage, token)


def _is_erased(stage: Stage, account: Named) -> None:
    """Erase an account with a timer and a parked message. Those to others have arrived before."""
    world = stage.world
    tokens = [_ordered(stage, account, "set_far"), _ordered(stage, account, "lose_one", parked=True)]
    if stage.is_over:
        return
    made, entity = account
    number = world.shard_of(made.name, entity)
    row = world.server.cluster.shards[made.name, number]
    home = next((each for each in world.nodes if row.home in each.incarnations), None)
    if home is None or home.node is None:
        return
    loop, host = home.process.loops[0], host_at(home.node, made.name, number)
    if host is None:
        return
    loop.call_soon_threadsafe(lambda: stage.job(loop, erase(stage, host, number, entity)))
    for token in tokens:
        _is_gone(stage, token)


# -- Steps -----------------------------------------------------------------------------------------


def _ordered(stage: Stage, account: Named, command: str, *, parked: bool = False) -> str:
    """Have an account send a message or set a timer. Return its token once its row is there."""
    checker = stage.world.witness.messages
    call = stage.call(account, command)
    stage.until(lambda: call.acknowledged, SET_SECONDS, "a command with an order is acknowledged")
    if stage.is_over:
        return ""
    made, entity = account
    token = checker.order_of(f"{made.name}/{entity}", call.given[0]).token
    stage.until(
        lambda: any(each.parked == parked for each in checker.rows_of(token)), SET_SECONDS, f"{command} waits",
        promise=15,
    )  # fmt: skip
    return token


def _operate(stage: Stage, token: str, change: Change) -> None:
    """Have an operator change the row with this token."""
    world, checker = stage.world, stage.world.witness.messages
    if stage.is_over:
        return
    client = world.clients[0]

    async def operate() -> None:
        for each in checker.rows_of(token):
            if change is run_now:
                checker.is_run(token)
            await change(world, client.asking, each.row.id)
        if change is discard:
            checker.is_discarded(token)

    client.loop.call_soon_threadsafe(lambda: stage.job(client.loop, operate()))


def _comes_to_its_end(stage: Stage, token: str, promise: int, what: str) -> None:
    checker = stage.world.witness.messages
    stage.until(lambda: checker.has_ended(token) and not checker.rows_of(token), DONE_SECONDS, what, promise)


def _is_gone(stage: Stage, token: str) -> None:
    """Wait until a row is gone, and whether it stays so."""
    checker = stage.world.witness.messages
    stage.until(
        lambda: stage.is_idle and not checker.rows_of(token), DONE_SECONDS, "a row is gone", promise=15
    )
    stage.pass_time(STAYS_SECONDS)
