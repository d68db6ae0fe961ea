"""Where the site takes live connections, as far as this process has loaded its routes: pages tell
browsers the addresses.
"""

import sys
from typing import Any

from django.conf import settings
from django.urls import NoReverseMatch, reverse

socket: Any = None
"""The application behind the route for WebSockets: `http.routing` sets it."""
_DEEPEST = 20


def socket_path() -> str | None:
    """Return where the running ASGI application takes the WebSockets of live pages."""
    return path_of(socket)


def stream_path() -> str | None:
    """Return where the site sends server-sent events."""
    try:
        return reverse("sharding:live-pages")
    except NoReverseMatch:
        return None


def path_of(wanted: Any) -> str | None:
    """Return the path of a route in the project's ASGI application, if this process has loaded
    it.
    """
    if wanted is None:
        return None
    module, _, name = str(getattr(settings, "ASGI_APPLICATION", None) or "").rpartition(".")
    return find_path(getattr(sys.modules.get(module), name, None), wanted)


def find_path(application: Any, wanted: Any, depth: int = 0) -> str | None:
    """Look for a route in an ASGI application, through routers and wrappers."""
    if application is None or wanted is None or depth > _DEEPEST:
        return None
    mapping = getattr(application, "application_mapping", None)
    if isinstance(mapping, dict):
        return find_path(mapping.get("websocket"), wanted, depth + 1)
    for route in getattr(application, "routes", None) or ():
        if route.callback is wanted:
            return str(route.pattern)
        below = find_path(route.callback, wanted, depth + 1)
        if below is not None:
            return f"{route.pattern}{below}"
    for name in ("inner", "application", "app"):
        below = find_path(getattr(application, name, None), wanted, depth + 1)
        if below is not None:
            return below
    return None
