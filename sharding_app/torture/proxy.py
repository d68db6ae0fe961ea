"""A TCP proxy that can be stopped in all the ways in which a network fails.

It runs on a thread of its own and is told what to do from any other:

`forward`  as if it were not there
`refuse`   new connections are refused, those that are open are reset
`hang`     new connections are taken and nothing ever comes; open ones fall silent
`slow`     each piece is passed on after a delay
`cut`      each open or new connection is reset after so many more bytes, in the middle of whatever is said
`one_way`  what the client says does not arrive, while what the server says does; or the other way round

Bytes that have been held back are passed on when it forwards again: a network that comes back does that too.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Literal, Self, TypeVar

T = TypeVar("T")
Direction = Literal["up", "down"]
PIECE_BYTES = 64 * 1024


class Proxy:
    """Forwards to one address. It listens at `port` on the loopback, the same for its whole life."""

    def __init__(self, target_port: int, target_host: str = "127.0.0.1") -> None:
        self.target_port, self.target_host = target_port, target_host
        self.accepted = 0
        self._loop = asyncio.new_event_loop()
        self._socket = _listening(0)
        self.port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._delay = 0.0
        self._budget: int | None = None
        self._thread = threading.Thread(target=self._run, name="sharding-proxy", daemon=True)
        self._thread.start()
        self.forward()

    # -- From any thread -----------------------------------------------------------------------------------------------

    def forward(self) -> None:
        self._do(lambda: self._set())

    def refuse(self) -> None:
        async def act() -> None:
            await self._set()
            if self._server is not None:
                self._server.close()
                self._server = None
            self._reset_all()

        self._do(act)

    def hang(self) -> None:
        self._do(lambda: self._set(silent=("up", "down")))

    def slow(self, seconds: float) -> None:
        self._do(lambda: self._set(delay=seconds))

    def cut(self, after_bytes: int) -> None:
        self._do(lambda: self._set(budget=after_bytes))

    def one_way(self, silent: Direction) -> None:
        """Let nothing pass in that direction: `up` is what the client says, `down` what the server says."""
        self._do(lambda: self._set(silent=(silent,)))

    def reset(self) -> None:
        """Reset all open connections, once; new ones work."""

        async def act() -> None:
            self._reset_all()

        self._do(act)

    def close(self) -> None:
        async def act() -> None:
            if self._server is not None:
                self._server.close()
            self._reset_all()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._do(act)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- On the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, act: Callable[[], object]) -> None:
        asyncio.run_coroutine_threadsafe(act(), self._loop).result(10)  # type: ignore[arg-type]

    async def _set(
        self, *, silent: tuple[Direction, ...] = (), delay: float = 0.0, budget: int | None = None
    ) -> None:
        self._delay, self._budget = delay, budget
        for pair in self._pairs:
            pair.left = budget
        for direction, is_open in self._open.items():
            if direction in silent:
                is_open.clear()
            else:
                is_open.set()
        if self._server is None:
            if self._socket.fileno() < 0:
                self._socket = _listening(self.port)
            self._server = await asyncio.start_server(self._accept, sock=self._socket)

    def _reset_all(self) -> None:
        for pair in list(self._pairs):
            pair.reset()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        pair = _Pair(writer, self._budget)
        self._pairs.add(pair)
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            await self._open["up"].wait()
            server_reader, pair.server = await asyncio.open_connection(self.target_host, self.target_port)
            await asyncio.gather(
                self._pass(reader, pair.server, pair, "up"), self._pass(server_reader, writer, pair, "down")
            )
        except OSError:
            pair.reset()
        finally:
            pair.reset()
            self._pairs.discard(pair)
            if task is not None:
                self._tasks.discard(task)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair, direction: Direction
    ) -> None:
        while data := await reader.read(PIECE_BYTES):
            if self._delay:
                await asyncio.sleep(self._delay)
            await self._open[direction].wait()
            if pair.left is not None:
                data, pair.left = data[: pair.left], pair.left - len(data)
                writer.write(data)
                if pair.left <= 0:
                    with contextlib.suppress(OSError):
                        await writer.drain()
                    raise ConnectionResetError("cut off")
            else:
                writer.write(data)
            await writer.drain()
        # One end has hung up: so does the other.
        raise ConnectionResetError("hung up")


class _Pair:
    """One connection through the proxy: its two sockets."""

    def __init__(self, client: asyncio.StreamWriter, left: int | None) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.left = left

    def reset(self) -> None:
        for writer in (self.client, self.server):
            if writer is not None and not writer.is_closing():
                peer = writer.get_extra_info("socket")
                # Linger of no time: the peer sees a reset, not an orderly end.
                with contextlib.suppress(OSError):
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener
