"""A server's lifespan messages: the process leaves the cluster before the server is told that it
may end.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator

from sharding_app import wiring
from sharding_app.http.lifespan import lifespan
from tests.support.slack import SLACK

SECONDS = 10.0 * SLACK


@pytest.mark.asyncio
async def test_the_client_has_left_when_the_server_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[threading.Thread] = []
    monkeypatch.setattr(wiring, "close_client", lambda: left.append(threading.current_thread()))
    server: Any = ApplicationCommunicator(lifespan, {"type": "lifespan"})  # type: ignore[no-untyped-call]
    await server.send_input({"type": "lifespan.startup"})
    assert await server.receive_output(SECONDS) == {"type": "lifespan.startup.complete"}
    assert not left
    await server.send_input({"type": "lifespan.shutdown"})
    assert await server.receive_output(SECONDS) == {"type": "lifespan.shutdown.complete"}
    assert len(left) == 1
    assert left[0] is not threading.current_thread(), "its end is waited for beside the loop"
    await server.wait(SECONDS)
