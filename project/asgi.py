"""The demo site for ASGI servers (Daphne): HTTP now, room for WebSockets beside it."""

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

from project.servers import ensure_servers

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
ensure_servers()

application = ProtocolTypeRouter({"http": get_asgi_application()})
