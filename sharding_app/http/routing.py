"""The dashboard's live updates, for a project's `asgi.py`::

    from channels.routing import ProtocolTypeRouter, URLRouter
    from sharding_app.http.routing import websocket_urlpatterns

    application = ProtocolTypeRouter({
        "http": get_asgi_application(),
        "websocket": URLRouter(websocket_urlpatterns),
    })

It needs nothing around it: it reads the admin's session and looks at the origin itself. Other routes may stand beside it.
"""

import sys
from typing import Any

from django.conf import settings
from django.urls import path

from sharding_app.adapters.channels.live import live_application
from sharding_app.http.feed import Feeds

live = live_application(Feeds())
websocket_urlpatterns = [path("sharding/live/", live)]
_DEEPEST = 20


def live_path() -> str | None:
    """Where the running ASGI application takes the dashboard's WebSockets, as far as this process has loaded it."""
    module, _, name = str(getattr(settings, "ASGI_APPLICATION", None) or "").rpartition(".")
    return find_live_path(getattr(sys.modules.get(module), name, None))


def find_live_path(application: Any, depth: int = 0) -> str | None:
    """Look for our route in an ASGI application, through routers and what is wrapped around them."""
    if application is None or depth > _DEEPEST:
        return None
    mapping = getattr(application, "application_mapping", None)
    if isinstance(mapping, dict):
        return find_live_path(mapping.get("websocket"), depth + 1)
    for route in getattr(application, "routes", None) or ():
        if route.callback is live:
            return str(route.pattern)
        below = find_live_path(route.callback, depth + 1)
        if below is not None:
            return f"{route.pattern}{below}"
    for name in ("inner", "application", "app"):
        below = find_live_path(getattr(application, name, None), depth + 1)
        if below is not None:
            return below
    return None
