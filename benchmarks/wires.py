"""What carries bytes between two processes of one machine, and what it costs: `python -m
benchmarks.wires`.

Each way carries the same: frames that are echoed by a second process, one at a time and sixty-four
at a time, small ones and batches. The figures are the round trip, the rate, and the processor time
of both processes for each frame. The ways take turns. pyzmq and grpcio are looked at where they are
installed; the app needs neither.
"""

import argparse
import asyncio
import collections
import importlib.util
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from sharding_app.management.arguments import count

SIZES = {"small": 200, "batch": 10_000}
IN_FLIGHT = 64
LENGTH = struct.Struct("<I")


class Wire(Protocol):
    """One end: sends whole frames, and waits for the next."""

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes: ...


class Framed(asyncio.Protocol):
    """Frames behind their length, over whatever asyncio connects."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._frames: collections.deque[bytes] = collections.deque()
        self._arrived = asyncio.Event()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        held = self._held
        held += data
        at = 0
        while len(held) - at >= 4:
            end = at + 4 + LENGTH.unpack_from(held, at)[0]
            if len(held) < end:
                break
            self._frames.append(bytes(held[at + 4 : end]))
            at = end
        del held[:at]
        self._arrived.set()

    async def send(self, data: bytes) -> None:
        self._transport.write(LENGTH.pack(len(data)) + data)

    async def receive(self) -> bytes:
        while not self._frames:
            self._arrived.clear()
            await self._arrived.wait()
        return self._frames.popleft()


class Streams:
    """The same over asyncio's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(LENGTH.pack(len(data)) + data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        return await self._reader.readexactly(LENGTH.unpack(await self._reader.readexactly(4))[0])


class Zmq:
    """A DEALER at each end; `secret` for CURVE."""

    def __init__(self, address: str, *, binds: bool, curve: bool) -> None:
        import zmq
        import zmq.asyncio

        public, secret = PAIR
        self._socket: Any = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        if curve:
            self._socket.curve_publickey, self._socket.curve_secretkey = public, secret
            if binds:
                self._socket.curve_server = True
            else:
                self._socket.curve_serverkey = public
        (self._socket.bind if binds else self._socket.connect)(address)
        self.address = bytes(self._socket.getsockopt(zmq.LAST_ENDPOINT)).decode().rstrip("\0")

    async def send(self, data: bytes) -> None:
        await self._socket.send(data, copy=False)

    async def receive(self) -> bytes:
        return bytes(await self._socket.recv())


class Grpc:
    """One stream of messages in each direction."""

    def __init__(self, address: str) -> None:
        import grpc

        self._channel = grpc.aio.insecure_channel(address)
        self._call = self._channel.stream_stream("/echo/echo")()

    async def send(self, data: bytes) -> None:
        await self._call.write(data)

    async def receive(self) -> bytes:
        return bytes(await self._call.read())


PAIR = (b"", b"")
if importlib.util.find_spec("zmq") is not None:
    import zmq as _zmq

    # Of the benchmark alone, and the same in both processes: any secret does.
    PAIR = (
        _zmq.curve_public(b"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"),
        b"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs",
    )


async def echo(wire: Wire) -> None:
    while True:
        await wire.send(await wire.receive())


async def serve(way: str, address: str) -> None:
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    if way in ("protocol-unix", "protocol-tcp"):

        def made() -> Framed:
            wire = Framed()
            tasks.append(loop.create_task(echo(wire)))
            return wire

        if way == "protocol-unix":
            await loop.create_unix_server(made, address)
        else:
            server = await loop.create_server(made, "127.0.0.1", 0)
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    elif way == "streams-unix":

        async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await echo(Streams(reader, writer))

        await asyncio.start_unix_server(taken, address)
    elif way.startswith("zmq"):
        where = f"ipc://{address}" if "ipc" in way else "tcp://127.0.0.1:*"
        wire = Zmq(where, binds=True, curve="curve" in way)
        tasks.append(loop.create_task(echo(wire)))
        address = wire.address
    else:
        import grpc

        async def behave(request: Any, context: Any) -> None:
            while (data := await context.read()) is not grpc.aio.EOF:
                await context.write(data)

        service = grpc.method_handlers_generic_handler(
            "echo", {"echo": grpc.stream_stream_rpc_method_handler(behave)}
        )
        server = grpc.aio.server(handlers=[service])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
    before = processor_seconds()
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.readline)
    sys.stdout.write(f"{processor_seconds() - before}\n")
    sys.stdout.flush()
    os._exit(0)


