"""Plans about one node, which is asked itself."""

from __future__ import annotations

from django.http import QueryDict
from django.utils.translation import gettext as _

from sharding_app.admin.operator_plans.plan import Plan, Refused
from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.operations.cache import Look
from sharding_app.protocol.messages import OperatorRequest


def _node(look: Look, given: QueryDict) -> View:
    found = homes(look).get(given.get("target", ""))
    if found is None:
        raise Refused(_("That node is no longer in the cluster."))
    return found


def _alone(look: Look, node: View) -> list[str]:
    others = [
        each
        for each in look.cluster.members
        if each.state == "up" and each.incarnation != node["incarnation"]
    ]
    if others:
        return []
    return [_("No other node is up to take its shards: commands would wait and fail.")]


def drain(look: Look, given: QueryDict) -> Plan:
    node = _node(look, given)
    shards = look.cluster.shards_at(node["incarnation"])
    return Plan(
        title=_("Drain {}").format(node["name"]),
        consequences=[
            *_alone(look, node),
            _("Its {} shards move to the other nodes, some at a time. Its page shows the progress.").format(words.count(shards)),
            _("It stays in the cluster and can still send commands, but takes no new shards."),
            _("While a node is drained, no shards are rebalanced."),
        ],
        node=node["incarnation"],
        request=OperatorRequest(0, "drain"),
        back=f"nodes/{node['incarnation']}/",
        danger=bool(_alone(look, node)),
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
    shards = look.cluster.shards_at(node["incarnation"])
    return Plan(
        title=_("Shut {} down").format(node["name"]),
        consequences=[
            *_alone(look, node),
            _("It hands its {} shards over and leaves the cluster, and its process ends.").format(
                words.count(shards)
            ),
            _("The dashboard cannot start it again. Its supervisor may: systemd, Kubernetes, runcluster."),
        ],
        node=node["incarnation"],
        request=OperatorRequest(0, "shutdown"),
        back="nodes/",
        danger=True,
    )
