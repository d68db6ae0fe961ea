"""Browsers of ``sharding_bench live``: WebSockets, or streams of server-sent events, in a process
of their own, with little more work than to note when a value comes.

On "open 100" on its standard input it has 100 of them open. On "await 7 1.5" it waits until each
has the value 7, and prints after how many milliseconds since 1.5 (of the machine's monotonic clock)
the first, the median and the last had it. It ends with its input.
"""

import asyncio
import json
import os
import re
import sys
import threading
import time
from typing import Any, ClassVar
from urllib.parse import quote

AT_ONCE = 50
"""Connections that are opened at the same time."""
PATIENCE_SECONDS = 120.0
_VALUE = re.compile(rb'"value":(\d+)')
_ASK = re.compile(rb'"ask":"([^"]+)"')
_TEXT, _PING, _PONG = 1, 9, 10


class Browser(asyncio.Protocol):
    """One connection. A subclass says how it listens."""

    answer: ClassVar[bytes]
    "The status of an answer that lets it in."

    def __init__(self, all_of_them: "Browsers") -> None:
        self.value = -1
        self.at = 0.0
        self._all = all_of_them
        self._buffer = b""
        self._open = False
        self._transport: Any = None

    def asks(self, host: str) -> str:
        """Return its request."""
        raise NotImplementedError

    def opened(self) -> None:
        """Say what there is to say once it is let in."""

    def takes(self, now: float) -> None:
        """Take what has come."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(self.asks(f"127.0.0.1:{self._all.address['port']}").encode())

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._buffer += data
        if not self._open:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            if self.answer not in head.partition(b"\r\n")[0]:
                self._all.fail(f"the site refuses: {head[:80]!r}")
                return
            self._open, self._buffer = True, rest
            self.opened()
        self.takes(now)

    def connection_lost(self, error: Exception | None) -> None:
        self._all.fail(f"the site has ended a connection: {error!r}")

    def close(self) -> None:
        self._transport.abort()

    def _shows(self, data: bytes, now: float) -> None:
        if found := _VALUE.search(data):
            self.value, self.at = int(found[1]), now
            self._all.told()
        if b"refused" in data:
            self._all.fail(f"the site refuses: {data[:80]!r}")


class Stream(Browser):
    """Server-sent events."""

    answer = b" 200 "

    def asks(self, host: str) -> str:
        address = self._all.address
        query = f"watch={quote(address['token'])}&frames=1"
        return (
            f"GET {address['stream']}?{query} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n"
        )

    def takes(self, now: float) -> None:
        events, found, rest = self._buffer.rpartition(b"\n\n")
        if found:
            self._buffer = rest
            for each in events.split(b"\n\n"):
                self._shows(each, now)


class Socket(Browser):
    """A WebSocket."""

    answer = b" 101 "

    def asks(self, host: str) -> str:
        return (
            f"GET {self._all.address['path']} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )

    def opened(self) -> None:
        self._say(_TEXT, json.dumps({"watch": [self._all.address["token"]]}).encode())

    def takes(self, now: float) -> None:
        while (frame := self._frame()) is not None:
            self._take(*frame, now)

    def _frame(self) -> tuple[int, bytes] | None:
        """Take the next whole frame. The site masks none."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1], 2
        if size == 126:
            size, start = int.from_bytes(buffer[2:4]), 4
        elif size == 127:
            size, start = int.from_bytes(buffer[2:10]), 10
        if len(buffer) < start + size:
            return None
        self._buffer = buffer[start + size :]
        return buffer[0] & 15, buffer[start : start + size]

    def _take(self, kind: int, data: bytes, now: float) -> None:
        if kind == _PING:
            self._say(_PONG, data)
        elif kind == _TEXT:
            self._shows(data, now)
            if found := _ASK.search(data):
                self._say(_TEXT, json.dumps({"got": found[1].decode()}).encode())

    def _say(self, kind: int, data: bytes) -> None:
        """Send a frame, with a mask of zeros."""
        head = bytes([128 | kind, 128 | len(data)]) if len(data) < 126 else (
            bytes([128 | kind, 254]) + len(data).to_bytes(2)
        )  # fmt: skip
        self._transport.write(head + b"\0\0\0\0" + data)


WAYS_TO_BROWSERS = {"websocket": "WebSockets", "events": "server-sent events"}


class Browsers:
    """All of them."""

    def __init__(self, address: dict[str, Any], over: str) -> None:
        self.address = address
        self._kind: type[Browser] = Stream if over == "events" else Socket
        self.failure = ""
        self._open: list[Browser] = []
        self._wanted = 0
        self._missing = 0
        self._changed = asyncio.Event()

    async def open(self, count: int) -> None:
        """Have that number open, each with a first value."""
        while len(self._open) < count:
            new = [self._kind(self) for _ in range(min(AT_ONCE, count - len(self._open)))]
            self._open += new
            await asyncio.gather(*map(self._connect, new))
            await self._until(0)

    async def times(self, value: int, since: float) -> dict[str, float]:
        """Wait until each has that value; return after how many milliseconds they had it."""
        await self._until(value)
        ordered = sorted((each.at - since) * 1e3 for each in self._open)
        return {
            "first": ordered[0],
            "median": ordered[len(ordered) // 2],
            "p99": ordered[int(len(ordered) * 0.99)],
            "last": ordered[-1],
        }

    def told(self) -> None:
        """Take in that one of them has a newer value."""
        self._missing -= 1
        if self._missing <= 0:
            self._changed.set()

    def fail(self, why: str) -> None:
        self.failure = self.failure or why
        self._changed.set()

    def close(self) -> None:
        for each in self._open:
            each.close()

    async def _connect(self, browser: Browser) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: browser, "127.0.0.1", self.address["port"])

    async def _until(self, value: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.failure:
                self._missing = sum(each.value < value for each in self._open)
                if not self._missing:
                    return
                self._changed.clear()
                await self._changed.wait()
        raise ConnectionError(self.failure)


async def run_browsers(address: str, over: str) -> None:
    """Run the process."""
    loop = asyncio.get_running_loop()
    words: asyncio.Queue[str] = asyncio.Queue()

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(words.put_nowait, line.strip())
        loop.call_soon_threadsafe(words.put_nowait, "")

    browsers = Browsers(json.loads(address), over)
    threading.Thread(target=listen, name="sharding-parent", daemon=True).start()
    print("up", flush=True)
    while line := await words.get():
        word, *rest = line.split()
        if word == "open":
            await browsers.open(int(rest[0]))
            print(f"opened {rest[0]}", flush=True)
        else:
            found = await browsers.times(int(rest[0]), float(rest[1]))
            print(f"seen {json.dumps({**found, 'cpu_seconds': time.process_time()})}", flush=True)
    browsers.close()
    sys.stdout.flush()
    os._exit(0)