async def connect(way: str, address: str) -> Wire:
    loop = asyncio.get_running_loop()
    if way == "protocol-unix":
        return (await loop.create_unix_connection(Framed, address))[1]
    if way == "protocol-tcp":
        host, port = address.split(":")
        return (await loop.create_connection(Framed, host, int(port)))[1]
    if way == "streams-unix":
        return Streams(*await asyncio.open_unix_connection(address))
    if way.startswith("zmq"):
        return Zmq(address, binds=False, curve="curve" in way)
    return Grpc(address)


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def in_flight(wire: Wire, data: bytes, many: int, frames: int) -> list[float]:
    """Keep that number of messages under way; return their round trips."""
    clock = time.perf_counter
    began = collections.deque[float]()
    for _ in range(many):
        began.append(clock())
        await wire.send(data)
    took = []
    for number in range(frames):
        await wire.receive()
        took.append(clock() - began.popleft())
        if number < frames - many:
            began.append(clock())
            await wire.send(data)
    return took


async def measure(way: str, frames: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, size in SIZES.items():
        for many in (1, IN_FLIGHT):
            with tempfile.TemporaryDirectory() as folder, served(way, folder) as child:
                wire = await connect(way, child.readline())
                await in_flight(wire, b"x" * size, many, max(many, 200))
                began, used = time.perf_counter(), processor_seconds()
                took = await in_flight(wire, b"x" * size, many, frames)
                seconds, ours = time.perf_counter() - began, processor_seconds() - used
                theirs = float(child.readline())
            found[f"{name} {many} p50 us"] = statistics.median(took) * 1e6
            found[f"{name} {many} /s"] = frames / seconds
            found[f"{name} {many} cpu us"] = (
                (ours + theirs * frames / (frames + max(many, 200))) / frames * 1e6
            )
    return found


class Child:
    """The process that echoes: it says where it listens, and, when it is told to end, what
    processor time that took.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._asked = False

    def readline(self) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the child has no pipes")
        if self._asked:
            stdin.write("\n")
            stdin.flush()
        self._asked = True
        return stdout.readline().strip()


@contextmanager
def served(way: str, folder: str) -> Iterator[Child]:
    command = [sys.executable, "-m", "benchmarks.wires", "--serve", way, "--address", str(Path(folder) / "s")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Child(process)


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work())  # type: ignore[arg-type]
    return asyncio.run(work())  # type: ignore[arg-type]


def main() -> None:
    ways = ["protocol-unix", "protocol-tcp", "streams-unix"]
    if importlib.util.find_spec("zmq") is not None:
        ways += ["zmq-ipc", "zmq-tcp-curve"]
    if importlib.util.find_spec("grpc") is not None:
        ways += ["grpc-aio"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve")
    parser.add_argument("--address", default="")
    parser.add_argument("--frames", type=count, default=5000)
    parser.add_argument("--rounds", type=count, default=3)
    options = parser.parse_args()
    if options.serve:
        run(lambda: serve(options.serve, options.address))
        return
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way in ways:
            rounds[way].append(run(lambda way=way: measure(way, options.frames)))  # type: ignore[misc]
    for way, found in rounds.items():
        sys.stdout.write(f"{way}\n")
        for name in found[0]:
            sys.stdout.write(f"  {name:24} {statistics.median(each[name] for each in found):10,.0f}\n")


if __name__ == "__main__":
    main()
