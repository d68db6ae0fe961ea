"""A client that asks more than the nodes can do, as a process of its own, and its protocol with the
benchmark.

On "go 4000" on its standard input it keeps 4,000 calls under way. On "halt" it stops, waits for
these calls, and prints a line of figures.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from sharding_app.bench.cluster import bench_cluster
from sharding_app.bench.entities import BenchAccount
from sharding_app.bench.helper import HelperProcess, helper_process
from sharding_app.bench.machine import resident_bytes
from sharding_app.errors import BufferFull, ShardingError

ENTITIES = 1000
PATIENCE_SECONDS = 2.0

OK = "ok"
FULL = BufferFull.__name__


class Flooded(msgspec.Struct):
    """The outcome of a flood."""

    outcomes: dict[str, int]
    cpu_seconds: float
    resident_bytes: int


class _Flood:
    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self._going = True
        self._number = 0

    async def run(self, callers: int) -> None:
        """Keep this many calls under way: an answered or refused caller asks again at once."""
        await asyncio.gather(*(self._caller() for _ in range(callers)))

    def halt(self) -> None:
        self._going = False

    async def _caller(self) -> None:
        while self._going:
            self._number += 1
            ref = BenchAccount.ref(f"c{self._number % ENTITIES}", timeout=PATIENCE_SECONDS)
            try:
                await ref.increase()
            except ShardingError as error:
                name = type(error).__name__
                # A refusal may come without a wait: this lets other callers and the links run.
                await asyncio.sleep(0)
            else:
                name = OK
            if name not in self.outcomes:
                print(f"first {name}", flush=True)
            self.outcomes[name] = self.outcomes.get(name, 0) + 1


async def run_flood() -> None:
    """Run the flooding process."""
    loop = asyncio.get_running_loop()
    words: asyncio.Queue[str] = asyncio.Queue()

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(words.put_nowait, line.strip())
        loop.call_soon_threadsafe(words.put_nowait, "")

    async with bench_cluster(0):
        threading.Thread(target=listen, name="sharding-parent", daemon=True).start()
        print("up", flush=True)
        flood, running, cpu = _Flood(), None, 0.0
        while line := await words.get():
            word, _, callers = line.partition(" ")
            if word == "go":
                flood = _Flood()
                cpu, running = time.process_time(), loop.create_task(flood.run(int(callers)))
            elif running is not None:
                flood.halt()
                await running
                used = time.process_time() - cpu
                found = Flooded(flood.outcomes, used, resident_bytes(os.getpid()))
                print(f"flooded {msgspec.json.encode(found).decode()}", flush=True)
        flood.halt()


class FloodProcess:
    """The flooding client, from the outside."""

    def __init__(self, helper: HelperProcess) -> None:
        self._helper = helper

    async def go(self, callers: int) -> None:
        """Let it begin, and wait until its first call has succeeded. Raises NodeFailed."""
        self._helper.say(f"go {callers}")
        while await self._helper.word("first") != OK:
            pass

    async def halt(self) -> Flooded:
        """Stop it, and return its figures. Raises NodeFailed."""
        self._helper.say("halt")
        return msgspec.json.decode(await self._helper.word("flooded"), type=Flooded)


@asynccontextmanager
async def flood_process(options: tuple[str, ...]) -> AsyncIterator[FloodProcess]:
    """Start the client, wait until it is up and quiet, and end it at the end."""
    words = ("up", "first", "flooded")
    async with helper_process("the flooding client", words, "--as-flood", *options) as helper:
        await helper.word("up")
        yield FloodProcess(helper)
