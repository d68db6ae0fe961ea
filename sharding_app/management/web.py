"""Serves the project's ASGI application on one machine, with Daphne, uvicorn or hypercorn."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management.base import CommandError
from django.utils.module_loading import import_string

PORTS_TO_TRY = 100


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches that address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def choose_port(host: str, port: int) -> int:
    """Return this port, or the next free one."""
    if not 0 < port < 65536:  # 0 would be another port at each look
        raise CommandError(f"--port {port} is none: ports are 1 to 65535.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, OverflowError) as error:
        raise CommandError(f"The site cannot be served on {host}:{port}: {error}.") from error
    for candidate in range(port, min(port + PORTS_TO_TRY, 65536)):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address[0], candidate))
            except PermissionError as error:
                raise CommandError(
                    f"Port {candidate} is not permitted. Choose one above 1023 with --port."
                ) from error
            except OSError:
                continue
        return candidate
    raise CommandError(f"No port from {port} on is free on {host}. Choose another with --port.")


def listens(host: str, port: int) -> bool:
    """Tell whether a server accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=0.5):
        return True
    return False


def application() -> Any:
    """Return the project's ASGI application; with DEBUG it serves static files too."""
    path = getattr(settings, "ASGI_APPLICATION", None)
    found = import_string(path) if path else get_asgi_application()
    if settings.DEBUG and apps.is_installed("django.contrib.staticfiles"):
        from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler

        return ASGIStaticFilesHandler(found)
    return found


def server() -> str | None:
    """Return the name of the first web server that is installed."""
    return next((name for name in SERVERS if find_spec(name) is not None), None)


def serve(host: str, port: int, name: str | None = None) -> None:
    """Serve until SIGTERM, with the server of that name, or the first that is installed."""
    name = name or server()
    if name is None:
        raise CommandError(NO_SERVER)
    SERVERS[name](application(), host, port)


def _daphne(app: Any, host: str, port: int) -> None:
    # The server first: it chooses Twisted's event loop.
    daphne = import_module("daphne.server")
    endpoints = import_module("daphne.endpoints").build_endpoint_description_strings(host=host, port=port)
    daphne.Server(
        app, endpoints=endpoints, root_path=getattr(settings, "FORCE_SCRIPT_NAME", None) or ""
    ).run()


def _uvicorn(app: Any, host: str, port: int) -> None:
    import_module("uvicorn").run(app, host=host, port=port, lifespan="off", log_level="warning")


def _hypercorn(app: Any, host: str, port: int) -> None:
    config = import_module("hypercorn.config").Config()
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    asyncio.run(import_module("hypercorn.asyncio").serve(app, config))


SERVERS: dict[str, Callable[[Any, str, int], None]] = {
    "daphne": _daphne,
    "uvicorn": _uvicorn,
    "hypercorn": _hypercorn,
}
NO_SERVER = (
    "No web server is installed, so the site is not served. Run `pip install daphne` "
    "(or uvicorn, or hypercorn) to serve it."
)
