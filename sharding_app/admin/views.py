"""The dashboard's views, below the address of the model `Cluster` on an admin site.

They bring the engine and its clients of Redis along, so they are imported with the site's addresses
(`admin.cluster_admin`): a command without a web page does not load them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, re_path
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from sharding_app.adapters.django.database import without_transaction
from sharding_app.admin import operator_actions
from sharding_app.admin.model_admins import ReadOnlyAdmin
from sharding_app.dashboard import live_route
from sharding_app.dashboard.pages import PAGES, build, pattern
from sharding_app.dashboard.pages.page import Page
from sharding_app.dashboard.permissions import Rights, may_view
from sharding_app.dashboard.presenters.shard_map import table
from sharding_app.models import Cluster
from sharding_app.operations.cache import Unreachable, collector, in_words

TABS = (
    ("overview", "", _("Overview")),
    ("nodes", "nodes/", _("Nodes")),
    ("types", "types/", _("Entity types")),
    ("singletons", "singletons/", _("Singletons")),
    ("workers", "workers/", _("Workers")),
    ("messages", "messages/", _("Messages")),
    ("projections", "projections/", _("Projections")),
    ("charts", "charts/", _("Charts")),
    ("load", "load/", _("Load")),
    ("database", "database/", _("Database")),
    ("timeline", "timeline/", _("Timeline")),
    ("trouble", "trouble/", _("Drops and failures")),
)
HISTORY_SHOWN = 200
OWN_TEMPLATES = frozenset(("overview", "type", "entity", "timeline", "messages", "message", "database"))


class Views:
    def __init__(self, admin: ReadOnlyAdmin) -> None:
        self._admin = admin
        self._site = admin.admin_site

    def urls(self) -> list[URLPattern]:
        own = [
            re_path(pattern(address), self._guarded(self.page), name=f"sharding_cluster_{name}")
            for name, address, _builder in PAGES
            if address
        ]
        return [
            path("", self._guarded(self.page), name="sharding_cluster_changelist"),
            path("live/", self._guarded(self.live), name="sharding_cluster_live"),
            path(
                "steer/<slug:action>/",
                without_transaction(self._guarded(self.steer)),
                name="sharding_cluster_steer",
            ),
            path("history/", self._guarded(self.history), name="sharding_cluster_steered"),
            path("<int:object_id>/change/", self._guarded(self.to_overview), name="sharding_cluster_change"),
            *own,
        ]

    def _guarded(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        """The site's own door, then the dashboard's."""

        def guarded(request: HttpRequest, **parts: str) -> HttpResponse:
            if not may_view(request.user):
                raise PermissionDenied
            request.current_app = self._site.name
            return view(request, **parts)

        return self._site.admin_view(never_cache(guarded))

    # -- Views -------------------------------------------------------------------------------------

    def page(self, request: HttpRequest, **_parts: str) -> HttpResponse:
        topic = request.get_full_path()[len(self._admin.base()) :]
        try:
            page = build(topic, collector.look(), Rights.of(request.user), self._admin.base())
        except (Unreachable, DatabaseError) as error:
            return self._admin.nothing(request, _("The cluster cannot be shown"), in_words(error), 503)
        except Http404 as error:
            return self._admin.nothing(request, _("Not found"), str(error), 404)
        return TemplateResponse(
            request, f"sharding_app/pages/{self._template(page)}.html", self._context(request, page, topic)
        )

    def live(self, request: HttpRequest) -> JsonResponse:
        """The live parts of a page: what the WebSocket pushes, for those who have none."""
        try:
            page = build(
                request.GET.get("page", ""),
                collector.look(),
                Rights.of(request.user),
                self._admin.base(),
                live=True,
            )
        except (Unreachable, DatabaseError) as error:
            return JsonResponse({"trouble": in_words(error)}, status=503)
        except Http404 as error:
            return JsonResponse({"trouble": str(error)}, status=404)
        return JsonResponse(page.live())

    def steer(self, request: HttpRequest, action: str) -> HttpResponse:
        return operator_actions.steer(request, action, self._admin)

    def history(self, request: HttpRequest) -> HttpResponse:
        """The requests of operators, newest first."""
        content_type = ContentType.objects.get_for_model(Cluster)
        entries = LogEntry.objects.filter(content_type=content_type).select_related("user")
        context = {
            **self._site.each_context(request),
            "base": self._admin.base(),
            "title": _("Actions of operators"),
            "entries": entries.order_by("-action_time", "-pk")[:HISTORY_SHOWN],
        }
        return TemplateResponse(request, "sharding_app/history.html", context)

    def to_overview(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """The admin's own history links to the cluster as to any object."""
        return HttpResponseRedirect(self._admin.base())

    # -- Inside ------------------------------------------------------------------------------------

    @staticmethod
    def _template(page: Page) -> str:
        return page.template if page.template in OWN_TEMPLATES else "plain"

    def _context(self, request: HttpRequest, page: Page, topic: str) -> dict[str, Any]:
        return {
            **self._site.each_context(request),
            **page.context,
            "page": page,
            "parts": [(part, f"sharding_app/parts/{part}.html") for part in page.parts],
            "table": table(page.context["cells"], self._admin.base(), page.context["type"]["number"])
            if "cells" in page.context
            else "",
            "tabs": TABS,
            "topic": f"{topic}{'&' if '?' in topic else '?'}{page.seen}" if page.seen else topic,
            "socket": socket_address(request),
            "site_name": self._site.name,
            "zone": timezone.get_current_timezone_name(),
        }


def socket_address(request: HttpRequest) -> str:
    """Where this process takes WebSockets of the dashboard; empty: it does not, so that browsers
    look by polling.
    """
    found = live_route.live_path() if live_route.live is not None else None
    return "" if found is None else f"{request.META.get('SCRIPT_NAME', '')}/{found}"
