"""Two and three clients at once: which one waits, its answer when it goes on, and the rows that are
stored in the end.

Each round holds one client's transaction at its commit, or between its rows and their fence, begins
others beside it, and lets the first commit or ends its session. That is done on PostgreSQL, and
then on the virtual server with the same script: at every halt each client has to be where it was
there, and in the end all answers and all rows have to be the same. Where Postgres leaves it to
chance who is first, the virtual server follows it. The message of a failure names seed and round.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg
import pytest

from sharding_app.adapters.memory import (
    MemoryJournal,
    MemoryLeases,
    MemoryLifelineSession,
    MemoryServer,
    MemoryStore,
)
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.leases import PostgresLeases
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.ports.deliveries import MessageChanges, MessageRow, Taking
from sharding_app.ports.journal import Erasure, Journal, JournalUnavailable, Mark
from sharding_app.ports.lease import Leases
from sharding_app.ports.lifeline import LifelineSession, SessionLost
from sharding_app.ports.store import ClusterStore, StoreUnavailable
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.records import NumberOfWorkers, Server
from tests.contract.factories import terms
from tests.contract.gates import Gates, MemoryGates, Place, PostgresGates, Rest, at_rest
from tests.contract.test_differential import ENTITIES, NODES, SHARDS, History, Operation, outcome_of, rest_of
from tests.support.given import CART, event_row, member, with_type
from tests.support.scratch import empty_tables

pytestmark = pytest.mark.asyncio

SEEDS = range(6)
ROUNDS = 40
CLIENTS = FIRST, SECOND, THIRD = "first", "second", "third"
PATIENCE_SECONDS = 120.0
"Nothing is given up by itself, however slow the machine is."
HOUR = 3600.0
HORIZON = 1e6
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
PAIRS = (
    ("_append", "_decide"), ("_decide", "_append"), ("_append", "_append"), ("_decide", "_decide"), ("_decide", "_elect"),
    ("_elect", "_decide"), ("_bury", "_come_back"), ("_come_back", "_bury"), ("_join", "_join"), ("_update", "_leave"),
    ("_leave", "_update"), ("_elect", "_bury"), ("_remember", "_decide"), ("_remember", "_remember"), ("_snapshot", "_snapshot"),
    ("_erase", "_append"), ("_append", "_erase"), ("_erase", "_forget_states"), ("_trim", "_erase"), ("_acquire", "_acquire"),
    ("_acquire", "_renew"), ("_release", "_acquire"), ("_locate", "_locate"), ("_join", "_bury"), ("_decide", "_locked"),
    ("_ask_to", "_come_back"), ("_move", "_move"), ("_move", "_decide_about"), ("_decide_about", "_move"), ("_stage", "_stage"),
    ("_decide_about", "_decide_about"), ("_move", "_discard"), ("_discard", "_move"), ("_move", "_decide"), ("_decide", "_move"),
    ("_move", "_erase"), ("_erase", "_move"), ("_decide", "_decide_about"), ("_decide_about", "_decide"), ("_stage", "_move"),
    ("_rescale", "_locate"), ("_rescale", "_put_in_force"), ("_put_in_force", "_rescale"), ("_put_in_force", "_elect"),
    ("_elect", "_put_in_force"),
)  # fmt: skip
"Operations that meet at some row."
KEEPER = "keeper"
"Holds the locks of a node, which must not be buried then."
LEASES = ("shard-1", "shard-2")


class Client:
    """One process and what it has of the ports: the side of an operation."""

    def __init__(
        self, name: str, store: ClusterStore, journal: Journal, leases: Leases, session: LifelineSession
    ) -> None:
        self.name = name
        self.store = store
        self.journal = journal
        self.leases = leases
        self.session = session
        self.sessions: dict[str, LifelineSession] = {}
        self.cluster_id = ""
        self.type_id = 0

    async def close(self) -> None:
        for each in (self.store, self.journal, self.leases, self.session):
            await each.close()


class World:
    """The same clients in both worlds."""

    def __init__(self, gates: Gates, make: Callable[[str], Client]) -> None:
        self.gates = gates
        self.clients = {name: make(name) for name in (*CLIENTS, KEEPER)}

    async def begin(self) -> None:
        keeper = self.clients[KEEPER]
        cluster_id = await keeper.store.cluster_id()
        type_id = await with_type(keeper.store)
        await keeper.store.introduce_workers({CART.name: 3})
        for each in self.clients.values():
            each.cluster_id, each.type_id = cluster_id, type_id
        for name in (*NODES, *CLIENTS):
            await keeper.store.join(member(name), lifeline_keys(cluster_id, name))
        for key in lifeline_keys(cluster_id, NODES[-1]):
            await keeper.session.lock(key)
        for name in CLIENTS:
            await self.clients[name].session.open()
        await self.clients[FIRST].session.elect(NODES[0])
        await self.clients[FIRST].session.resign()

    async def dump(self) -> dict[str, object]:
        """All rows, as the ports show them."""
        side = self.clients[KEEPER]
        found: dict[str, object] = {}
        for entity in ENTITIES:
            found[f"events of {entity}"] = (await side.journal.read_from(side.type_id, entity, 0)).events
            snapshots, before = [], 1 << 40
            while (each := await side.journal.read_snapshot(side.type_id, entity, before)) is not None:
                snapshots.append((each.seq, each.shard, each.epoch, each.state))
                before = each.seq
            found[f"snapshots of {entity}"] = snapshots
        page = await side.journal.due([(side.type_id, shard) for shard in SHARDS], HORIZON, 1000)
        found["messages"] = sorted(each._replace(due=LONG_AGO) for each in page.messages)
        found["marks"] = await side.journal.recall(side.type_id, list(SHARDS))
        found["homes"] = sorted(await side.store.shards(), key=lambda row: row.shard)
        found["members"] = [
            (each.incarnation, each.age, each.state, each.deaf, each.asked, each.server)
            for each in (await side.store.members())[1]
        ]
        found["coordinator"] = await side.store.coordinator()
        found["workers"] = await side.store.workers()
        found["locations"] = await side.store.locations(CART.name)
        return found

    async def forget(self) -> None:
        """Between two rounds: no client coordinates, and none waits to be opened again."""
        for name in CLIENTS:
            session = self.clients[name].session
            try:
                await session.resign()
            except SessionLost:
                await session.open()


class Script(NamedTuple):
    """A round: what each client does, where the first is held, and how that ends."""

    names: list[str]
    operations: list[Operation]
    place: Place
    committed: bool
    "Whether the first goes on; otherwise its session is ended."
    second_ends: bool
    "The second one's session is ended while it waits."


class Transcript(NamedTuple):
    begun: list[Rest]
    "Where each client was at rest when it had begun."
    after: list[list[Rest]]
    "Where all of them were each time that one which was held had gone on, or had ended."
    answers: list[object]

    def came_to_its_gate(self, number: int) -> bool:
        return "held" in (self.begun[number], *(rests[number] for rests in self.after))


async def answer_of(operation: Operation, client: Client) -> object:
    try:
        return await outcome_of(operation, client)  # type: ignore[arg-type]
    except (JournalUnavailable, StoreUnavailable) as error:
        return "unavailable", error.answered
    except SessionLost:
        return "session lost"


async def play(world: World, script: Script, real: Transcript | None = None) -> Transcript:
    """Play a round. `real`: what PostgreSQL did, which the virtual server follows where that is
    left open.
    """
    gates, clients = world.gates, CLIENTS[: len(script.operations)]
    places: list[Place] = [script.place, "commit", "commit"]
    tasks: list[asyncio.Task[object]] = []
    begun: list[Rest] = []
    for number, client in enumerate(clients):
        if real is None or real.came_to_its_gate(number):
            await gates.shut(client, places[number])
        tasks.append(asyncio.ensure_future(answer_of(script.operations[number], world.clients[client])))
        begun.append(await at_rest(gates, client, tasks[-1]))
        if number == 1 and script.second_ends and begun[1] == "waits":
            await gates.end(client)
            await tasks[1]
    after: list[list[Rest]] = []
    rests = [await at_rest(*each) for each in zip((gates,) * len(clients), clients, tasks, strict=True)]
    while "held" in rests:
        number = rests.index("held")
        if isinstance(gates, MemoryGates) and real is not None and len(real.after) > len(after):
            gates.follow(dict(zip(clients, real.after[len(after)], strict=True)))
        if number == 0 and not script.committed:
            await gates.end(FIRST)
        await gates.open(clients[number], places[number])
        rests = [await at_rest(*each) for each in zip((gates,) * len(clients), clients, tasks, strict=True)]
        after.append(rests)
    for client, place in zip(clients, places, strict=False):
        await gates.open(client, place)
    return Transcript(begun, after, list(await asyncio.gather(*tasks)))


class Overlaps(History):
    """Draws operations that write."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.staged = 0
        self.messages: list[str] = []
        "Ids of messages that may be stored."

    def script(self) -> Script:
        random = self.random
        makers = list(random.choice(PAIRS)) if random.random() < 0.7 else []
        drawn = [getattr(self, each)() for each in makers]
        drawn += [self.write() for _ in range(random.choice((2, 2, 3)) - len(drawn))]
        return Script(
            names=[name for name, _ in drawn],
            operations=[operation for _, operation in drawn],
            place=random.choice(("commit", "commit", "work")),
            committed=random.random() < 0.75,
            second_ends=random.random() < 0.2,
        )

    def write(self) -> tuple[str, Operation]:
        makers = (
            *(self._append,) * 6, *(self._decide,) * 6, self._snapshot, self._snapshot, self._trim, self._forget_states,
            *(self._remember,) * 2, *(self._erase,) * 2, self._join, self._update, self._leave, self._come_back, self._come_back,
            self._ask_to, self._bury, self._bury, self._locate, self._rescale, self._put_in_force, self._elect, self._elect, self._acquire, self._acquire, self._renew,
            self._release, *(self._move,) * 5, self._stage, self._decide_about, self._decide_about, self._discard, self._settle, self._members, self._locked, self._locked, self._read,
        )  # fmt: skip
        return self.random.choice(makers)()

    def _message(self) -> Callable[[Any], MessageRow]:
        """A message, or a timer: few keys, so that some are replaced."""
        self.staged += 1
        name, entity = f"m{self.staged}", self.random.choice(ENTITIES)
        shard = len(entity) % len(SHARDS)
        epoch = self.epochs.get(shard, 0) + self.random.choice((0, 0, 0, 0, -1))
        key, delay = self.random.choice((None, None, "k")), self.random.choice((0.0, 0.0, 0.0, 9999.0))
        self.messages.append(name)

        def made(side: Any) -> MessageRow:
            row = MessageRow(name, side.type_id, shard, entity, epoch, 1, 0, CART.name, "a", "c", b"")
            return row._replace(key=key, delay=delay if key else 0.0)

        return made

    def _known(self, most: int) -> list[str]:
        known = self.messages[-8:]
        return self.random.sample(known, min(len(known), self.random.randint(0, most)))

    def _takings(self) -> list[Taking]:
        found = []
        for name in self._known(3):
            self.staged += 1
            kind = self.random.choice(("take", "take", "take", "park", "resume", "again"))
            again = (f"again{self.staged}", LONG_AGO) if kind == "again" else None
            found.append(Taking(name, park=kind == "park", resumed=kind == "resume", again=again))
        return found

    def _move(self) -> tuple[str, Operation]:
        rows, takes = self._rows(), self._takings()
        sends = [self._message() for _ in range(self.random.randint(0, 2))]
        cancels = self.random.sample(ENTITIES, self.random.choice((0, 0, 1)))

        async def move(side: Any) -> object:
            events = [event_row(side.type_id, row["entity"], row["seq"], **rest_of(row)) for row in rows]
            stored = {each.timer or each.id: each for each in (made(side) for made in sends)}
            gone = [(side.type_id, entity, "k") for entity in cancels]
            at = await side.journal.append(events, MessageChanges(list(stored.values()), gone, takes))
            return at is not None

        return f"move {rows} {takes} {len(sends)} {cancels}", move

    def _stage(self) -> tuple[str, Operation]:
        sends = [self._message() for _ in range(self.random.randint(1, 2))]

        async def stage(side: Any) -> None:
            stored = {each.timer or each.id: each for each in (made(side) for made in sends)}
            await side.journal.stage(list(stored.values()))

        return f"stage {self.messages[-len(sends) :]}", stage

    def _discard(self) -> tuple[str, Operation]:
        taken = self._known(2)

        async def discard(side: Any) -> object:
            return sorted(await side.journal.discard([Taking(each) for each in taken]))

        return f"discard {taken}", discard

    def _decide_about(self) -> tuple[str, Operation]:
        name = self.random.choice(self.messages[-8:] or ["none"])
        shard = self.random.choice(SHARDS)
        epoch = self.epochs.get(shard, 0) + self.random.choice((0, 0, 0, -1))
        kind = self.random.choice(("set_aside", "park", "turn"))
        self.staged += 1
        new = f"turned{self.staged}"
        self.messages += [new] if kind == "turn" else []

        async def decide_about(side: Any) -> object:
            claim = side.type_id, shard, epoch
            match kind:
                case "set_aside":
                    return await side.journal.set_aside(name, 1, 0.0, "no answer", claim)
                case "park":
                    return await side.journal.park(name, "no answer", claim)
                case _:
                    return await side.journal.turn(name, new, "refused", b"", claim)

        return f"{kind} {name} at {shard} {epoch}", decide_about

    def _rows(self) -> list[dict[str, Any]]:
        """In one order, so that two appends do not wait for each other."""
        return sorted(super()._rows(), key=lambda row: (row["entity"], row["seq"]))

    def _remember(self) -> tuple[str, Operation]:
        """Marks of one kind: both kinds take two transactions, and the second one races with those
        that waited for the first.
        """
        entities, runs = self.random.sample(ENTITIES, 2), self.random.random() < 0.7
        shards = {entity: len(entity) % len(SHARDS) for entity in entities}
        epochs = {shard: self.epochs.get(shard, 0) for shard in shards.values()}

        async def remember(side: Any) -> None:
            await side.journal.remember(
                [
                    Mark(type_id=side.type_id, shard=shard, entity=entity, epoch=epochs[shard], runs=runs)
                    for entity, shard in shards.items()
                ]
            )

        return f"remember {entities} {runs}", remember

    def _erase(self) -> tuple[str, Operation]:
        entity, at_most = self.random.choice(ENTITIES), self.random.choice((1, 100))
        shard = len(entity) % len(SHARDS)
        epoch = self.epochs.get(shard, 0) + self.random.choice((0, 0, 0, -1))

        async def erase(side: Any) -> object:
            return await side.journal.erase(
                side.type_id, shard, epoch, entity, at_most=at_most, before=Erasure(), by="operator"
            )

        return f"erase {entity} {at_most} at {epoch}", erase

    def _leave(self) -> tuple[str, Operation]:
        name = self.random.choice((*NODES, SECOND))

        async def leave(side: Any) -> None:
            await side.store.leave(name)

        return f"leave {name}", leave

    def _come_back(self) -> tuple[str, Operation]:
        name, server = self.random.choice(NODES), self.random.choice((None, Server("some time", 3)))

        async def come_back(side: Any) -> object:
            found = await side.store.come_back(name, server)
            return None if found is None else sorted(found[1], key=lambda row: row.shard)

        return f"come_back {name}", come_back

    def _ask_to(self) -> tuple[str, Operation]:
        request = self.random.choice(("leave", "stop", None))

        async def ask_to(side: Any) -> object:
            return await side.store.ask_to(request, ["one", "three"])

        return f"ask_to {request}", ask_to

    def _bury(self) -> tuple[str, Operation]:
        name, term = self.random.choice(NODES), self.term + self.random.choice((0, 0, 0, -1))

        async def bury(side: Any) -> object:
            return await side.store.bury(term, name)

        return f"bury {name} {term}", bury

    def _locate(self) -> tuple[str, Operation]:
        node = self.random.choice(NODES)

        async def locate(side: Any) -> object:
            return await side.store.locate(CART.name, {1: node})

        return f"locate {node}", locate

    def _rescale(self) -> tuple[str, Operation]:
        workers = self.random.randint(1, 5)

        async def rescale(side: Any) -> object:
            return await side.store.rescale(CART.name, workers)

        return f"rescale to {workers}", rescale

    def _put_in_force(self) -> tuple[str, Operation]:
        term, revision = self.term + self.random.choice((0, 0, 0, -1)), self.random.randint(0, 3)

        async def put_in_force(side: Any) -> object:
            return await side.store.put_in_force(term, NumberOfWorkers(CART.name, 3, 3, revision))

        return f"put revision {revision} in force {term}", put_in_force

    def _elect(self) -> tuple[str, Operation]:
        name = self.random.choice(NODES)

        async def elect(side: Any) -> object:
            return await side.session.elect(name)

        return f"elect {name}", elect

    def _locked(self) -> tuple[str, Operation]:
        async def locked(side: Any) -> object:
            return sorted(await side.journal.locked([(side.type_id, shard) for shard in SHARDS]))

        return "locked", locked

    def _acquire(self) -> tuple[str, Operation]:
        async def acquire(side: Any) -> object:
            return sorted(await side.leases.acquire(LEASES))

        return "acquire", acquire

    def _renew(self) -> tuple[str, Operation]:
        async def renew(side: Any) -> object:
            return sorted(await side.leases.renew(LEASES))

        return "renew", renew

    def _release(self) -> tuple[str, Operation]:
        name = self.random.choice(LEASES)

        async def release(side: Any) -> object:
            return await side.leases.release([name])

        return f"release {name}", release

    async def look(self, world: World) -> None:
        """See what the last round has left, so that the next one is mostly sensible."""
        side = world.clients[KEEPER]
        self.term = (await side.store.coordinator()).term
        self.epochs = {row.shard: row.epoch for row in await side.store.shards()}
        self.numbers = {each: await side.journal.last_seq(side.type_id, each) for each in ENTITIES}


