"""The callers: proxy-only processes and the nodes themselves, with users who call, wait, and sometimes call again.

A client dies, or is restarted, and comes back under its name as another incarnation. Its users outlive it: each goes on
where it stood, and calls again, with the same command id, what it had called so and was not told of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.adapters.memory.transport import MemoryTransport
from sharding_app.core.ids import Incarnation
from sharding_app.errors import AskTimeout, BufferFull, Unavailable
from sharding_app.model.types import EntityType
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.runtime.config import ProcessPorts
from sharding_app.runtime.process import Process as Asking
from sharding_app.simulation.loop import SimLoop
from sharding_app.simulation.promises import Call
from sharding_app.simulation.scheduler import Life, Process
from sharding_app.simulation.virtual_node import ASK_SECONDS, WINDOW_SECONDS, SimClock, config_of
from sharding_app.simulation.workload import BOOKINGS

if TYPE_CHECKING:
    from sharding_app.simulation.world import World

COMMANDS = (
    *("add",) * 10,
    *("add_two",) * 2,
    *("add_slowly",) * 2,
    *("add_in_steps",) * 2,
    *("tell",) * 2,
    *("again",) * 3,
    "reject",
    "fail",
    *("total",) * 5,
    *("total_slowly",) * 2,
    "total_surely",
)
TOKENS = {"add_two": 2, "add_in_steps": 2}
WITHOUT_TOKENS = frozenset({"total", "total_slowly", "total_surely", "rest", "quit"})
ATTEMPTS = 4
RETRY_WITHIN_SECONDS = WINDOW_SECONDS * 0.9
"""After so long no user calls again with the same id: it may be forgotten."""
THINK_SECONDS = 0.5
GRACE_SECONDS = 1.0
"A call may end so much later than its timeout says."


def commands_of(entity_type: EntityType) -> tuple[str, ...]:
    """What users ask of it; those that end it too, where it has such."""
    return (*COMMANDS, *(each for each in ("rest", "quit") if each in entity_type.commands))


class Unsure(NamedTuple):
    """A call with a command id that has not ended."""

    entity: tuple[EntityType, str]
    command: str
    timeout: float | None
    tokens: tuple[str, ...]
    first_at: float
    "When it was made for the first time, whatever process it was."


class Caller:
    """Makes calls through whatever process stands behind it, and reports each to the witness."""

    def __init__(self, world: World, name: str, asking: Callable[[], Asking | None]) -> None:
        self.world = world
        self.name = name
        self.asking = asking
        self.unsure: dict[int, Unsure] = {}
        self._calls = 0
        self._tokens = 0

    def call(
        self,
        process: Asking,
        entity: tuple[EntityType, str],
        command: str,
        timeout: float | None = None,
        former: Unsure | None = None,
    ) -> asyncio.Future[Call]:
        """Make one call now, for the first time or as a `former` one was; the future has it when it has ended."""
        self._calls += 1
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Call] = loop.create_future()
        entity_type, entity_id = entity
        method = {"tell": "add", "again": "add"}.get(command, command)
        if former is None:
            wanted = 0 if command in WITHOUT_TOKENS else TOKENS.get(command, 1)
            tokens, first_at = tuple(self._token() for _ in range(wanted)), self.world.now
        else:
            tokens, first_at = former.tokens, former.first_at
        again = command in ("again", "book", "book_only")
        stores = method.startswith("add")
        if method in BOOKINGS:
            self.world.witness.bookings[tokens[0]] = method
        call = Call(
            number=self._calls,
            client=process.incarnation,
            entity=f"{entity_type.name}/{entity_id}",
            command=method,
            tokens=tokens if stores else (),
            began=self.world.now,
            repeated=again,
            in_doubt=former is not None,
            patience=(timeout or ASK_SECONDS) * (ATTEMPTS if again else 1) * 1.1 + GRACE_SECONDS,
            books=tokens[0] if method in BOOKINGS else "",
        )
        handler = entity_type.commands[method]
        self.world.commands += 1
        caller = loop.process if isinstance(loop, SimLoop) else None
        self.world.witness.called(call, caller, tokens[0] if method in ("fail", "reject") else None)
        command_id = f"id-{tokens[0]}" if again else None
        if again:
            self.unsure[id(call)] = Unsure(entity, command, timeout, tokens, first_at)

        def attempt(number: int) -> None:
            future = process.ask(
                entity_type.name, entity_id, method, handler.encode(tokens, {}), timeout, command_id,
                tell=command == "tell",
            )  # fmt: skip
            future.add_done_callback(lambda ended: over(ended, number))

        def over(ended: asyncio.Future[bytes], number: int) -> None:
            call.error = ended.exception()
            if call.error is None:
                call.value = handler.decode_result(ended.result())
                if isinstance(call.value, list):
                    call.value = tuple(call.value)
            elif (
                again
                and number < ATTEMPTS
                and isinstance(call.error, AskTimeout | Unavailable)
                and self.world.now - first_at < RETRY_WITHIN_SECONDS
            ):
                call.in_doubt = call.in_doubt or call.error.stored != "nothing"
                loop.call_later(0.1, attempt, number + 1)
                return
            if isinstance(call.error, BufferFull) and entity_type.waiting_limit is not None:
                self.world.transition("singleton's proxy", "waits", "oldest dropped")
            self.unsure.pop(id(call), None)
            call.ended = self.world.now
            self.world.witness.answered(call)
            done.set_result(call)

        attempt(1)
        if command == "tell":
            self.world.witness.unanswered.pop(id(call), None)
            done.set_result(call)
        return done

    def call_again(self, process: Asking) -> None:
        """Make the calls with command ids again that another process has not seen the end of."""
        unsure, self.unsure = self.unsure, {}
        for each in unsure.values():
            if self.world.now - each.first_at < RETRY_WITHIN_SECONDS:
                self.call(process, each.entity, each.command, each.timeout, each)

    async def use(self, random: Random, turns: Iterable[int]) -> None:
        """Be a user: think, call, wait for the answer; sometimes call several times without waiting."""
        for _ in turns:
            await asyncio.sleep(random.random() * THINK_SECONDS)
            process = self.asking()
            if process is None:
                continue
            cast = self.world.cast
            if cast.tills and random.random() < 0.25:
                await self.call(process, random.choice(cast.tills), random.choice(BOOKINGS))
                continue
            entity = random.choice(cast.hot if random.random() < 0.4 else cast.entities)
            timeout = random.choice((None, None, None, 1.5, 0.3))
            number = random.choice((1, 1, 1, 2, 4, 8))
            calls = [
                self.call(process, entity, random.choice(commands_of(entity[0])), timeout)
                for _ in range(number)
            ]
            for each in calls:
                await each

    def _token(self) -> str:
        self._tokens += 1
        return f"{self.name}.{self._tokens}"


class Client:
    """One slot of the callers: a proxy-only process, such as a web process, that dies and is started again."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"p-c{number}"
        self.process: Process
        self.loop: SimLoop
        self.asking: Asking
        self.started = False
        "The present process has begun, and does not end yet."
        self.on_boot: list[Callable[[], None]] = []
        "What users do when another process takes the place of theirs."
        self.caller = Caller(world, self.name, lambda: self.asking if self.started else None)
        self._begun: asyncio.Event
        self._runs = 0
        self._booted = False
        self._make()

    @property
    def incarnation(self) -> Incarnation:
        return self.asking.incarnation

    @property
    def runs(self) -> bool:
        return self.process.life is not Life.CRASHED

    def _make(self) -> None:
        world, random = self.world, self.world.scheduler.random
        self._runs += 1
        incarnation = f"{self.name}-{self._runs}"
        self.process = Process(
            world.scheduler, self.name, rate=1 + random.uniform(-0.04, 0.04), offset=random.uniform(0, 1000)
        )
        self.loop = SimLoop(self.process)
        self._begun = asyncio.Event()
        self.asking = Asking(
            incarnation,
            config_of(world, self.name),
            ProcessPorts(
                store=MemoryStore(world.server, incarnation),
                transport=MemoryTransport(world.network, incarnation),
                clock=SimClock(self.process),
            ),
            list(world.cast.types),
        )

    def boot(self) -> None:
        """Start the process, as another incarnation if it has run before, and unless it runs now."""
        if self._booted and self.runs:
            return
        if self._booted:
            self._make()
        self._booted = True
        self.loop.create_task(self._start())
        for each in self.on_boot:
            each()

    async def _start(self) -> None:
        while not self.started:
            try:
                await self.asking.start()
                self.started = True
                self._begun.set()
            except (StoreUnavailable, TransportError):
                await asyncio.sleep(0.1)
        self.caller.call_again(self.asking)

    async def begin(self, user: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let a user go on as soon as the process has begun."""
        await self._begun.wait()
        await user()

    def crash(self) -> None:
        """kill -9. No peer is told; the kernel closes its connection to the server."""
        self.started = False
        self.process.crash()
        self.world.trace.note(self.name, None, "%s is gone", self.incarnation)
        self.world.network.receivers.pop(self.world.channel_of(self.incarnation), None)
        self.world.witness.abandoned(self.incarnation)
        self.world.server.client_died(self.incarnation)

    async def leave(self) -> None:
        """Stop in order: who waits is told, and so are the peers."""
        self.started = False
        await self.asking.close()
        self.crash()

    async def reach(self, entity: tuple[EntityType, str]) -> None:
        """Ask until the entity answers."""
        await self._until_answered(entity, "total")

    async def send_to_rest(self, entity: tuple[EntityType, str]) -> None:
        """Let a remembered entity passivate."""
        await self._until_answered(entity, "rest")

    async def _until_answered(self, entity: tuple[EntityType, str], command: str) -> None:
        while True:
            if (await self.caller.call(self.asking, entity, command)).error is None:
                return
            await asyncio.sleep(0.05)
