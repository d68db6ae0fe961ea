"""The dashboard's route for WebSockets, looked for in the project's ASGI application: pages tell
browsers the address.
"""

from typing import Any

from sharding_app.live.routes import find_path, path_of

live: Any = None
"""The application behind the route: `http.routing` sets it. None: this process has not loaded the
routes.
"""


def live_path() -> str | None:
    """Return where the running ASGI application takes the dashboard's WebSockets, as far as this
    process has loaded it.
    """
    return path_of(live)


def find_live_path(application: Any) -> str | None:
    """Look for our route in an ASGI application, through routers and wrappers."""
    return find_path(application, live)
