"""Plans about one node, which is asked itself."""

from __future__ import annotations

from django.http import QueryDict
from django.utils.translation import gettext as _

from sharding_app.admin.operator_plans.plan import Plan, Refused
from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.operations.cache import Look
from sharding_app.protocol.messages import OperatorRequest

OTHERS = "1"
"""A page says that other nodes were up when it was made."""


def _node(look: Look, given: QueryDict) -> View:
    found = homes(look).get(given.get("target", ""))
    if found is None:
        raise Refused(_("That node is no longer in the cluster."))
    return found


def _alone(look: Look, node: View, given: QueryDict) -> list[str]:
    """Warn of a node that is the only one. Raises Refused if the page that is confirmed has not."""
    others = [
        each
        for each in look.cluster.members
        if each.state == "up" and each.incarnation != node["incarnation"]
    ]
    if others:
        return []
    if given.get("others") == OTHERS:
        raise Refused(_("The other nodes are gone since this page was made: look again."))
    return [_("No other node is up to take its shards: commands would wait and fail.")]


def _fields(node: View, alone: list[str]) -> list[tuple[str, str]]:
    return [("target", node["incarnation"]), ("others", "" if alone else OTHERS)]


def drain(look: Look, given: QueryDict) -> Plan:
    node = _node(look, given)
    alone = _alone(look, node, given)
    shards = look.cluster.shards_at(node["incarnation"])
    return Plan(
        title=_("Drain {}").format(node["name"]),
        consequences=[
            *alone,
            _("Its {} shards move to the other nodes, some at a time. Its page shows the progress.").format(words.count(shards)),
            _("It stays in the cluster and can still send commands, but takes no new shards."),
            _("While a node is drained, no shards are rebalanced."),
        ],
        node=node["incarnation"],
        request=OperatorRequest(0, "drain"),
        back=f"nodes/{node['incarnation']}/",
        fields=_fields(node, alone),
        danger=bool(alone),
    )  # fmt: skip


def undrain(look: Look, given: QueryDict) -> Plan:
    node = _node(look, given)
    return Plan(
        title=_("End the drain of {}").format(node["name"]),
        consequences=[_("It takes shards again: new ones at once, others by rebalancing.")],
        node=node["incarnation"],
        request=OperatorRequest(0, "undrain"),
        back=f"nodes/{node['incarnation']}/",
    )


def shutdown(look: Look, given: QueryDict) -> Plan:
    node = _node(look, given)
    alone = _alone(look, node, given)
    shards = look.cluster.shards_at(node["incarnation"])
    return Plan(
        title=_("Shut {} down").format(node["name"]),
        consequences=[
            *alone,
            _("It hands its {} shards over and leaves the cluster, and its process ends.").format(
                words.count(shards)
            ),
            _("The dashboard cannot start it again. Its supervisor may: systemd, Kubernetes, runcluster."),
        ],
        node=node["incarnation"],
        request=OperatorRequest(0, "shutdown"),
        back="nodes/",
        fields=_fields(node, alone),
        danger=True,
    )
