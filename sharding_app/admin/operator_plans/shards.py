"""Plans about shards, for the coordinator: balancing now or not, and moving one."""

from __future__ import annotations

from django.http import QueryDict
from django.utils.translation import gettext as _

from sharding_app.admin.operator_plans.plan import Plan, Refused, type_row
from sharding_app.dashboard.presenters.homes import homes
from sharding_app.operations.cache import Look
from sharding_app.operations.snapshot import read_shards
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import OperatorRequest


def rebalance(look: Look, given: QueryDict) -> Plan:
    return Plan(
        title=_("Rebalance now"),
        consequences=[
            _("The coordinator asks each type's strategy which shards to move, and moves them, some at a time."),
            _("Messages to a moving shard wait, for some milliseconds. Its entities are recovered at the new home."),
            _("Nothing moves while a node joins or leaves, or while nodes run different versions."),
        ],
        node=_coordinator(look),
        request=OperatorRequest(0, "rebalance"),
    )  # fmt: skip


def pause(look: Look, given: QueryDict) -> Plan:
    return Plan(
        title=_("Pause rebalancing"),
        consequences=[
            _("No more shards are rebalanced. Moves that have started are completed."),
            _("Shards of nodes that leave or die still get new homes."),
            _("The pause lasts until rebalancing is resumed, or until another coordinator is elected."),
        ],
        node=_coordinator(look),
        request=OperatorRequest(0, "pause"),
    )


def resume(look: Look, given: QueryDict) -> Plan:
    return Plan(
        title=_("Resume rebalancing"),
        consequences=[_("Shards are rebalanced again, from the next round on.")],
        node=_coordinator(look),
        request=OperatorRequest(0, "resume"),
    )


def move(look: Look, given: QueryDict) -> Plan:
    row = type_row(look, given)
    text = given.get("shard", "")
    known = text.isdecimal() and len(text) < 10
    shard = read_shards(row.number, range(int(text), int(text) + 1)).get(int(text)) if known else None
    shown = homes(look)
    if shard is None or shard.home not in shown:
        raise Refused(_("This shard has no home now: it gets one with its next message."))
    hosts = {
        each.incarnation
        for each in look.cluster.members
        if row.config.name in each.types and each.state == "up"
    }
    targets = [home for name, home in shown.items() if name in hosts and name != shard.home]
    if not targets:
        raise Refused(_("No other node hosts this type now."))
    target = given.get("target") or targets[0]["incarnation"]
    if all(each["incarnation"] != target for each in targets):
        raise Refused(_("That node cannot take this shard: it is gone, leaving, or does not host the type."))
    return Plan(
        title=_("Move shard {shard} of {name}").format(shard=shard.shard, name=row.config.name),
        consequences=[
            _("It lives at {} now. Its messages are held back until it has moved: some milliseconds, or as long as its busiest entity needs.").format(shown[shard.home]["name"]),
            _("Its entities stop there, and are recovered at the new home with their next messages."),
            _("The next round of rebalancing may move other shards in return."),
        ],
        node=_coordinator(look),
        request=OperatorRequest(0, "move", row.config.name, shard.shard, target=target),
        back=f"types/{row.number}/shards/{shard.shard}/",
        targets=targets,
    )  # fmt: skip


def _coordinator(look: Look) -> Incarnation:
    leader = look.cluster.coordinator.incarnation
    if leader is None or all(each.incarnation != leader for each in look.cluster.members):
        raise Refused(_("There is no coordinator now. One is elected within seconds if a node is up."))
    return leader
