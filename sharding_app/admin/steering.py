"""Steering: a page that says what will happen, then a POST that asks the coordinator or a node to do it.

Contract: each action has a permission of its own, asked at the page and at the POST. Nothing is changed here: the wish goes
to who decides, whose answer is shown as it is. What was asked for, and what came of it, is kept in the admin's history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from sharding_app.admin import words
from sharding_app.admin.history import read_history
from sharding_app.admin.presenters.homes import View, homes
from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Steer, Steered
from sharding_app.errors import ShardingError
from sharding_app.http.collector import Look, Unreachable, ask_cluster, collector
from sharding_app.http.rows import TypeRow
from sharding_app.models import Cluster
from sharding_app.runtime.process import Process
from sharding_app.runtime.questions import STEERED_SECONDS

if TYPE_CHECKING:
    from sharding_app.admin.dashboard import ClusterAdmin


class Refused(Exception):
    """The wish makes no sense now: in words for the operator."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What will happen, and who is to be asked for it."""

    title: str
    consequences: list[str]
    node: Incarnation
    wish: Steer
    back: str = ""
    "Where to go afterwards, behind the dashboard's own address."
    targets: list[View] = field(default_factory=list)
    "Nodes to choose from."
    danger: bool = False


def steer(request: HttpRequest, action: str, admin: ClusterAdmin) -> HttpResponse:
    """Show the plan; or carry it out, and go back to the page that it is about."""
    if action not in ACTIONS:
        raise Http404(_("There is no such page."))
    permission, make = ACTIONS[action]
    if not request.user.has_perm(permission):
        raise PermissionDenied
    given = request.POST if request.method == "POST" else request.GET
    try:
        plan = make(collector.look(), given)
    except (Refused, Unreachable) as error:
        return _page(
            request, admin, {"title": TITLES[action], "refused": str(error), "given": given}, status=409
        )
    if request.method != "POST":
        return _page(request, admin, {"title": plan.title, "plan": plan, "action": action, "given": given})
    plan.wish.by = request.user.get_username()
    done, text = _carry_out(plan)
    _log(request, admin, plan, text)
    messages.add_message(request, messages.SUCCESS if done else messages.WARNING, f"{plan.title}: {text}")
    return HttpResponseRedirect(admin.base() + plan.back)


def _carry_out(plan: Plan) -> tuple[bool, str]:
    async def ask(process: Process) -> Steered | None:
        return await process.questions.steer(plan.node, plan.wish)

    try:
        answer = ask_cluster(ask, seconds=STEERED_SECONDS)
    except ShardingError as error:
        return False, str(error)
    if answer is None:
        return False, _("No answer in time. It may have been done or not: look before you try again.")
    return answer.ok, answer.text


def _log(request: HttpRequest, admin: ClusterAdmin, plan: Plan, text: str) -> None:
    cluster = Cluster.objects.first()
    if cluster is not None:
        admin.log_change(request, cluster, f"{plan.title}: {text}")


def _page(request: HttpRequest, admin: ClusterAdmin, context: View, status: int = 200) -> HttpResponse:
    shown = {**admin.admin_site.each_context(request), "base": admin.base(), **context}
    return TemplateResponse(request, "sharding_app/steer.html", shown, status=status)


# -- Plans -------------------------------------------------------------------------------------------------------------


def _coordinator(look: Look) -> Incarnation:
    leader = look.rows.coordinator.incarnation
    if leader is None or all(each.incarnation != leader for each in look.rows.members):
        raise Refused(_("There is no coordinator now. One is elected within moments while a node is up."))
    return leader


def _rebalance(look: Look, given: QueryDict) -> Plan:
    return Plan(
        title=_("Rebalance now"),
        consequences=[
            _("The coordinator asks each type's strategy which shards should move, and moves them, some at a time."),
            _("A shard that moves is away for some milliseconds: its messages wait. Its entities are recovered at their new home."),
            _("Nothing moves while a node joins or leaves, or while nodes run different versions."),
        ],
        node=_coordinator(look),
        wish=Steer(0, "rebalance"),
    )  # fmt: skip


def _pause(look: Look, given: QueryDict) -> Plan:
    return Plan(
        title=_("Pause rebalancing"),
        consequences=[
            _("No shard is moved for balance any more. What is moving already goes on."),
            _("Shards of nodes that leave or die still get new homes."),
            _("It lasts until you let it go on, or until another coordinator is elected."),
        ],
        node=_coordinator(look),
        wish=Steer(0, "pause"),
    )


