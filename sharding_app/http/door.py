"""Decides which users may open the dashboard's WebSocket, by asking the admin site as its pages do.

Django's middleware does not run for a WebSocket, so the request that the site is asked about is
made here, from the handshake: its headers, address, session and user. A second factor that a site's
`has_permission` reads from the session or from the user's row counts. One that only a middleware
knows cannot be seen here: then `has_permission` raises or returns False, the socket is refused, and
the page polls.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.contrib.admin.sites import all_sites
from django.contrib.auth import get_user
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.utils.http import is_same_domain

from sharding_app.dashboard.permissions import may_view
from sharding_app.models import Cluster

logger = logging.getLogger("sharding.client")

DEFAULT_SITE = "admin"
_PORTS = {"http": 80, "https": 443}


def site_name(scope: Mapping[str, Any]) -> str:
    """Return the name of the admin site whose page opens the socket."""
    query = parse_qs(bytes(scope.get("query_string", b"")).decode("latin-1"))
    return query.get("site", [DEFAULT_SITE])[-1]


def request_of(scope: Mapping[str, Any]) -> HttpRequest:
    """Return the handshake as a request, with its session and its user as the database has them
    now.
    """
    scheme = "https" if scope.get("scheme") == "wss" else "http"
    request = ASGIRequest({**scope, "type": "http", "method": "GET", "scheme": scheme}, BytesIO())
    store = import_module(settings.SESSION_ENGINE).SessionStore
    request.session = store(request.COOKIES.get(settings.SESSION_COOKIE_NAME, ""))
    request.user = get_user(request)
    return request


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


def from_own_page(scope: Mapping[str, Any]) -> bool:
    """Tell whether a page of this site opens the socket: host and port are its own, or
    CSRF_TRUSTED_ORIGINS names them.

    The browser sends the user's cookie whichever page opens a socket.
    """
    request = ASGIRequest({**scope, "type": "http", "method": "GET", "scheme": "http"}, BytesIO())
    try:
        origin = urlsplit(request.META.get("HTTP_ORIGIN", ""))
        mine = urlsplit(f"{origin.scheme}://{request.get_host()}")
        if origin.scheme not in _PORTS or not origin.hostname:
            return False
        port = _PORTS[origin.scheme]
        same = (origin.hostname, origin.port or port) == (mine.hostname, mine.port or port)
        return same or any(_trusts(urlsplit(each), origin) for each in settings.CSRF_TRUSTED_ORIGINS)
    except (ValueError, DisallowedHost):
        return False


def _trusts(trusted: Any, origin: Any) -> bool:
    """Compare as Django's CSRF protection does: a star stands for any subdomain."""
    return bool(
        trusted.scheme == origin.scheme and is_same_domain(origin.netloc, trusted.netloc.removeprefix("*"))
    )
