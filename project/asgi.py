"""The demo site for ASGI servers (Daphne): HTTP, and the dashboard's live updates."""

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application

from sharding_app.embedded import ensure_servers

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.demo")
ensure_servers(settings.DATA_FOLDER)

http = get_asgi_application()

from sharding_app.http.routing import websocket_urlpatterns  # noqa: E402 - only once Django is set up

application = ProtocolTypeRouter({"http": http, "websocket": URLRouter(websocket_urlpatterns)})
