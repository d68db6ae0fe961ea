"""A scripted server with two-session lifelines, on an event loop whose time only moves when nothing
else can.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sharding_app.ports.lifeline import Pulse, SessionLost
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.protocol.records import Backend, Lineage, Server
from sharding_app.runtime.base.config import LifelineSettings
from sharding_app.runtime.liveness.lifeline import Lifeline
from sharding_app.testing.chance import by_name

T = TypeVar("T")
COORDINATOR = 999
LATENCY = 0.001


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeps end at once, in their order. `freeze` is what SIGSTOP does: time passes and nothing
    runs.
    """

    def __init__(self) -> None:
        self.virtual = 100.0
        super().__init__()

    def time(self) -> float:
        return self.virtual

    def freeze(self, seconds: float) -> None:
        self.virtual += seconds

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.virtual = max(self.virtual, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run(main: Callable[["World"], Coroutine[Any, Any, T]]) -> T:
    """Run a test on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def whole() -> T:
            world = World()
            try:
                return await main(world)
            finally:
                for node in world.nodes:
                    await node.lifeline.stop()

        return runner.run(whole())


class World:
    """The server: locks by key, the term, and every query counted."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.up = True
        self.started = 1
        self.timeline = 1
        self.term = 0
        self.coordinator: str | None = None
        self.locks: dict[int, FakeSession] = {}
        self.ages: dict[str, int] = {}
        self.queries: list[tuple[float, str, str]] = []
        self.nodes: list[Node] = []
        self.ttl = 3.0

    def now(self) -> float:
        return self.loop.time()

    @property
    def server(self) -> Server:
        return Server(started=str(self.started), timeline=self.timeline)

    def expire(self) -> None:
        """What `idle_session_timeout` does."""
        for session in set(self.locks.values()):
            if self.now() - session.last_seen > self.ttl:
                session.kill()

    def kill(self) -> None:
        self.up = False
        for session in set(self.locks.values()):
            session.kill()
        for node in self.nodes:
            for session in node.sessions:
                session.kill()

    def restart(self) -> None:
        self.started += 1
        self.up = True

    def node(self, name: str = "a", **settings: Any) -> "Node":
        node = Node(self, name, LifelineSettings(**{"chance": by_name, **settings}))
        self.nodes.append(node)
        self.ages[name] = len(self.ages)
        return node

    def count(self, since: float, *kinds: str) -> int:
        return sum(1 for at, _, kind in self.queries if at >= since and (not kinds or kind in kinds))


class FakeSession:
    def __init__(self, world: World, owner: str) -> None:
        self.world = world
        self.owner = owner
        self.alive = False
        self.deaf = False
        """The network swallows everything: calls hang, and do not even heed their cancellation for
        a while.
        """
        self.last_seen = 0.0
        self.opened = 0
        self.tried: list[float] = []
        "When it was to be opened."
        self.slow = LATENCY
        self.older = 0
        self.heard: Callable[[], None] | None = None

    def watch(self, heard: Callable[[], None]) -> Callable[[], None]:
        self.heard = heard

        def ends() -> None:
            self.heard = None

        return ends

    def kill(self) -> None:
        """The server ends this session: its locks are free at once, and the client hears of it
        unless it is deaf.
        """
        self.alive = False
        if self.heard is not None and not self.deaf:
            asyncio.get_running_loop().call_later(LATENCY, self.say)
        for key in [key for key, holder in self.world.locks.items() if holder is self]:
            del self.world.locks[key]

    def say(self) -> None:
        if self.heard is not None:
            self.heard()

    async def _call(self, kind: str) -> None:
        if not self.alive:
            raise SessionLost("the connection is closed")
        try:
            await asyncio.sleep(3600.0 if self.deaf else self.slow)
        except asyncio.CancelledError:
            if self.deaf:
                await asyncio.sleep(30.0)
            raise
        self.world.expire()
        if not self.alive:
            raise SessionLost("terminating connection")
        self.last_seen = self.world.now()
        self.world.queries.append((self.world.now(), self.owner, kind))

    async def open(self) -> Backend:
        self.tried.append(self.world.now())
        await asyncio.sleep(3600.0 if self.deaf else LATENCY)
        if not self.world.up:
            raise SessionLost("connection refused")
        self.opened += 1
        self.alive = True
        self.last_seen = self.world.now()
        return Backend(pid=1000 + self.opened, started="now")

    async def lock(self, key: int) -> bool:
        await self._call("lock")
        return self.world.locks.setdefault(key, self) is self

    async def unlock(self, key: int) -> None:
        await self._call("unlock")
        self.world.locks.pop(key, None)

    async def ping(self) -> Pulse:
        await self._call("ping")
        world = self.world
        return Pulse(world.server, COORDINATOR in world.locks)

    async def elect(self, incarnation: str) -> int | None:
        await self._call("elect")
        world = self.world
        holder = world.locks.get(COORDINATOR)
        older = [
            node
            for node in world.nodes
            if world.ages[node.name] < world.ages[incarnation]
            and all(key in world.locks for key in node.keys)
            and node.electable
        ]
        self.older = len(older)
        if (holder is not None and holder is not self) or (holder is None and older):
            return None
        if holder is None:
            world.locks[COORDINATOR] = self
            world.term += 1
            world.coordinator = incarnation
        return world.term

    async def resign(self) -> None:
        await self._call("resign")
        if self.world.locks.get(COORDINATOR) is self:
            del self.world.locks[COORDINATOR]

    async def close(self) -> None:
        self.kill()


class Node:
    """A lifeline, and a shell that writes down what it is told."""

    def __init__(self, world: World, name: str, settings: LifelineSettings) -> None:
        self.world = world
        self.name = name
        self.electable = True
        self.told: list[str] = []
        self.at: dict[str, float] = {}
        self.heart: FakeHeart = FakeHeart()
        self.resume_at_once = True
        self.pulses: list[Pulse] = []
        index = len(world.nodes)
        self.keys = (10 + 2 * index, 11 + 2 * index)
        self.sessions = (FakeSession(world, name), FakeSession(world, name))
        self.lease = Lease(2.0, 3.0)
        self.tasks: list[asyncio.Task[bool]] = []
        self.lifeline = Lifeline(
            self.sessions, world, self.lease, self.keys, name, settings, self, self.heart
        )

    def note(self, what: str) -> None:
        self.told.append(what)
        self.at[what] = self.world.now()

    def on_valid(self) -> None:
        self.note("valid")

    def on_settled(self, server: Server) -> None:
        self.note(f"settled {server.started}")

    def on_suspended(self) -> None:
        self.note("suspended")

    def on_back(self, generation: int, settled: Server | None, lineage: Lineage) -> None:
        self.note("back")
        if self.resume_at_once:
            self.tasks.append(self.world.loop.create_task(self.lifeline.resume(generation)))

    def on_elected(self, term: int) -> None:
        self.note(f"elected {term}")

    def on_deposed(self) -> None:
        self.note("deposed")

    def on_pulse(self, pulse: Pulse) -> None:
        self.pulses.append(pulse)

    async def until(self, what: str, limit: float = 10.0) -> float:
        """Wait until that has been told again, and return how long it took."""
        begin, seen = self.world.now(), self.told.count(what)
        while self.told.count(what) == seen:
            assert self.world.now() - begin < limit, f"no {what!r} within {limit} s, but {self.told}"
            await asyncio.sleep(0.001)
        return self.world.now() - begin

    async def start(self, *, candidate: bool = False) -> "Node":
        self.lifeline.start()
        self.lifeline.set_candidate(candidate)
        await self.until("valid")
        return self


class FakeHeart:
    """Beats at every look, until it is stopped."""

    def __init__(self) -> None:
        self.beats = 0.0
        self.stopped = False
        self.stalls: list[float] = []

    @property
    def beat(self) -> float:
        if not self.stopped:
            self.beats += 1
        return self.beats

    def report_stall(self, seconds: float) -> None:
        self.stalls.append(seconds)
