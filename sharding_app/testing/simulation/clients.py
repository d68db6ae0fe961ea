"""The callers: proxy-only processes and nodes, with users who call, wait, and sometimes call again.

A client dies, or is restarted, and comes back under its name as another incarnation. Its users
outlive it. Each goes on where it was, and repeats, with the same command id, calls that had one and
were not answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.adapters.memory.transport import MemoryTransport
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.listing import Refs
from sharding_app.entities.many import AT_A_TIME, Many
from sharding_app.errors import AskTimeout, BufferFull, Unavailable
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.protocol.call import Call as UserCall
from sharding_app.protocol.ids import Incarnation
from sharding_app.runtime.base.config import ProcessPorts
from sharding_app.runtime.node.process import Process as Asking
from sharding_app.runtime.node.process import cluster_of
from sharding_app.testing.simulation.loop import Life, Process, SimLoop
from sharding_app.testing.simulation.outside import store
from sharding_app.testing.simulation.particular import CROSSING, WAY, way_from
from sharding_app.testing.simulation.promises import BESIDE, Call
from sharding_app.testing.simulation.senders import orders
from sharding_app.testing.simulation.virtual_node import ASK_SECONDS, WINDOW_SECONDS, SimClock, config_of
from sharding_app.testing.simulation.workload import BOOKINGS

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

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
OWN = (
    *("rest", "quit"),
    *("bake", "bake", "bake_in_steps"),
    *("hand_on", "hand_on", "go_round"),
    *("set", "set", "set_anew", "set_and_fail", "set_badly", "put_off"),
)
"""Further commands, of the types that have them."""
OUTSIDE = ("durably", "later")
"""Calls that are stored, and no process is asked."""
SENDING = (
    *("set_out",) * 6,
    "set_out_in_steps",
    "set_out_together",
    "set_out_and_fail",
    *("send_on", "send_on"),
    "durably",
    "later",
)
"""What users do with entities that send durable messages."""
ONE = {
    "pay_one": ("pay", ""),
    "book_one": ("together", ""),
    "set_one": ("ring", "morning"),
    "hesitate_one": ("hesitate", ""),
    "lose_one": ("lose", ""),
    "set_far": ("ring_far", "evening"),
    "set_daily": ("beat_daily", "beat"),
}
"""Commands with one order, and the key of its timer. Without one it is a message to the entity
itself."""
TOKENS = {
    "add_two": 2,
    "add_in_steps": 2,
    "bake_in_steps": 2,
    "bake_and_stall": 2,
    "set_anew": 2,
    "set_out_in_steps": 2,
}
REPEATED = frozenset({"again", "book", "book_only", "hand_on", "set_out"})
"""Commands with an id, which are repeated until their end is known."""
STORES = frozenset(
    {
        "add", "add_two", "add_slowly", "add_in_steps", "bake", "bake_in_steps", "bake_and_stall", "hand_on", "set_out",
        "set_out_in_steps", "set_out_together",
    }
)  # fmt: skip
"""Commands whose tokens are events once they are answered with success."""
MUST_FAIL = frozenset({"fail", "reject", "go_round", "set_and_fail", "set_out_and_fail"})
NEVER_STORED = MUST_FAIL | {"set_badly", "cross"}
WITHOUT_TOKENS = frozenset({"total", "total_slowly", "total_surely", BESIDE, "rest", "quit", "put_off"})
ATTEMPTS = 4
RETRY_WITHIN_SECONDS = WINDOW_SECONDS * 0.9
"""No user repeats a call after this time: its id may be forgotten by then."""
TOO_LATE_SECONDS = WINDOW_SECONDS * 0.95
"""A repetition that was to begin in time, and begins later than this, is left out."""
CHAIN_WITHIN_SECONDS = RETRY_WITHIN_SECONDS - ASK_SECONDS
"""The same for a call whose handler calls others: their ids are as old when it begins anew."""
THINK_SECONDS = 0.6
LOOKS_SECONDS = 0.02
"""Between queries of a user who looks on."""
BUSY = ("add", "add_slowly", "add_in_steps", "add_in_steps", "fail")
"""Commands beside which such a user looks."""
PAGE_IDS = 2
MEMORY_SHARE = 0.2
"Of the turns of users, where there are entities that keep nothing in the journal."
IN_MEMORY = (
    *("add",) * 4,
    "add_two",
    *("add_slowly",) * 2,
    *("tell",) * 2,
    "again",
    "reject",
    "fail",
    *("total",) * 3,
    *("total_slowly", "total_surely"),
    *("quit", "rest", "set_clock", "set_clock"),
)
"""What users do with these entities, as far as they can."""
SENDING_SHARE = 0.2
"Of the turns of users, where there are entities that send durable messages."
GRACE_SECONDS = 1.0
"A call may end this much later than its timeout says."


def commands_of(entity_type: EntityType) -> tuple[str, ...]:
    """Return the commands that users send to this type."""
    return (*COMMANDS, *(each for each in OWN if each in entity_type.commands))


def _repeated_within(command: str) -> float:
    return CHAIN_WITHIN_SECONDS if command == "hand_on" else RETRY_WITHIN_SECONDS


class Said(NamedTuple):
    """The arguments of a command, and the tokens among them."""

    tokens: tuple[str, ...]
    along: tuple[tuple[str, str], ...]
    "Tokens that other entities get on the way, with those entities."
    arguments: tuple[object, ...]


class Unsure(NamedTuple):
    """A call with a command id that has not ended."""

    entity: tuple[EntityType, str]
    command: str
    timeout: float | None
    said: Said
    first_at: float
    "Time of its first attempt, in whatever process."


class Caller:
    """Makes calls through its present process, and reports each to the witness."""

    def __init__(self, world: World, name: str, asking: Callable[[], Asking | None]) -> None:
        self.world = world
        self.name = name
        self.asking = asking
        self.unsure: dict[int, Unsure] = {}
        self._random = Random(f"orders {world.seed} {name}")
        self._calls = 0
        self._tokens = 0

    def call(
        self,
        process: Asking,
        entity: tuple[EntityType, str],
        command: str,
        timeout: float | None = None,
        former: Unsure | None = None,
        ask: Callable[[UserCall], asyncio.Future[bytes]] | None = None,
    ) -> asyncio.Future[Call]:
        """Make one call now, a new one or a `former` one again.

        The future has it when it has ended. `ask` takes the place of the process.
        """
        self._calls += 1
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Call] = loop.create_future()
        entity_type, entity_id = entity
        method = "set_out" if command in ONE else {"tell": "add", "again": "add"}.get(command, command)
        if former is None:
            said, first_at = self._say(entity, command), self.world.now
        else:
            said, first_at = former.said, former.first_at
        tokens = said.tokens
        again = command in REPEATED
        if method in BOOKINGS:
            self.world.witness.bookings[tokens[0]] = method
        elif method == "set_out_together":
            self.world.witness.bookings[tokens[0]] = "book"
        call = Call(
            number=self._calls,
            client=process.incarnation,
            entity=f"{entity_type.name}/{entity_id}",
            command=method,
            tokens=tokens if method in STORES else (),
            given=tokens,
            along=said.along,
            began=self.world.now,
            # Of many that are asked at once, an answer comes with the last of its piece.
            # An entity in memory remembers no ids, and may handle a call with one twice.
            repeated=former is not None or ask is not None or (again and entity_type.kind == "memory"),
            in_doubt=former is not None,
            patience=(timeout or ASK_SECONDS) * (ATTEMPTS if again else 1) * 1.1 + GRACE_SECONDS,
            books=tokens[0] if method in BOOKINGS else "",
        )
        handler = entity_type.commands[method]
        self.world.commands += 1
        caller = loop.process if isinstance(loop, SimLoop) else None
        self.world.witness.called(call, caller, tokens[0] if method in NEVER_STORED else None)
        command_id = f"id-{tokens[0]}" if again else ""
        if again:
            self.unsure[id(call)] = Unsure(entity, command, timeout, said, first_at)

        def attempt(number: int) -> None:
            if self.world.now - first_at > TOO_LATE_SECONDS:
                finish()  # the loop stood still until the window of its id was over
                return
            asked = UserCall(
                entity_type.name, entity_id, method, handler.encode(said.arguments, {}), timeout, command_id,
                command == "tell",
            )  # fmt: skip
            future = process.ask(asked) if ask is None else ask(asked)
            future.add_done_callback(lambda ended: over(ended, number))

        def over(ended: asyncio.Future[bytes], number: int) -> None:
            call.error = ended.exception()
            if call.error is None:
                value = handler.decode_result(ended.result())
                call.value = tuple(value) if isinstance(value, list) else value
            elif (
                isinstance(call.error, AskTimeout | Unavailable)
                and command in REPEATED
                and number < ATTEMPTS
                and self.world.now - first_at < _repeated_within(method)
            ):
                call.in_doubt = call.in_doubt or call.error.stored != "nothing"
                call.repeated = True
                loop.call_later(0.1, attempt, number + 1)
                return
            finish()

        def finish() -> None:
            self._ended(call, entity_type)
            done.set_result(call)

        attempt(1)
        if command == "tell":
            self.world.witness.unanswered.pop(id(call), None)
            done.set_result(call)
        return done

    def _ended(self, call: Call, entity_type: EntityType) -> None:
        """Report the end of a call."""
        if isinstance(call.error, BufferFull) and entity_type.waiting_limit is not None:
            self.world.transition("singleton's proxy", "waits", "oldest dropped")
        self.unsure.pop(id(call), None)
        call.ended = self.world.now
        self.world.witness.answered(call)

    def call_again(self, process: Asking) -> None:
        """Repeat the calls with command ids whose end another process has not seen."""
        unsure, self.unsure = self.unsure, {}
        for each in unsure.values():
            if self.world.now - each.first_at < _repeated_within(each.command):
                self.call(process, each.entity, each.command, each.timeout, each)

    async def use(self, random: Random, turns: Iterable[int]) -> None:
        """Be a user: think, call, wait for the answer; sometimes call several times without
        waiting.
        """
        for _ in turns:
            await asyncio.sleep(random.random() * THINK_SECONDS)
            process = self.asking()
            if process is None:
                continue
            cast = self.world.cast
            if cast.tills and random.random() < 0.25:
                await self.call(process, random.choice(cast.tills), random.choice(BOOKINGS))
                continue
            if cast.senders and random.random() < SENDING_SHARE:
                await self._send(process, random)
                continue
            if cast.in_memory and random.random() < MEMORY_SHARE:
                await self._call_in_memory(process, random)
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

    async def _call_in_memory(self, process: Asking, random: Random) -> None:
        """Call an entity in memory, sometimes several times without waiting."""
        entity = random.choice(self.world.cast.in_memory)
        able = [each for each in IN_MEMORY if each in entity[0].commands or each in ("tell", "again")]
        timeout = random.choice((None, None, 1.5, 0.3))
        calls = [
            self.call(process, entity, random.choice(able), timeout) for _ in range(random.choice((1, 2, 4)))
        ]
        for each in calls:
            await each

    async def look_on(self, random: Random, turns: Iterable[int]) -> None:
        """Be a user who looks: beside commands, at many entities, and at lists."""
        for _ in turns:
            await asyncio.sleep(random.random() * THINK_SECONDS)
            process = self.asking()
            if process is None:
                continue
            what = random.random()
            if what < 0.6:
                await self._look_beside(process, random)
            elif what < 0.8:
                await self._ask_many(process, random)
            else:
                await self._list(process, random)

    async def _look_beside(self, process: Asking, random: Random) -> None:
        entity = random.choice(self.world.cast.hot)
        calls = [self.call(process, entity, random.choice(BUSY))]
        for _ in range(random.choice((1, 2, 4))):
            await asyncio.sleep(random.random() * LOOKS_SECONDS)
            calls.append(self.call(process, entity, BESIDE, random.choice((None, 1.5))))
        for each in calls:
            await each

    async def _ask_many(self, process: Asking, random: Random) -> None:
        """Ask all entities of a type, each in a call of its own to the witness."""
        entities = [each for each in self.world.cast.entities if each[0].singleton_id is None]
        entity_type, _ = random.choice(entities)
        ids = [entity_id for made, entity_id in entities if made is entity_type]
        command = random.choice(("total", BESIDE))
        loop = asyncio.get_running_loop()
        replies: dict[str, asyncio.Future[bytes]] = {each: loop.create_future() for each in ids}
        calls = [
            self.call(process, (entity_type, each), command, ask=lambda call: replies[call.entity])
            for each in ids
        ]
        many: Many[Any] = Many(entity_type, ids, None, None, AT_A_TIME)
        async for answer in getattr(many, command)():
            if answer.error is None:
                encoded = entity_type.commands[command].encode_result(answer.value)
                replies[answer.entity_id].set_result(encoded)
            else:
                replies[answer.entity_id].set_exception(answer.error)
        for each in calls:
            await each

    async def _list(self, process: Asking, random: Random) -> None:
        """List the ids of a type, and show the list to the witness."""
        stored = [
            each for each in self.world.cast.types if each.kind != "memory" and each.singleton_id is None
        ]
        entity_type = random.choice(stored)
        name = entity_type.cls.__name__.lower()
        refs: Refs[Any] = Refs(entity_type, random.choice(("", f"{name}-", f"{name}-1")), stored=True)
        refs.page_ids = PAGE_IDS
        began = self.world.now
        self.world.commands += 1
        try:
            ids = [each.entity_id async for each in refs]
        except (AskTimeout, BufferFull, Unavailable):
            return  # a list that fails says so
        self.world.witness.listed(entity_type, refs.prefix, began, ids)

    async def _send(self, process: Asking, random: Random) -> None:
        """Have an entity send messages and set timers, or store a message for it."""
        cast = self.world.cast
        command = random.choice(SENDING)
        able = [each for each in cast.senders if command in (*each[0].commands, *OUTSIDE)]
        if not able:
            command, able = "set_out", [each for each in cast.senders if "set_out" in each[0].commands]
        entity = random.choice(able)
        if command in OUTSIDE:
            await store(self.world, process, entity, self._token(), is_timer=command == "later")
        else:
            await self.call(process, entity, command)

    async def store_in_silence(self, entity: tuple[EntityType, str]) -> None:
        """Store a message for an entity whose home is not told."""
        process = self.asking()
        if process is not None:
            await store(self.world, process, entity, self._token(), is_told=False)

    def _say(self, entity: tuple[EntityType, str], command: str) -> Said:
        """Make up the arguments of a command."""
        entity_type, entity_id = entity
        wanted = 0 if command in WITHOUT_TOKENS else TOKENS.get(command, 1)
        tokens = tuple(self._token() for _ in range(wanted))
        if command == "go_round":
            return Said(tokens, (), (WAY[-1], *tokens))
        if command == "cross":
            return Said(tokens, (), (CROSSING[entity_id], *tokens))
        if command in ONE:
            what, key = ONE[command]
            target = key or f"{entity_type.name}/{entity_id}"
            return Said(tokens, (), (*tokens, [[what, target, self._token()]]))
        if command.startswith("set_out"):
            given = orders(self._random, self.world.cast.senders, iter(self._token, ""))
            return Said(tokens, (), (*tokens, given))
        if command == "send_on":
            paid = [each for each in self.world.cast.senders if "set_out" in each[0].commands]
            made, target = self._random.choice(paid)
            return Said(tokens, (), (*tokens, f"{made.name}/{target}"))
        if command != "hand_on":
            return Said(tokens, (), tokens)
        way = way_from(entity_id)
        along = tuple((f"{entity_type.name}/{each}", self._token()) for each in way)
        return Said(tokens, along, (way, (*tokens, *(token for _, token in along))))

    def _token(self) -> str:
        self._tokens += 1
        return f"{self.name}.{self._tokens}"


class Client:
    """One slot of the callers: a proxy-only process, such as a web process, that dies and is
    started again.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"p-c{number}"
        self.process: Process
        self.loop: SimLoop
        self._asking: Asking | None = None
        self.incarnation: Incarnation
        self.started = False
        "The present process has begun, and does not end yet."
        self.on_boot: list[Callable[[], None]] = []
        "Called when another process takes the place of the former one."
        self.caller = Caller(world, self.name, lambda: self.asking if self.started else None)
        self._begun: asyncio.Event
        self._runs = 0
        self._booted = False
        self._make()

    @property
    def asking(self) -> Asking:
        """The process that has begun last."""
        if self._asking is None:
            raise AssertionError(f"{self.name} has not begun")
        return self._asking

    @property
    def runs(self) -> bool:
        return self.process.life is not Life.CRASHED

    def _make(self) -> None:
        world, random = self.world, self.world.scheduler.random
        self._runs += 1
        self.incarnation = f"{self.name}-{self._runs}"
        self.process = Process(
            world.scheduler, self.name, rate=1 + random.uniform(-0.04, 0.04), offset=random.uniform(0, 1000)
        )
        self.loop = SimLoop(self.process)
        self._begun = asyncio.Event()

    def boot(self) -> None:
        """Start the process, as another incarnation if it has run before, and unless it runs
        now.
        """
        if self._booted and self.runs:
            return
        if self._booted:
            self._make()
        self._booted = True
        self.loop.create_task(self._start())
        for each in self.on_boot:
            each()

    async def _start(self) -> None:
        world, incarnation = self.world, self.incarnation
        while not self.started:
            ports = ProcessPorts(
                store=MemoryStore(world.server, incarnation),
                transport=MemoryTransport(world.network, incarnation),
                clock=SimClock(self.process),
            )
            try:
                config, types = config_of(world, self.name), list(world.cast.types)
                self._asking = Asking(incarnation, config, ports, types, await cluster_of(ports))
                await self.asking.start()
                self.started = True
                self._begun.set()
            except (StoreUnavailable, TransportError):
                await asyncio.sleep(0.1)
        self.caller.call_again(self.asking)
        world.followers.begin(self.name, self.asking)

    async def begin(self, user: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let a user go on when the process has begun."""
        await self._begun.wait()
        await user()

    def crash(self) -> None:
        """kill -9: no peer hears of it, and the kernel closes the connection to the server."""
        self.started = False
        self.process.crash()
        self.world.trace.note(self.name, None, "%s is gone", self.incarnation)
        self.world.network.receivers.pop(self.world.channel_of(self.incarnation), None)
        self.world.witness.abandoned(self.incarnation)
        for server in self.world.servers.values():
            server.client_died(self.incarnation)

    async def leave(self) -> None:
        """Stop in order: callers that wait and peers are informed."""
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
