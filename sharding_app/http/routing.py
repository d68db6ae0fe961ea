"""The WebSockets of the dashboard and of live pages, for a project's `asgi.py`::

    from channels.routing import ProtocolTypeRouter, URLRouter
    from sharding_app.http.routing import websocket_urlpatterns

    application = ProtocolTypeRouter({
        "http": get_asgi_application(),
        "websocket": URLRouter(websocket_urlpatterns),
    })

They need nothing around them: they read the session and look at the origin themselves. Other routes
may stand beside them.
"""

from typing import Any

from django.urls import path

from sharding_app.adapters.channels.live import live_application
from sharding_app.dashboard import live_route
from sharding_app.http.feed import Feeds
from sharding_app.http.pages import live_socket
from sharding_app.live import routes

live = live_route.live = live_application(Feeds())
# An ASGI application, as Channels' own routes have them; Django's stubs think of views.
live_pages: Any = live_socket
routes.socket = live_pages
websocket_urlpatterns = [path("sharding/live/", live), path("sharding/live-pages/", live_pages)]