def _resume(look: Look, given: QueryDict) -> Plan:
    return Plan(
        title=_("Go on rebalancing"),
        consequences=[_("Shards are moved for balance again, from the next round on.")],
        node=_coordinator(look),
        wish=Steer(0, "resume"),
    )


def _move(look: Look, given: QueryDict) -> Plan:
    row = _type(look, given)
    text = given.get("shard", "")
    shard = next(
        (each for each in look.rows.shards if each.type == row.config.name and str(each.shard) == text), None
    )
    shown = homes(look)
    if shard is None or shard.home not in shown:
        raise Refused(_("This shard lives nowhere now: it gets a home when a message comes for it."))
    hosts = {
        each.incarnation for each in look.rows.members if row.config.name in each.types and each.state == "up"
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
            _("The next round of rebalancing may move others in return."),
        ],
        node=_coordinator(look),
        wish=Steer(0, "move", row.config.name, shard.shard, target=target),
        back=f"types/{row.number}/shards/{shard.shard}/",
        targets=targets,
    )  # fmt: skip


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


def _drain(look: Look, given: QueryDict) -> Plan:
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


def _undrain(look: Look, given: QueryDict) -> Plan:
    node = _node(look, given)
    return Plan(
        title=_("Take {} into use again").format(node["name"]),
        consequences=[_("It takes shards again: new ones at once, others as they are rebalanced.")],
        node=node["incarnation"],
        wish=Steer(0, "undrain"),
        back=f"nodes/{node['incarnation']}/",
    )


def _shutdown(look: Look, given: QueryDict) -> Plan:
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


def _entity(action: str) -> Callable[[Look, QueryDict], Plan]:
    def plan(look: Look, given: QueryDict) -> Plan:
        row = _type(look, given)
        entity = given.get("entity", "")
        if not entity or "\x00" in entity:
            raise Refused(_("Which entity? Its id is missing."))
        shard = read_history(row.number, row.config, entity, None).shard
        home = next(
            (each.home for each in look.rows.shards if each.type == row.config.name and each.shard == shard),
            None,
        )
        if shard is None or home not in homes(look):
            raise Refused(_("Its shard lives nowhere now, so it is not in memory."))
        where = homes(look)[home]["name"]
        stop = [
            _(
                "It is asked at {} to stop when it has handled what it does now, after its stop message if its type has one."
            ).format(where),
            _("What comes for it meanwhile waits, and starts it again."),
        ]
        again = [
            _("Its object at {} is thrown away, and recovered from the journal at once.").format(where),
            _(
                "What it held in memory and had not stored is lost. Commands that wait are handled afterwards."
            ),
        ]
        verb = _("Passivate") if action == "passivate" else _("Restart")
        return Plan(
            title=f"{verb} {row.config.name} {entity}",
            consequences=stop if action == "passivate" else again,
            node=home,
            wish=Steer(0, action, row.config.name, shard, entity),
            back=f"types/{row.number}/entity/?{_query(entity)}",
        )  # fmt: skip

    return plan


def _query(entity: str) -> str:
    query = QueryDict(mutable=True)
    query["id"] = entity
    return query.urlencode()


def _type(look: Look, given: QueryDict) -> TypeRow:
    for each in look.rows.types:
        if str(each.number) == given.get("type", ""):
            return each
    raise Refused(_("The cluster knows no entity type of this number."))


ACTIONS: dict[str, tuple[str, Callable[[Look, QueryDict], Plan]]] = {
    "rebalance": ("sharding.rebalance_shards", _rebalance),
    "pause": ("sharding.rebalance_shards", _pause),
    "resume": ("sharding.rebalance_shards", _resume),
    "move": ("sharding.move_shard", _move),
    "drain": ("sharding.drain_node", _drain),
    "undrain": ("sharding.drain_node", _undrain),
    "shutdown": ("sharding.shut_down_node", _shutdown),
    "passivate": ("sharding.stop_entity", _entity("passivate")),
    "restart": ("sharding.stop_entity", _entity("restart")),
}
"""The permission that each needs, and who makes its plan."""
TITLES: dict[str, Any] = {
    "rebalance": gettext_lazy("Rebalance now"),
    "pause": gettext_lazy("Pause rebalancing"),
    "resume": gettext_lazy("Go on rebalancing"),
    "move": gettext_lazy("Move a shard"),
    "drain": gettext_lazy("Drain a node"),
    "undrain": gettext_lazy("Take a node into use again"),
    "shutdown": gettext_lazy("Shut a node down"),
    "passivate": gettext_lazy("Passivate an entity"),
    "restart": gettext_lazy("Restart an entity"),
}
