"""The dashboard's live updates, for a project's `asgi.py`::

    from channels.routing import ProtocolTypeRouter, URLRouter
    from sharding_app.http.routing import websocket_urlpatterns

    application = ProtocolTypeRouter({
        "http": get_asgi_application(),
        "websocket": URLRouter(websocket_urlpatterns),
    })

It needs nothing around it: it reads the admin's session and looks at the origin itself. Other
routes may stand beside it.
"""

from django.urls import path

from sharding_app.adapters.channels.live import live_application
from sharding_app.dashboard import live_route
from sharding_app.http.feed import Feeds

live = live_route.live = live_application(Feeds())
websocket_urlpatterns = [path("sharding/live/", live)]
