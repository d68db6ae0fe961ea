"""A way to a server that can go silent, as a network does to connections that stay open."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

Rewrite = Callable[[bytes], bytes]


class Proxy:
    """Forwards connections to a server. `params` are the ones that lead through it."""

    def __init__(self, params: dict[str, Any], rewrite: Rewrite) -> None:
        self.params = params
        self._rewrite = rewrite
        self._target = (params["host"], int(params["port"]))
        self._muted: set[asyncio.Event] = set()
        self._answers: list[asyncio.Event] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def mute(self) -> None:
        """From now on no answer gets through on the present connections; new ones are fine."""
        for answers in self._answers:
            answers.clear()

    def hang_up(self) -> None:
        """End the present connections towards the callers."""
        for writer in self._writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        answers = asyncio.Event()
        answers.set()
        self._answers.append(answers)
        self._writers.append(writer)
        back = asyncio.create_task(self._answer(up_reader, writer, answers))
        self._tasks.add(back)
        try:
            while data := await reader.read(65536):
                up_writer.write(data)
                await up_writer.drain()
        except OSError:
            pass
        finally:
            up_writer.close()
            back.cancel()
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            await answers.wait()
            writer.write(self._rewrite(data))
            await writer.drain()
        writer.close()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def proxy_to(params: dict[str, Any], rewrite: Rewrite = lambda data: data) -> AsyncIterator[Proxy]:
    proxy = Proxy(params, rewrite)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy.params = {
        **params,
        "host": "127.0.0.1",
        "port": port,
        "sslmode": "disable",
        "gssencmode": "disable",
    }
    try:
        yield proxy
    finally:
        server.close()
        proxy.stop()
