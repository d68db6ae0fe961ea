"""`python -m sharding_app.bench.floor`: the speed of machine, wire, Postgres and libraries without
any framework.

One process asks another one in batches, over Unix sockets or over the channel layer. The other one
answers at once (`ask`), or first stores an event for each command, all waiting ones in one COPY
(`durable`). It prints a line of JSON for each workload. The benchmark runs one in turns with its
own workload and gives the ratio of the two: an absolute figure holds for one machine and one hour.

    DATABASE_URL=postgresql://... REDIS_URL=redis://...
        python -m sharding_app.bench.floor --wire redis --in-flight 64 --n 20000
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import tempfile
import time
from collections import defaultdict
from multiprocessing.connection import Connection

import msgspec
import psycopg

from sharding_app.bench.wires import FOLDER, OPENERS, Wire
from sharding_app.wiring import new_loop

WORKLOADS = ("ask", "durable")
ENTITIES = 1000
WARM_CALLS = 200
ALONE_CALLS = 3000
"""A call takes long with one caller: fewer of them are enough."""
START_SECONDS = 30.0
TABLE = "sharding_bench_floor"
NEW_TABLE = f"""
CREATE TABLE {TABLE} (entity text, seq bigint, type text, payload bytea, PRIMARY KEY (entity, seq))
"""

Question = tuple[int, str, str]
"""Number of the question, entity, address of the client."""
Answer = tuple[int, int]


class Batches:
    """Sends together all items that were put while the last send was under way."""

    def __init__(self, wire: Wire, address: str) -> None:
        self._wire, self._address = wire, address
        self._waiting: list[Question | Answer] = []
        self._wake = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    def put(self, item: Question | Answer) -> None:
        self._waiting.append(item)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            await self._wire.send(self._address, msgspec.msgpack.encode(batch))


class Host:
    """The process that answers."""

    def __init__(self, wire: Wire, journal: psycopg.AsyncConnection | None) -> None:
        self._wire, self._journal = wire, journal
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._clients: dict[str, Batches] = {}
        self._uncommitted: list[tuple[str, Batches, Answer]] = []
        self._wake = asyncio.Event()

    async def run(self) -> None:
        committing = asyncio.ensure_future(self._commit())
        try:
            while True:
                for question in msgspec.msgpack.decode(await self._wire.receive(), type=list[Question]):
                    self._handle(*question)
        finally:
            committing.cancel()

    def _handle(self, number: int, entity: str, sender: str) -> None:
        self._counts[entity] += 1
        client = self._clients.get(sender)
        if client is None:
            client = self._clients[sender] = Batches(self._wire, sender)
        answer = (number, self._counts[entity])
        if self._journal is None:
            client.put(answer)
        else:
            self._uncommitted.append((entity, client, answer))
            self._wake.set()

    async def _commit(self) -> None:
        while self._journal is not None:
            await self._wake.wait()
            self._wake.clear()
            batch, self._uncommitted = self._uncommitted, []
            async with (
                self._journal.cursor() as cursor,
                cursor.copy(f"COPY {TABLE} FROM STDIN (FORMAT binary)") as copy,
            ):
                copy.set_types(["text", "int8", "text", "bytea"])
                for entity, _, (_, count) in batch:
                    await copy.write_row((entity, count, "Increased", b'{"by":1}'))
            for _, client, answer in batch:
                client.put(answer)


def host(wire_name: str, durable: bool, pipe: Connection) -> None:
    """Run the other process: send its address over the pipe, and answer until it is killed."""

    async def main() -> None:
        wire = await OPENERS[wire_name]()
        journal = None
        if durable:
            journal = await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"], autocommit=True)
        pipe.send(wire.address)
        await Host(wire, journal).run()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


class Client:
    """The process that asks: this one."""

    def __init__(self, wire: Wire, address: str) -> None:
        self._wire = wire
        self._questions = Batches(wire, address)
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._number = 0
        self.seconds: list[float] = []

    async def receive(self) -> None:
        while True:
            for number, count in msgspec.msgpack.decode(await self._wire.receive(), type=list[Answer]):
                self._answers.pop(number).set_result(count)

    async def caller(self, first: int, step: int, calls: int) -> None:
        """Ask this many times, each time after the former answer."""
        loop = asyncio.get_running_loop()
        for turn in range(calls):
            begun = time.perf_counter()
            self._number += 1
            answer = self._answers[self._number] = loop.create_future()
            self._questions.put((self._number, f"c{(turn * step + first) % ENTITIES}", self._wire.address))
            await answer
            self.seconds.append(time.perf_counter() - begun)


async def drive(wire_name: str, address: str, in_flight: int, count: int) -> dict[str, float]:
    """Ask the other process with this many callers; return the rate and the times."""
    client = Client(await OPENERS[wire_name](), address)
    receiving = asyncio.ensure_future(client.receive())
    await client.caller(0, 1, WARM_CALLS)
    client.seconds.clear()
    begun = time.perf_counter()
    await asyncio.gather(*(client.caller(first, in_flight, count // in_flight) for first in range(in_flight)))
    elapsed = time.perf_counter() - begun
    receiving.cancel()
    ordered = sorted(client.seconds)
    return {
        "ops_per_s": round(len(ordered) / elapsed),
        "p50_ms": round(ordered[len(ordered) // 2] * 1e3, 3),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1e3, 3),
    }


def measure(wire_name: str, durable: bool, in_flight: int, count: int) -> dict[str, float]:
    """Start the other process, drive it, and end it."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=host, args=(wire_name, durable, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(START_SECONDS):
            raise SystemExit(f"the answering process did not start within {START_SECONDS:g} s")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(drive(wire_name, ours.recv(), in_flight, count))
    finally:
        process.kill()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The floor under the benchmarks: the same work with no framework."
    )
    parser.add_argument(
        "--workload", choices=WORKLOADS, action="append", help="only this one (default: both)"
    )
    parser.add_argument("--wire", choices=list(OPENERS), default="sockets", help="what carries the batches")
    parser.add_argument("--in-flight", type=int, nargs="*", default=[1, 64, 1000], help="callers at a time")
    parser.add_argument("--n", type=int, default=20_000, help="calls of each measurement")
    options = parser.parse_args()
    with (
        psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection,
        tempfile.TemporaryDirectory(prefix="floor-") as folder,
    ):
        os.environ[FOLDER] = folder
        try:
            for workload in options.workload or WORKLOADS:
                for in_flight in options.in_flight:
                    count = min(options.n, ALONE_CALLS) if in_flight == 1 else options.n
                    connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
                    connection.execute(NEW_TABLE)
                    found = measure(options.wire, workload == "durable", in_flight, count)
                    line = {"workload": workload, "wire": options.wire, "in_flight": in_flight, **found}
                    print(json.dumps(line), flush=True)
        finally:
            connection.execute(f"DROP TABLE IF EXISTS {TABLE}")


if __name__ == "__main__":
    main()
