"""The dashboard's route for WebSockets, looked for in the project's ASGI application: pages tell
browsers the address.
"""

import sys
from typing import Any

from django.conf import settings

live: Any = None
"""The application behind the route: `http.routing` sets it. None: this process has not loaded the
routes.
"""
_DEEPEST = 20


def live_path() -> str | None:
    """Return where the running ASGI application takes the dashboard's WebSockets, as far as this
    process has loaded it.
    """
    module, _, name = str(getattr(settings, "ASGI_APPLICATION", None) or "").rpartition(".")
    return find_live_path(getattr(sys.modules.get(module), name, None))


def find_live_path(application: Any, depth: int = 0) -> str | None:
    """Look for our route in an ASGI application, through routers and wrappers."""
    if application is None or depth > _DEEPEST:
        return None
    mapping = getattr(application, "application_mapping", None)
    if isinstance(mapping, dict):
        return find_live_path(mapping.get("websocket"), depth + 1)
    for route in getattr(application, "routes", None) or ():
        if live is not None and route.callback is live:
            return str(route.pattern)
        below = find_live_path(route.callback, depth + 1)
        if below is not None:
            return f"{route.pattern}{below}"
    for name in ("inner", "application", "app"):
        below = find_live_path(getattr(application, name, None), depth + 1)
        if below is not None:
            return below
    return None
