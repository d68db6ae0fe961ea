"""Plans about one node, which is asked itself."""

from __future__ import annotations

from django.http import QueryDict
from django.utils.translation import gettext as _

from sharding_app.admin import words
from sharding_app.admin.plans.plan import Plan, Refused
from sharding_app.admin.presenters.homes import View, homes
from sharding_app.core.messages import Steer
from sharding_app.http.collector import Look


def _node(look: Look, given: QueryDict) -> View:
    found = homes(look).get(given.get("target", ""))
    if found is None:
        raise Refused(_("That node is not in the cluster any more."))
    return found


def _alone(look: Look, node: View) -> list[str]:
    others = [
        each for each in look.rows.members if each.state == "up" and each.incarnation != node["incarnation"]
    ]
    if others:
        return []
    return [_("No other node is up: its shards would have nowhere to go, and commands would wait and fail.")]


def drain(look: Look, given: QueryDict) -> Plan:
    node = _node(look, given)
    shards = sum(each.home == node["incarnation"] for each in look.rows.shards)
    return Plan(
        title=_("Drain {}").format(node["name"]),
        consequences=[
            *_alone(look, node),
            _("Its {} shards move to the other nodes, some at a time; its page shows how far it is.").format(words.count(shards)),
            _("It stays in the cluster, takes no new shards, and goes on asking for its own commands."),
            _("While a node is drained, nothing is moved for balance."),
        ],
        node=node["incarnation"],
        wish=Steer(0, "drain"),
        back=f"nodes/{node['incarnation']}/",
        danger=bool(_alone(look, node)),
    )  # fmt: skip


def undrain(look: Look, given: QueryDict) -> Plan:
    node = _node(look, given)
    return Plan(
        title=_("Take {} into use again").format(node["name"]),
        consequences=[_("It takes shards again: new ones at once, others as they are rebalanced.")],
        node=node["incarnation"],
        wish=Steer(0, "undrain"),
        back=f"nodes/{node['incarnation']}/",
    )


def shutdown(look: Look, given: QueryDict) -> Plan:
    node = _node(look, given)
    shards = sum(each.home == node["incarnation"] for each in look.rows.shards)
    return Plan(
        title=_("Shut {} down").format(node["name"]),
        consequences=[
            *_alone(look, node),
            _("It hands its {} shards over, leaves the cluster, and its process ends.").format(
                words.count(shards)
            ),
            _(
                "Nothing starts it again from here. Whatever started it may do so: systemd, Kubernetes, runcluster."
            ),
        ],
        node=node["incarnation"],
        wish=Steer(0, "shutdown"),
        back="nodes/",
        danger=True,
    )
