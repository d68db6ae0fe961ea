"""Decides which users may open the dashboard's WebSocket, by asking the admin site as its pages do.

A second factor that a site's `has_permission` reads from the session or from the user's row counts.
One that only a middleware knows cannot be seen here, since no middleware runs for a WebSocket: then
`has_permission` raises or returns False, the socket is refused, and the page polls.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from django.contrib.admin.sites import all_sites

from sharding_app.dashboard.permissions import may_view
from sharding_app.http.handshake import request_of
from sharding_app.models import Cluster

logger = logging.getLogger("sharding.client")

DEFAULT_SITE = "admin"


def site_name(scope: Mapping[str, Any]) -> str:
    """Return the name of the admin site whose page opens the socket."""
    query = parse_qs(bytes(scope.get("query_string", b"")).decode("latin-1"))
    return query.get("site", [DEFAULT_SITE])[-1]


def user_of(scope: Mapping[str, Any]) -> Any:
    """Return the user who may watch through this socket, by the present session, user and site;
    None: there is none.
    """
    request = request_of(scope)
    user = request.user
    if not user.is_active or not may_view(user):
        return None
    name = site_name(scope)
    sites = [site for site in all_sites if site.name == name and site.is_registered(Cluster)]
    try:
        return user if sites and all(site.has_permission(request) for site in sites) else None
    except Exception:
        # It may need a value that only a middleware adds. Its answer is unknown then, so the socket
        # is refused.
        logger.warning(
            "no live updates: has_permission of the admin site %r fails for a WebSocket",
            name, exc_info=True, extra={"action": "live_refused"},
        )  # fmt: skip
        return None