def postgres_client(params: dict[str, Any], cluster_id: str, name: str) -> Client:
    store = PostgresStore(
        params, owner=name, answer_seconds=PATIENCE_SECONDS, lock_timeout_seconds=PATIENCE_SECONDS
    )
    journal = PostgresJournal(
        params, owner=name, answer_seconds=PATIENCE_SECONDS, lock_timeout_seconds=PATIENCE_SECONDS
    )
    session = PostgresLifelineSession(params, cluster_id=cluster_id, owner=name, ttl_seconds=PATIENCE_SECONDS)
    return Client(name, store, journal, PostgresLeases(store, name, terms(HOUR), HOUR), session)


def memory_client(server: MemoryServer, name: str) -> Client:
    return Client(
        name,
        MemoryStore(server, name, lock_seconds=PATIENCE_SECONDS),
        MemoryJournal(server, name, lock_seconds=PATIENCE_SECONDS),
        MemoryLeases(server, name, terms(HOUR), HOUR),
        MemoryLifelineSession(server, name, idle_timeout_seconds=PATIENCE_SECONDS),
    )


async def leases_of(params: dict[str, Any]) -> dict[str, tuple[str | None, int]]:
    async with await psycopg.AsyncConnection.connect(**params) as connection:
        cursor = await connection.execute("SELECT name, owner, token FROM sharding_lease")
        return {name: (owner, token) for name, owner, token in await cursor.fetchall()}


