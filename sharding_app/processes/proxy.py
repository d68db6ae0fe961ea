"""A TCP proxy that can fail in all the ways in which a network fails.

It runs on a thread of its own and is controlled from any other:

`forward`  as if it were not there
`refuse`   new connections are refused, those that are open are reset
`hang`     new connections are taken and nothing ever comes; open ones fall silent
`slow`     each piece is passed on after a delay
`cut`      each open or new connection is reset after N more bytes, in the middle of its data
`one_way`  the client's data does not arrive, while the server's does; or the other way round

Bytes that have been held back are passed on when it forwards again, as after an outage of a
network.
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
BACKLOG = 128


class Proxy:
    """Forwards to one address. It listens at `port` on the loopback, the same for its whole
    life.
    """

    def __init__(self, target_port: int, target_host: str = "127.0.0.1") -> None:
        self.target_port, self.target_host = target_port, target_host
        self.accepted = 0
        self._loop = asyncio.new_event_loop()
        self._socket = _bound(0)
        self.port: int = self._socket.getsockname()[1]
        self._listens = False
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._delay = 0.0
        self._budget: int | None = None
        self._thread = threading.Thread(target=self._run, name="sharding-proxy", daemon=True)
        self._thread.start()
        self.forward()

    # -- From any thread ---------------------------------------------------------------------------

    def forward(self) -> None:
        self._do(lambda: self._set())

    def refuse(self) -> None:
        async def act() -> None:
            await self._set()
            self._end_listening()
            # Keep the port: otherwise the kernel may give it to any outgoing connection.
            self._socket = _bound(self.port)
            self._reset_all()

        self._do(act)

    def hang(self) -> None:
        self._do(lambda: self._set(silent=("up", "down")))

    def slow(self, seconds: float) -> None:
        self._do(lambda: self._set(delay=seconds))

    def cut(self, after_bytes: int) -> None:
        self._do(lambda: self._set(budget=after_bytes))

    def one_way(self, silent: Direction) -> None:
        """Let nothing pass in that direction: `up` is the client's data, `down` the server's."""
        self._do(lambda: self._set(silent=(silent,)))

    def reset(self) -> None:
        """Reset all open connections, once; new ones work."""

        async def act() -> None:
            self._reset_all()

        self._do(act)

    def close(self) -> None:
        async def act() -> None:
            self._end_listening()
            self._reset_all()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._do(act)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- On the thread -----------------------------------------------------------------------------

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
        if not self._listens:
            self._listens = True
            self._socket.listen(BACKLOG)
            self._loop.add_reader(self._socket, self._take)

    def _end_listening(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._listens = False

    def _reset_all(self) -> None:
        for pair in list(self._pairs):
            pair.reset()

    def _take(self) -> None:
        """Take a connection. It has an owner at once, so it will be closed in any case."""
        try:
            taken, _ = self._socket.accept()
        except OSError:
            return  # the client has gone already
        taken.setblocking(False)
        self.accepted += 1
        pair = _Pair(self._budget)
        self._pairs.add(pair)
        task = self._loop.create_task(self._carry(pair, taken))
        self._tasks.add(task)

        def ended(_: object) -> None:
            pair.reset()
            if pair.client is None:
                taken.close()
            self._pairs.discard(pair)
            self._tasks.discard(task)

        task.add_done_callback(ended)

    async def _carry(self, pair: _Pair, taken: socket.socket) -> None:
        with contextlib.suppress(OSError):
            reader, pair.client = await asyncio.open_connection(sock=taken)
            if pair.is_reset:
                return
            await self._open["up"].wait()
            server_reader, pair.server = await asyncio.open_connection(self.target_host, self.target_port)
            await asyncio.gather(
                self._pass(reader, pair.server, pair, "up"),
                self._pass(server_reader, pair.client, pair, "down"),
            )

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
        # One end has hung up. Reset the other.
        raise ConnectionResetError("hung up")


class _Pair:
    """One connection through the proxy: its two sockets."""

    def __init__(self, left: int | None) -> None:
        self.client: asyncio.StreamWriter | None = None
        self.server: asyncio.StreamWriter | None = None
        self.left = left
        self.is_reset = False

    def reset(self) -> None:
        self.is_reset = True
        for writer in (self.client, self.server):
            if writer is not None and not writer.is_closing():
                peer = writer.get_extra_info("socket")
                # Linger of no time: the peer sees a reset, not an orderly end.
                with contextlib.suppress(OSError):
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()


def _bound(port: int) -> socket.socket:
    """Return a socket that has that port, or any; connections are refused until it listens."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    bound.setblocking(False)
    return bound
