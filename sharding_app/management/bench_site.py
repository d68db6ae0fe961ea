"""The web process of ``sharding_bench live``: the project's own ASGI application and server.

When it listens it prints where live pages are, and the token of the view that the benchmark
changes. On "figures" on its standard input it prints a line of figures. It ends with its input.
"""

import json
import os
import signal
import sys
import threading
import time

from django.conf import settings
from django.core.management.base import CommandError

from sharding_app.bench.entities import BenchLive
from sharding_app.bench.machine import resident_bytes
from sharding_app.live.routes import socket_path, stream_path
from sharding_app.live.topics import topic_of
from sharding_app.management.web import application, choose_port, listens, serve, server

HOST = "127.0.0.1"
FIRST_PORT = 18_000
UP_SECONDS = 30.0


def serve_bench(name: str | None = None) -> None:
    """Serve until the end of the input, with that server or the first that is installed."""
    settings.ALLOWED_HOSTS = [HOST]
    application()
    path = socket_path()
    if path is None:
        raise CommandError(
            "ASGI_APPLICATION has no route for live pages: add websocket_urlpatterns of sharding_app.http.routing."
        )
    port = choose_port(HOST, FIRST_PORT)
    address = {
        "port": port,
        "path": f"/{path}",
        "stream": stream_path(),
        "token": topic_of(BenchLive.ref("one"), "shown").token,
        "server": name or server(),
    }
    threading.Thread(target=_answer, args=(port, address), name="sharding-parent", daemon=True).start()
    serve(HOST, port, name)


def _answer(port: int, address: dict[str, object]) -> None:
    deadline = time.monotonic() + UP_SECONDS
    while not listens(HOST, port) and time.monotonic() < deadline:
        time.sleep(0.05)
    print(f"up {json.dumps(address)}", flush=True)
    for _ in sys.stdin:
        found = {"cpu_seconds": time.process_time(), "resident_bytes": resident_bytes(os.getpid())}
        print(f"figures {json.dumps(found)}", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
