"""Random histories of operations, done on the virtual server and on PostgreSQL: the same answers,
the same rows.

Seeded, so that a difference can be found again: the message of a failure names the seed and the
operation. Times are left out of the comparison (windows are either wide open or shut).
"""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from sharding_app.adapters.memory import MemoryLifelineSession, MemoryServer
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.ports.deliveries import MessagesGone
from sharding_app.ports.journal import Bounds, Former, Mark, RowRefused, ShardsFenced, Snapshot
from sharding_app.ports.lifeline import LifelineSession
from sharding_app.ports.store import StaleTerm
from sharding_app.protocol.ids import Term
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.records import Decision, HomeChange, Server
from tests.contract.factories import MemoryWorld, PostgresWorld, World, postgres_world
from tests.integration.adapters.postgres.writers import connect, gone
from tests.support.given import CART, event_row, member, with_type

pytestmark = pytest.mark.asyncio

SEEDS = range(8)
OPERATIONS = 200
ENTITIES = ("a", "b", "ä", "long " * 20)
NODES = ("one", "two", "three")
SHARDS = range(4)
PATIENCE_SECONDS = 300.0
"No session is ended for its silence, however slow the machine is."
HOUR_MS = 3_600_000


class Side:
    """One world and what a history needs of it."""

    def __init__(
        self,
        world: World,
        session: Callable[[str, str], LifelineSession],
        gone: Callable[[int], Awaitable[None]],
    ) -> None:
        self.store = world.store("store")
        self.journal = world.journal("journal")
        self.sessions: dict[str, LifelineSession] = {}
        self._session = session
        self._gone = gone
        self._pids: dict[str, int] = {}
        self.cluster_id = ""
        self.type_id = 0

    async def begin(self) -> None:
        self.cluster_id = await self.store.cluster_id()
        self.sessions = {name: self._session(self.cluster_id, name) for name in NODES}
        self.type_id = await with_type(self.store)
        first = self.sessions["one"]
        await self.store.join(member("one"), lifeline_keys(self.cluster_id, "one"))
        await self.open("one")
        await first.elect("one")

    async def open(self, name: str) -> None:
        """Open a session anew, once the server has seen the end of the former one and freed what it
        held.
        """
        await self.hang_up(name)
        self._pids[name] = (await self.sessions[name].open()).pid

    async def hang_up(self, name: str) -> None:
        await self.sessions[name].close()
        if (pid := self._pids.pop(name, None)) is not None:
            await self._gone(pid)


Operation = Callable[[Side], Awaitable[object]]


