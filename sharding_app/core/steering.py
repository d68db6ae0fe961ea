"""What an operator asks of the coordinator: a decision of its own, or a refusal that says why.

Contract: a wish changes nothing by itself that the coordinator could not have decided; promises hold as ever. What was
done goes to the timeline with the name of who wanted it.
"""

from sharding_app.core.coordinator import Coordinator
from sharding_app.core.effects import Note
from sharding_app.core.messages import Steer
from sharding_app.core.records import Decision

COORDINATOR_ACTIONS = frozenset(("rebalance", "pause", "resume", "move"))

Outcome = tuple[bool, str]
"""Whether it was done, and what to tell the operator."""


def steer(machine: Coordinator, wish: Steer, now: float) -> Outcome:
    match wish.action:
        case "rebalance":
            done, text = _rebalance(machine, wish.type, now)
        case "pause" | "resume":
            done, text = _pause(machine, pause=wish.action == "pause")
        case "move":
            done, text = _move(machine, wish, now)
        case _:
            return False, f"The coordinator does not know the wish {wish.action!r}."
    if done:
        subject = f"{wish.type}/{wish.shard}" if wish.action == "move" else machine.me
        action = {
            "rebalance": "rebalancing_asked",
            "pause": "rebalancing_paused",
            "resume": "rebalancing_resumed",
        }
        machine.out.append(Note(Decision(action.get(wish.action, "move_asked"), subject, f"by {wish.by}")))
    return done, text


def _rebalance(machine: Coordinator, type_name: str, now: float) -> Outcome:
    if not machine.rounds.enabled:
        return False, "Rebalancing is paused: let it go on first."
    if machine.placement.all_stops:
        return False, "The whole cluster is about to stop: nothing is moved."
    before = len(machine.handoffs.active) + len(machine.handoffs.queued)
    if type_name and type_name not in machine.placement.allocated:
        return False, f"No shard of {type_name!r} has a home: there is nothing to move."
    machine.rounds.begin(now, [type_name] if type_name else None)
    moving = len(machine.handoffs.active) + len(machine.handoffs.queued) - before
    if moving:
        return True, f"{moving} shard{'s' if moving > 1 else ''} will move in the first round."
    members = machine.members.values()
    if machine.placement.suspect or any(each.state != "up" or each.deaf for each in members):
        return True, "Nothing moves: a node joins, leaves, or is in doubt."
    return True, "Nothing has to move: the shards are balanced, or the nodes run different versions."


def _pause(machine: Coordinator, *, pause: bool) -> Outcome:
    if machine.rounds.enabled is not pause:
        return False, "Rebalancing is paused already." if pause else "Rebalancing is not paused."
    machine.rounds.enabled = not pause
    if pause:
        return True, "Rebalancing is paused until it is let go on, or another coordinator is elected."
    return True, "Rebalancing goes on."


def _move(machine: Coordinator, wish: Steer, now: float) -> Outcome:
    key = wish.type, wish.shard
    row = machine.placement.rows.get(key)
    if row is None or row.home is None:
        return False, "The shard lives nowhere: it gets a home when a message comes for it."
    if wish.target not in machine.placement.hosts_of(wish.type):
        return (
            False,
            "That node cannot take shards of this type now: it is gone, leaving, in doubt, or does not host it.",
        )
    if row.home == wish.target:
        return False, "The shard lives there already."
    moving = key in machine.handoffs.active or key in machine.handoffs.queued
    if moving or key in machine.starting or key in machine.writing:
        return False, "The shard is moving already."
    machine.handoffs.begin([key], now, wish.target)
    return (
        True,
        "The shard moves: its entities stop, and start again at their new home with their next messages.",
    )
