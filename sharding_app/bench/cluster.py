"""The nodes of a benchmark, as child processes, and the client that asks them: this process."""

import asyncio
import json
import os
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from sharding_app.client.gateway import ClusterGateway
from sharding_app.client.portal import Portal
from sharding_app.entities.gateway import use_gateway
from sharding_app.processes.addresses import ADDRESSES
from sharding_app.processes.child_processes import manage
from sharding_app.processes.proxy import Proxy
from sharding_app.runtime.node.process import Process
from sharding_app.settings.load import get_settings
from sharding_app.wiring import client_process

UP_SECONDS = 30.0
ANSWER_SECONDS = 10.0
END_SECONDS = 15.0
MEMBERS_SECONDS = 1.0
LINES_KEPT = 30


class NodeFailed(Exception):
    """A node did not come up, or ended by itself; the message holds its last output."""


class NodeProcess:
    """One child process. Its output is kept in case it fails."""

    def __init__(self, name: str, options: tuple[str, ...], proxies: Mapping[str, Proxy]) -> None:
        """`proxies` by server: the node reaches that server through one."""
        self.name = name
        self.incarnation = ""
        self._options = options
        self._proxies = proxies
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._up = asyncio.Event()
        self._figures: asyncio.Queue[dict[str, float]] = asyncio.Queue()
        self._started: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None]

    async def start(self) -> None:
        """Return when the node is up. Raises NodeFailed."""
        ports = json.dumps({server: proxy.port for server, proxy in self._proxies.items()})
        self._started = await asyncio.create_subprocess_exec(
            *manage("sharding_bench", f"--as-node={self.name}", f"--through={ports}", *self._options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        self._reader = asyncio.ensure_future(self._read())
        waiting = asyncio.ensure_future(self._up.wait())
        await asyncio.wait((waiting, self._reader), timeout=UP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self._up.is_set():
            await self.end()
            raise NodeFailed(f"node {self.name} did not come up:\n{self.last_words}")

    @property
    def _process(self) -> asyncio.subprocess.Process:
        if self._started is None:
            raise NodeFailed(f"node {self.name} was never started")
        return self._started

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def last_words(self) -> str:
        return "\n".join(self._lines)

    async def figures(self) -> dict[str, float]:
        """Return its resource use and work so far (`bench.node.figures`)."""
        if self._process.stdin is None:
            raise NodeFailed(f"node {self.name} has no input")
        self._process.stdin.write(b"stats\n")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._figures.get()
        except TimeoutError:
            raise NodeFailed(f"node {self.name} says nothing:\n{self.last_words}") from None

    def signal(self, number: int) -> float:
        """Send a signal if it still runs, and return the time."""
        now = time.perf_counter()
        if self._process.returncode is None:
            self._process.send_signal(number)
        return now

    def unplug(self) -> float:
        """Block all traffic between it and its servers, without closing a connection, and return
        the time.
        """
        now = time.perf_counter()
        for proxy in self._proxies.values():
            proxy.hang()
        return now

    async def end(self) -> None:
        """Ask it to leave, and kill it if it does not."""
        try:
            await self._end()
        finally:
            for proxy in self._proxies.values():
                proxy.close()

    async def _end(self) -> None:
        if self._started is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(END_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
        await self._process.wait()
        await self._reader

    async def _read(self) -> None:
        if self._process.stdout is None:
            return
        async for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip()
            word, _, rest = line.partition(" ")
            if word == "stats":
                self._figures.put_nowait(json.loads(rest))
            elif word == "up":
                self.incarnation = rest
                self._up.set()
            else:
                self._lines.append(line)


def _proxies() -> dict[str, Proxy]:
    """Make a proxy for each server. Raises NoAddress."""
    made = {}
    for server, find in ADDRESSES.items():
        host, port = find()
        made[server] = Proxy(port, host)
    return made


class BenchCluster:
    """Nodes by name, and this process as their client."""

    def __init__(self, process: Process, options: tuple[str, ...], *, proxied: bool) -> None:
        self.process = process
        self.nodes: dict[str, NodeProcess] = {}
        self._options = options
        self._proxied = proxied
        self._numbers = 0

    async def add(self, count: int = 1) -> list[NodeProcess]:
        """Start N nodes, and return when they are up."""
        new = []
        for _ in range(count):
            self._numbers += 1
            proxies = _proxies() if self._proxied else {}
            new.append(NodeProcess(f"bench-{self._numbers}", self._options, proxies))
        self.nodes |= {each.name: each for each in new}
        await asyncio.gather(*(each.start() for each in new))
        return new

    async def drop(self, node: NodeProcess) -> None:
        del self.nodes[node.name]
        await node.end()

    async def figures(self) -> dict[str, float]:
        """Return the figures of all nodes, added up."""
        total: dict[str, float] = {}
        for each in await asyncio.gather(*(node.figures() for node in self.nodes.values())):
            for name, value in each.items():
                total[name] = total.get(name, 0.0) + value
        return total

    async def homes(self, type_name: str) -> dict[int, str]:
        """Return the incarnation at which each shard of a type lives now."""
        rows = await self.process.ports.store.shards([type_name])
        return {row.shard: row.home for row in rows if row.home is not None and row.step == "home"}

    async def close(self) -> None:
        await asyncio.gather(*(node.end() for node in self.nodes.values()))
        self.nodes.clear()


@asynccontextmanager
async def bench_cluster(
    nodes: int, options: tuple[str, ...] = (), *, proxied: bool = False
) -> AsyncIterator[BenchCluster]:
    """Run N nodes, and route refs of this loop to them; all end with the block. `options` are
    manage.py's own.

    With `proxied` the nodes reach their servers through proxies, which can be unplugged.
    """
    settings = get_settings()
    portal = Portal(asyncio.get_running_loop(), settings.ask_timeout_seconds)
    process = await client_process()
    cluster = BenchCluster(process, options, proxied=proxied)
    try:
        await cluster.add(nodes)
        await process.start()
        portal.joined(process)
        if nodes > 1:
            # The coordinator reads the members a few times a second: the first node would get all
            # shards that are placed earlier.
            await asyncio.sleep(MEMBERS_SECONDS)
        with use_gateway(ClusterGateway(portal)):
            yield cluster
    finally:
        portal.close("the benchmark is over")
        await process.close()
        await cluster.close()


async def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for a condition. Raises NodeFailed, with the condition's name `what`, after that
    time.
    """
    deadline = time.perf_counter() + seconds
    while not condition():
        if time.perf_counter() > deadline:
            raise NodeFailed(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.01)
