"""The orderly end of a web process under uvicorn or hypercorn, for a project's `asgi.py`::

    application = ProtocolTypeRouter({"http": http, "lifespan": lifespan})

uvicorn ends its process by the signal that it got, so that Python's handlers of an exit do not run.
Daphne and gunicorn exit, and need nothing of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Message = dict[str, Any]


async def lifespan(
    scope: Mapping[str, Any],
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Answer the server. At its end, let this process send its last tells and leave the cluster."""
    # Imported late: it needs Django's apps, which may not be ready when routes are read.
    from sharding_app.wiring import close_client

    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await asyncio.to_thread(close_client)
    await send({"type": "lifespan.shutdown.complete"})
