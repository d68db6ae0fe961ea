"""While the server is away a line asks it less and less often, and is back soon after it."""

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.connection import BACK_OFF_MAX_SECONDS, Line
from tests.integration.adapters.postgres.silent_proxy import proxy_to
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio


class Refusing:
    """Counts connections, and ends each at once, as a server does that starts up."""

    def __init__(self) -> None:
        self.connections = 0

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


async def test_a_line_knocks_less_and_less_often(params: dict[str, Any]) -> None:
    refusing = Refusing()
    server = await asyncio.start_server(refusing.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    line = Line({**params, "port": port, "sslmode": "disable", "gssencmode": "disable"}, purpose="test")
    loop = asyncio.get_running_loop()
    until, asked = loop.time() + 4, 0
    while loop.time() < until:
        with pytest.raises(psycopg.OperationalError):
            await line.rows("coordinator")
        asked += 1
        await asyncio.sleep(0.005)
    server.close()
    # 50, 100, 200, 400, 800 ms and then one second, each shortened by a half at most.
    assert asked > refusing.connections
    assert refusing.connections <= 14
    await line.close()


async def test_a_line_is_back_within_the_longest_pause(params: dict[str, Any]) -> None:
    line = Line({**params, "port": 1}, purpose="test")  # no process listens there
    for _ in range(8):
        with pytest.raises(psycopg.OperationalError):
            await line.rows("coordinator")
        line._not_before = 0.0
    line._not_before = asyncio.get_running_loop().time() + BACK_OFF_MAX_SECONDS
    with pytest.raises(psycopg.OperationalError, match=r"not tried again yet: .*refused"):
        await line.rows("coordinator")
    line._conninfo["port"] = params["port"]
    async with asyncio.timeout(20 * SLACK):
        while True:
            try:
                await line.rows("coordinator")
                break
            except psycopg.OperationalError:
                await asyncio.sleep(0.01)
    await line.close()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as held:
        highest = os.dup(0)
        held.callback(os.close, highest)
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        with suppress(OSError):
            while True:
                held.callback(os.close, os.dup(0))
        yield


async def test_a_line_keeps_its_deadline_without_a_free_descriptor(params: dict[str, Any]) -> None:
    async with proxy_to(params) as proxy:
        line = Line(proxy.params, purpose="test", answer_seconds=0.5 * SLACK)
        await line.rows("coordinator")
        proxy.mute()
        asked = asyncio.ensure_future(line.rows("coordinator"))
        with no_descriptor_left():
            done, _ = await asyncio.wait({asked}, timeout=5 * SLACK)
        assert done, "the line waits without an end, and all its later users with it"
        assert isinstance(asked.exception(), TimeoutError)
        await line.rows("coordinator")  # on a new connection
        await line.close()