@pytest.mark.parametrize("seed", SEEDS)
async def test_clients_at_once_get_the_same_answers(seed: int, gated_database: dict[str, Any]) -> None:
    empty_tables(gated_database)
    first = PostgresStore(gated_database)
    cluster_id = await first.cluster_id()
    await first.close()
    seen: set[str] = set()
    async with AsyncExitStack() as stack:
        gates = await stack.enter_async_context(PostgresGates(gated_database))
        virtual_gates = MemoryGates()
        real = World(gates, lambda name: postgres_client(gated_database, cluster_id, name))
        virtual = World(virtual_gates, lambda name: memory_client(virtual_gates.server, name))
        for world in (real, virtual):
            for client in world.clients.values():
                stack.push_async_callback(client.close)
            await world.clients[KEEPER].session.open()
            await world.begin()
        history = Overlaps(seed)
        for number in range(ROUNDS):
            await history.look(real)
            script = history.script()
            where = f"seed {seed}, round {number}: {script}"
            true = await play(real, script)
            fake = await play(virtual, script, true)
            assert fake == true, where
            for world in (real, virtual):
                await world.forget()
            assert await virtual.dump() == await real.dump(), where
            rows = {name: (row.owner, row.token) for name, row in virtual_gates.server.leases.items()}
            assert rows == await leases_of(gated_database), where
            seen.update(true.begun)
    assert seen == {"answered", "held", "waits"}
