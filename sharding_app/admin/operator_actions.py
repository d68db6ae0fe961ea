"""Operators' actions: a page that shows the plan, then a POST that asks the process that decides.

A plan with private parameters is asked for by a POST too, which names it (`PLAN`).

Contract: each action has a permission of its own, asked at the page and at the POST. Nothing is
changed here: the coordinator or a node decides, and its answer is shown as it is. Messages and
timers are rows, which one statement changes (`operations.messages`). The request and its outcome
are kept in the admin's history.
"""

from __future__ import annotations

import logging

from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS, DatabaseError, Error, connections
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from sharding_app.admin.model_admins import ReadOnlyAdmin
from sharding_app.admin.operator_plans import ACTIONS
from sharding_app.admin.operator_plans.plan import Plan, Refused
from sharding_app.dashboard.presenters.homes import View
from sharding_app.errors import ShardingError
from sharding_app.models import Cluster
from sharding_app.operations.cache import Unreachable, ask_cluster, collector, in_words
from sharding_app.protocol.messages import OperatorReply
from sharding_app.runtime.asking.queries import OPERATOR_SECONDS
from sharding_app.runtime.node.process import Process

PLAN = "plan"
"""Field of a form that asks for the plan, and changes nothing."""

logger = logging.getLogger("sharding.client")


def steer(request: HttpRequest, action: str, admin: ReadOnlyAdmin) -> HttpResponse:
    """Show the plan; or carry it out, and go back to the page that it is about."""
    if action not in ACTIONS:
        raise Http404(_("There is no such page."))
    chosen = ACTIONS[action]
    if not request.user.has_perm(chosen.permission):
        raise PermissionDenied
    carries_out = request.method == "POST" and PLAN not in request.POST
    given = request.POST if request.method == "POST" or chosen.private else request.GET
    try:
        plan = chosen.plan(collector.look(), given)
    except (Refused, Unreachable, DatabaseError) as error:
        status = 503 if isinstance(error, DatabaseError) else 409
        why = str(error) if isinstance(error, Refused) else in_words(error)
        return _page(request, admin, {"title": chosen.title, "refused": why, "given": given}, status=status)
    if plan.fields is None:
        asked = [*(["target"] if plan.targets else []), *(["confirm"] if plan.confirm else [])]
        hidden = {"csrfmiddlewaretoken", PLAN, *asked}
        plan.fields = [(name, given.get(name, "")) for name in given if name not in hidden]
    if not carries_out:
        return _page(request, admin, {"title": plan.title, "plan": plan, "action": action, "given": given})
    if plan.confirm and given.get("confirm") != plan.confirm:
        unconfirmed = {
            "title": plan.title,
            "plan": plan,
            "action": action,
            "given": given,
            "unconfirmed": True,
        }
        return _page(request, admin, unconfirmed, status=409)
    if plan.request is not None:
        plan.request.by = request.user.get_username()
    # The intent is written first: what happens next may end this process, or raise.
    try:
        entry = _log(request, admin, plan)
    except DatabaseError as error:
        why = _("Nothing was done, for the admin's history cannot be written: {}").format(error)
        return _page(request, admin, {"title": plan.title, "refused": why, "given": given}, status=503)
    done, text = _carry_out(plan, request.user.get_username())
    if entry is not None and not _keep(entry, f"{plan.logged or plan.title}: {text}"):
        text = _("{} The admin's history lacks this outcome: it could not be written.").format(text)
    messages.add_message(request, messages.SUCCESS if done else messages.WARNING, f"{plan.title}: {text}")
    return HttpResponseRedirect(admin.base() + plan.back)


def _carry_out(plan: Plan, by: str) -> tuple[bool, str]:
    if plan.work is not None:
        return plan.work()
    if plan.signed_work is not None:
        return plan.signed_work(by)
    request = plan.request
    assert request is not None  # noqa: S101 - a plan has work or a request

    is_under_way = False

    async def ask(process: Process) -> OperatorReply | None:
        nonlocal is_under_way
        is_under_way = True
        return await process.queries.operate(plan.node, request)

    try:
        answer = ask_cluster(ask, seconds=OPERATOR_SECONDS)
    except ShardingError as error:
        if not is_under_way:
            return False, str(error)
        # The loop of this process stood still for longer than a node has to answer.
        return False, f"{str(error).rstrip('.')}. {_not_known()}"
    if answer is None:
        return False, f"{_('No answer in time.')} {_not_known()}"
    return answer.ok, answer.text


def _not_known() -> str:
    return _("The request may have been carried out or not: check before you try again.")


def _log(request: HttpRequest, admin: ReadOnlyAdmin, plan: Plan) -> LogEntry | None:
    cluster = Cluster.objects.first()
    if cluster is None:
        return None
    return admin.log_change(
        request, cluster, f"{plan.logged or plan.title}: {_('requested, not answered yet')}"
    )


def _keep(entry: LogEntry, outcome: str) -> bool:
    """Write the outcome of a request beside it; return whether that went well.

    The connection may have been ended while the request was carried out: then another one is tried.
    """
    entry.change_message = outcome
    try:
        try:
            entry.save(update_fields=["change_message"])
        except Error:
            connections[entry._state.db or DEFAULT_DB_ALIAS].close_if_unusable_or_obsolete()
            entry.save(update_fields=["change_message"])
    except Error:
        logger.warning(
            "the admin's history lacks the outcome of an action",
            exc_info=True, extra={"action": "history_lacks_outcome"},
        )  # fmt: skip
        return False
    return True


def _page(request: HttpRequest, admin: ReadOnlyAdmin, context: View, status: int = 200) -> HttpResponse:
    shown = {**admin.admin_site.each_context(request), "base": admin.base(), **context}
    return TemplateResponse(request, "sharding_app/steer.html", shown, status=status)
