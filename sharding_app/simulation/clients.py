"""The callers: proxy-only processes and the nodes themselves, with users who call, wait, and sometimes call again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.adapters.memory.transport import MemoryTransport
from sharding_app.errors import AskTimeout, BufferFull, Unavailable
from sharding_app.model.types import EntityType
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.runtime.config import ProcessPorts
from sharding_app.runtime.process import Process as Asking
from sharding_app.simulation.loop import SimLoop
from sharding_app.simulation.promises import Call
from sharding_app.simulation.scheduler import Process
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


class Caller:
    """Makes calls through whatever process stands behind it, and reports each to the witness."""

    def __init__(self, world: World, name: str, asking: Callable[[], Asking | None]) -> None:
        self.world = world
        self.name = name
        self.asking = asking
        self._calls = 0
        self._tokens = 0

    def call(
        self,
        process: Asking,
        entity: tuple[EntityType, str],
        command: str,
        timeout: float | None = None,
    ) -> asyncio.Future[Call]:
        """Make one call now; the future has it when it has ended."""
        self._calls += 1
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Call] = loop.create_future()
        entity_type, entity_id = entity
        method = {"tell": "add", "again": "add"}.get(command, command)
        tokens = tuple(
            self._token() for _ in range(0 if command in WITHOUT_TOKENS else TOKENS.get(command, 1))
        )
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
            patience=(timeout or ASK_SECONDS) * (ATTEMPTS if again else 1) * 1.1 + GRACE_SECONDS,
            books=tokens[0] if method in BOOKINGS else "",
        )
        handler = entity_type.commands[method]
        self.world.commands += 1
        caller = loop.process if isinstance(loop, SimLoop) else None
        self.world.witness.called(call, caller, tokens[0] if method in ("fail", "reject") else None)
        command_id = f"id-{tokens[0]}" if again else None

        first = loop.time()

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
                and loop.time() - first < RETRY_WITHIN_SECONDS
            ):
                loop.call_later(0.1, attempt, number + 1)
                return
            if isinstance(call.error, BufferFull) and entity_type.waiting_limit is not None:
                self.world.transition("singleton's proxy", "waits", "oldest dropped")
            call.ended = self.world.now
            self.world.witness.answered(call)
            done.set_result(call)

        attempt(1)
        if command == "tell":
            self.world.witness.unanswered.pop(id(call), None)
            done.set_result(call)
        return done

    async def use(self, random: Random, count: int) -> None:
        """Be a user: think, call, wait for the answer; sometimes call several times without waiting."""
        for _ in range(count):
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
    """A proxy-only process, such as a web process."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"p-c{number}"
        self.incarnation = f"{self.name}-1"
        random = world.scheduler.random
        self.process = Process(
            world.scheduler, self.name, rate=1 + random.uniform(-0.04, 0.04), offset=random.uniform(0, 1000)
        )
        self.loop = SimLoop(self.process)
        self.asking = Asking(
            self.incarnation,
            config_of(world, self.name),
            ProcessPorts(
                store=MemoryStore(world.server, self.incarnation),
                transport=MemoryTransport(world.network, self.incarnation),
                clock=SimClock(self.process),
            ),
            list(world.cast.types),
        )
        self.started = False
        self.caller = Caller(world, self.name, lambda: self.asking)

    def boot(self) -> None:
        self.loop.create_task(self._start())

    async def _start(self) -> None:
        while not self.started:
            try:
                await self.asking.start()
                self.started = True
            except (StoreUnavailable, TransportError):
                await asyncio.sleep(0.1)

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
