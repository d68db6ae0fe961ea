"""One client that asks without end and never waits: a process of its own, and how the benchmark speaks with it.

Told "go" on its standard input, it begins to send; told "halt", it stops, waits for what is under way, and prints a
line of figures. It ends with its input.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import msgspec

from sharding_app.bench.cluster import ANSWER_SECONDS, END_SECONDS, UP_SECONDS, NodeFailed, bench_cluster
from sharding_app.bench.entities import BenchAccount
from sharding_app.bench.machine import resident_bytes
from sharding_app.errors import BufferFull, ShardingError
from sharding_app.management.processes import manage

ENTITIES = 1000
PATIENCE_SECONDS = 2.0
AT_A_TIME = 30_000
"""Calls begun before the loop may turn once: more than a link takes in that time."""

FULL = BufferFull.__name__


class Flooded(msgspec.Struct):
    """What became of a flood."""

    outcomes: dict[str, int]
    under_way: int
    resident_bytes: int


class _Flood:
    def __init__(self) -> None:
        self.going = False
        self.outcomes: dict[str, int] = {}
        self.most = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._number = 0

    async def run(self) -> None:
        while self.going:
            for _ in range(AT_A_TIME):
                self._number += 1
                task = asyncio.ensure_future(
                    self._one(
                        BenchAccount.ref(f"c{self._number % ENTITIES}", timeout=PATIENCE_SECONDS).increase()
                    )
                )
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
            self.most = max(self.most, len(self._under_way))
            await asyncio.sleep(0)
        while self._under_way:
            await asyncio.wait(list(self._under_way))

    async def _one(self, answer: Awaitable[int]) -> None:
        try:
            await answer
        except ShardingError as error:
            name = type(error).__name__
        else:
            name = "ok"
        if name == FULL and name not in self.outcomes:
            print("full", flush=True)
        self.outcomes[name] = self.outcomes.get(name, 0) + 1


async def run_flood() -> None:
    """The process itself."""
    loop = asyncio.get_running_loop()
    words: asyncio.Queue[str] = asyncio.Queue()

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(words.put_nowait, line.strip())
        loop.call_soon_threadsafe(words.put_nowait, "")

    async with bench_cluster(0):
        threading.Thread(target=listen, name="sharding-parent", daemon=True).start()
        print("up", flush=True)
        flood, running = _Flood(), None
        while word := await words.get():
            if word == "go":
                flood.going, running = True, loop.create_task(flood.run())
            elif running is not None:
                flood.going = False
                await running
                found = Flooded(flood.outcomes, flood.most, resident_bytes(os.getpid()))
                print(f"flooded {msgspec.json.encode(found).decode()}", flush=True)
        flood.going = False


class FloodProcess:
    """That client, from the outside."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def go(self) -> None:
        """Let it begin. Done when it has been told for the first time that there is no room: it is a flood by then."""
        self._say(b"go\n")
        await self._line("full ", UP_SECONDS)

    async def halt(self) -> Flooded:
        """Stop it; return what its calls came to, how many were under way at most, and its memory at the end."""
        self._say(b"halt\n")
        return msgspec.json.decode(await self._line("flooded ", UP_SECONDS), type=Flooded)

    def _say(self, word: bytes) -> None:
        if self._process.stdin is None:
            raise NodeFailed("the flooding client has no input")
        self._process.stdin.write(word)

    async def _line(self, beginning: str, seconds: float) -> str:
        """The rest of the next line that begins like this; others are what it logs."""
        if self._process.stdout is None:
            raise NodeFailed("the flooding client has no output")
        heard: list[str] = []
        try:
            async with asyncio.timeout(seconds):
                while raw := await self._process.stdout.readline():
                    line = raw.decode(errors="replace").rstrip()
                    if f"{line} ".startswith(beginning):
                        return line[len(beginning) :]
                    heard = [*heard[-20:], line]
        except TimeoutError:
            heard.append(f"(nothing for {seconds:g} s)")
        raise NodeFailed("the flooding client failed:\n" + "\n".join(heard))


@asynccontextmanager
async def flood_process(options: tuple[str, ...]) -> AsyncIterator[FloodProcess]:
    """The client, up and quiet; gone at the end."""
    process = await asyncio.create_subprocess_exec(
        *manage("sharding_bench", "--as-flood", *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    client = FloodProcess(process)
    try:
        await client._line("up ", UP_SECONDS)
        yield client
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS + ANSWER_SECONDS):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