class History:
    """Draws operations: mostly sensible ones, some that must be refused."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.term: Term = 1
        self.epochs: dict[int, int] = {}
        self.numbers: dict[str, int] = {}
        self.batch: list[dict[str, Any]] = []
        "The last one drawn."
        self.opened: dict[str, None] = {"one": None}

    def next(self) -> tuple[str, Operation]:
        random = self.random
        makers = (
            *(self._append,) * 8,
            *(self._decide,) * 4,
            *(self._read,) * 3,
            self._snapshot, self._trim, self._forget_states, self._outcome, self._settle, self._remember, self._recall,
            self._join, self._update, self._leave, self._members, self._open, self._lock, self._unlock,
            self._elect, self._resign, self._homes, self._bury, self._record, self._members,
            self._begin_move, self._close, self._renew, self._open_shards, self._open_shards, self._lapse, self._closed,
        )  # fmt: skip
        return random.choice(makers)()

    # -- Journal -----------------------------------------------------------------------------------

    def _rows(self) -> list[dict[str, Any]]:
        random, rows = self.random, []
        for _ in range(random.randint(1, 4)):
            entity = random.choice(ENTITIES)
            shard = len(entity) % len(SHARDS)
            seq = self.numbers.get(entity, 0) + random.choice((1, 1, 1, 1, 1, 0, 2))
            rows.append(
                {
                    "entity": entity,
                    "seq": seq,
                    "shard": shard,
                    "epoch": self.epochs.get(shard, 0) + random.choice((0, 0, 0, 0, 0, 0, 0, 0, -1, 1)),
                    "command_id": random.choice((None, "x", "y")),
                    "command": random.choice(("add", "pay")),
                    "reply": random.choice((None, b"\x01")),
                    "partial": random.random() < 0.2,
                    "payload": random.choice((b"1", b'{"a": [1, 2.5]}', b"null")),
                }
            )
            self.numbers[entity] = max(seq, self.numbers.get(entity, 0))
        return rows

    def _append(self) -> tuple[str, Operation]:
        rows = self.batch = self._rows()

        async def append(side: Side) -> None:
            await side.journal.append(
                [event_row(side.type_id, row["entity"], row["seq"], **rest_of(row)) for row in rows]
            )

        return f"append {rows}", append

    def _settle(self) -> tuple[str, Operation]:
        rows = self.batch

        async def settle(side: Side) -> object:
            return await side.journal.settle(
                [event_row(side.type_id, row["entity"], row["seq"], **rest_of(row)) for row in rows]
            )

        return f"settle {rows}", settle

    def _read(self) -> tuple[str, Operation]:
        async def read(side: Side) -> object:
            found = await side.journal.read(side.type_id, ENTITIES)
            bounded = await side.journal.read(side.type_id, ENTITIES, Bounds(events=2, rows=5))
            after = await side.journal.read_from(side.type_id, "a", 2)
            before = await side.journal.read_snapshot(side.type_id, "a", 4)
            last = await side.journal.read_last(side.type_id, ENTITIES)
            lengths = [await side.journal.last_seq(side.type_id, key) for key in ENTITIES]
            ids = (
                await side.journal.ids(side.type_id, "", "", 2),
                await side.journal.ids(side.type_id, "", "a", 9),
            )
            histories = [(key, _untyped(found[key].snapshot), found[key].events) for key in ENTITIES]
            part = [(key, _untyped(each.snapshot), each.events) for key, each in bounded.items()]
            return histories, part, after.events, _untyped(before), last, lengths, ids

        return "read", read

    def _snapshot(self) -> tuple[str, Operation]:
        entity = self.random.choice(ENTITIES)
        shard, seq = len(entity) % len(SHARDS), self.random.randint(1, 5)
        epoch = self.epochs.get(shard, 0) + self.random.choice((0, 0, 0, -1))

        async def save(side: Side) -> None:
            await side.journal.save_snapshots(
                [Snapshot(side.type_id, entity, seq, shard, epoch, b"[%d]" % seq)]
            )

        return f"snapshot {entity} {seq}", save

    def _trim(self) -> tuple[str, Operation]:
        entity, before, keep = (
            self.random.choice(ENTITIES),
            self.random.randint(1, 8),
            self.random.randint(1, 2),
        )
        window = self.random.choice((0.0, 3600.0))
        limit, events = self.random.choice((1, 2, 2000)), self.random.randint(1, 3)

        async def trim(side: Side) -> tuple[int, object]:
            found = await side.journal.trimmable(side.type_id, "", window, events, limit)
            number = side.type_id, entity, before, keep, window, limit
            return await side.journal.trim(*number, keep_events=events), found

        return f"trim {entity} {before} {keep} {window} {limit} {events}", trim

    def _forget_states(self) -> tuple[str, Operation]:
        entity, since, before = (
            self.random.choice(ENTITIES),
            self.random.randint(0, 3),
            self.random.randint(1, 8),
        )
        shard = len(entity) % len(SHARDS)
        epoch = self.epochs.get(shard, 0) + self.random.choice((0, 0, 0, -1))
        window = self.random.choice((0.0, 3600.0))
        former = [Former(entity, shard, epoch, since, before)]

        async def forget(side: Side) -> None:
            await side.journal.forget_states(side.type_id, former, window)

        return f"forget_states {former} {window}", forget

    def _outcome(self) -> tuple[str, Operation]:
        entity, command_id = self.random.choice(ENTITIES), self.random.choice(("x", "y", "z"))

        async def outcome(side: Side) -> object:
            return await side.journal.outcome(side.type_id, entity, command_id, HOUR_MS)

        return f"outcome {entity} {command_id}", outcome

    def _remember(self) -> tuple[str, Operation]:
        marks = [
            (entity, len(entity) % len(SHARDS), self.random.random() < 0.7)
            for entity in self.random.sample(ENTITIES, 2)
        ]
        epochs = {shard: self.epochs.get(shard, 0) for _, shard, _ in marks}

        async def remember(side: Side) -> None:
            made = [
                Mark(type_id=side.type_id, shard=shard, entity=entity, epoch=epochs[shard], runs=runs)
                for entity, shard, runs in marks
            ]
            await side.journal.remember(made)

        return f"remember {marks}", remember

    def _recall(self) -> tuple[str, Operation]:
        async def recall(side: Side) -> object:
            found = await side.journal.recall(side.type_id, list(SHARDS))
            return {key: sorted(value) for key, value in found.items()}

        return "recall", recall

    # -- Cluster -----------------------------------------------------------------------------------

    def _decide(self) -> tuple[str, Operation]:
        random = self.random
        term = self.term + random.choice((0, 0, 0, 0, 0, 0, -1))
        changes = []
        for shard in random.sample(SHARDS, random.randint(1, 3)):
            known = self.epochs.get(shard, 0)
            expected = known + random.choice((0, 0, 0, 0, 1))
            home = random.choice((*NODES, None))
            step = "stopped" if home is None else random.choice(("home", "handoff"))
            changes.append(HomeChange(CART.name, shard, expected, expected + 1, home, step))  # type: ignore[arg-type]

        async def decide(side: Side) -> object:
            rows = sorted(await side.store.decide(term, changes), key=lambda row: row.shard)
            self.epochs.update({row.shard: row.epoch for row in rows})
            return rows

        return f"decide {term} {changes}", decide

    def _homes(self) -> tuple[str, Operation]:
        async def homes(side: Side) -> object:
            some = await side.store.homes(CART.name, [0, 2])
            every = await side.store.shards()
            rows = [sorted(rows, key=lambda row: row.shard) for rows in (some, every)]
            return rows, await side.store.home_counts()

        return "homes", homes

    # -- Moves to other journals -------------------------------------------------------------------

    def _some(self) -> list[int]:
        return self.random.sample(SHARDS, self.random.randint(1, 3))

    def _begin_move(self) -> tuple[str, Operation]:
        shards, target = self._some(), self.random.choice(("two", "two", ""))

        async def begin(side: Side) -> object:
            return sorted(await side.store.begin_move(side.type_id, shards, target))

        return f"begin_move {shards} {target}", begin

    def _close(self) -> tuple[str, Operation]:
        shards, seconds = self._some(), self.random.choice((600.0, 600.0, -1.0))

        async def close(side: Side) -> object:
            return await side.store.close_shards(side.type_id, shards, seconds)

        return f"close {shards} {seconds}", close

    def _renew(self) -> tuple[str, Operation]:
        shards, seconds = self._some(), self.random.choice((600.0, -1.0))

        async def renew(side: Side) -> object:
            return await side.store.renew_closings(side.type_id, shards, seconds)

        return f"renew {shards} {seconds}", renew

    def _open_shards(self) -> tuple[str, Operation]:
        shards = self._some()

        async def open_shards(side: Side) -> object:
            return await side.store.open_shards(side.type_id, shards)

        return f"open {shards}", open_shards

    def _lapse(self) -> tuple[str, Operation]:
        term = self.term + self.random.choice((0, 0, -1))

        async def lapse(side: Side) -> object:
            return await side.store.open_lapsed(term)

        return f"lapse {term}", lapse

    def _closed(self) -> tuple[str, Operation]:
        async def closed(side: Side) -> object:
            (config,) = await side.store.types()
            return await side.store.closed_shards(), config.closings, await side.store.news("one")

        return "closed", closed

    # -- Members -----------------------------------------------------------------------------------

    def _join(self) -> tuple[str, Operation]:
        name, deaf = self.random.choice(NODES), self.random.random() < 0.2

        async def join(side: Side) -> object:
            return await side.store.join(member(name, deaf=deaf), lifeline_keys(side.cluster_id, name))

        return f"join {name}", join

    def _update(self) -> tuple[str, Operation]:
        name = self.random.choice(NODES)
        state, deaf = self.random.choice((None, "up", "leaving")), self.random.choice((None, True, False))
        server = self.random.choice((None, Server("some time", 3)))
        unsettled = server is None and self.random.random() < 0.5

        async def update(side: Side) -> object:
            return await side.store.update_member(
                name,
                state=state,  # type: ignore[arg-type]
                deaf=deaf,
                server=server,
                unsettled=unsettled,
            )

        return f"update {name} {state} {deaf} {server} {unsettled}", update

    def _leave(self) -> tuple[str, Operation]:
        name = self.random.choice(NODES)

        async def leave(side: Side) -> None:
            await side.store.leave(name)

        return f"leave {name}", leave

    def _bury(self) -> tuple[str, Operation]:
        name, term = self.random.choice(NODES), self.term + self.random.choice((0, 0, -1))

        async def bury(side: Side) -> object:
            # Its sessions end with it; ours are closed first, so that both sides open them again in
            # the same way.
            await side.hang_up(name)
            return await side.store.bury(term, name)

        self.opened.pop(name, None)
        return f"bury {name} {term}", bury

    def _members(self) -> tuple[str, Operation]:
        async def members(side: Side) -> object:
            _, found = await side.store.members()
            return found, (await side.store.coordinator()), sorted(await side.store.type_ids())

        return "members", members

    def _record(self) -> tuple[str, Operation]:
        async def record(side: Side) -> None:
            await side.store.record([Decision("tried", "this", "that")])

        return "record", record

    # -- Sessions ----------------------------------------------------------------------------------

    def _session(self) -> str | None:
        return self.random.choice(list(self.opened)) if self.opened else None

    def _open(self) -> tuple[str, Operation]:
        name = self.random.choice(NODES)
        self.opened[name] = None

        async def open_again(side: Side) -> None:
            await side.open(name)

        return f"open {name}", open_again

    def _with_session(
        self, what: str, act: Callable[[Side, str], Awaitable[object]]
    ) -> tuple[str, Operation]:
        name = self._session()
        if name is None:
            return self._open()

        async def operation(side: Side) -> object:
            return await act(side, name)

        return f"{what} {name}", operation

    def _lock(self) -> tuple[str, Operation]:
        other, number = self.random.choice(NODES), self.random.randrange(2)

        async def lock(side: Side, name: str) -> object:
            return await side.sessions[name].lock(lifeline_keys(side.cluster_id, other)[number])

        return self._with_session(f"lock of {other} by", lock)

    def _unlock(self) -> tuple[str, Operation]:
        other, number = self.random.choice(NODES), self.random.randrange(2)

        async def unlock(side: Side, name: str) -> None:
            await side.sessions[name].unlock(lifeline_keys(side.cluster_id, other)[number])

        return self._with_session(f"unlock of {other} by", unlock)

    def _elect(self) -> tuple[str, Operation]:
        async def elect(side: Side, name: str) -> object:
            return await side.sessions[name].elect(name)

        return self._with_session("elect", elect)

    def _resign(self) -> tuple[str, Operation]:
        async def resign(side: Side, name: str) -> object:
            await side.sessions[name].resign()
            return (await side.sessions[name].ping()).coordinator_locked

        return self._with_session("resign", resign)


def rest_of(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("entity", "seq")}


def _untyped(each: Snapshot | None) -> tuple[object, ...] | None:
    return None if each is None else (each.entity, each.seq, each.shard, each.epoch, each.state)


async def outcome_of(operation: Operation, side: Side) -> object:
    """What it returned, or raised: an error counts with what it names."""
    try:
        return await operation(side)
    except ShardsFenced as error:
        return "fenced", sorted(shard for _, shard in error.shards)
    except RowRefused as error:
        return "refused", error.index
    except MessagesGone as error:
        return "gone", sorted(error.gone), sorted(error.early)
    except StaleTerm:
        return "stale term"


async def at_once(_: int) -> None:
    """The virtual server has ended a session when it is closed."""


async def ended(params: dict[str, Any], pid: int) -> None:
    """Wait until the server has heard of the end of a session, and freed its locks: that is a
    moment later.
    """
    async with await connect(params) as watcher:
        await gone(watcher, pid)


@pytest.mark.parametrize("seed", SEEDS)
async def test_both_answer_the_same(seed: int, request: pytest.FixtureRequest) -> None:
    async with postgres_world(request) as real:
        assert isinstance(real, PostgresWorld)
        server = MemoryServer()
        params = real.params
        sides = (
            Side(
                MemoryWorld(server),
                lambda _, name: MemoryLifelineSession(server, name, idle_timeout_seconds=PATIENCE_SECONDS),
                at_once,
            ),
            Side(
                real,
                lambda cluster, name: PostgresLifelineSession(
                    params, cluster_id=cluster, owner=name, ttl_seconds=PATIENCE_SECONDS
                ),
                lambda pid: ended(params, pid),
            ),
        )
        for side in sides:
            await side.begin()
        history = History(seed)
        seen: list[str] = []
        for number in range(OPERATIONS):
            what, operation = history.next()
            fake, true = [await outcome_of(operation, side) for side in sides]
            assert fake == true, f"seed {seed}, operation {number}: {what}"
            history.term = (await sides[1].store.coordinator()).term
            seen.append(what.split()[0])
            if isinstance(true, tuple) and isinstance(true[0], str):
                seen.append(true[0])
        for side in sides:
            for session in side.sessions.values():
                await session.close()
        assert {"append", "close", "decide", "fenced", "read", "settle"} <= set(seen)


async def test_the_virtual_server_forgets_no_commit_in_a_restart() -> None:
    server = MemoryServer()
    before = server.identity
    server.stop()
    server.start()
    assert server.identity.timeline == before.timeline
    server.fail_over()
    assert server.identity.timeline == before.timeline + 1
