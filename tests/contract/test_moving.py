"""A move of shards between journals, on the virtual servers and on PostgreSQL: the same answers,
the same rows.

The course of the command (`protocol.moving`) asks both sides for each of its requests. Between two
of them homes write, the coordinator gives and takes homes, and closings lapse. The command is
killed at any request; the same one goes on, or takes the move back. Copies that are left are
deleted, and entities are erased in them. Seeded: the message of a failure names the seed and the
last requests. Times are left out of the comparison, and so is what projections follow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from random import Random
from typing import Any, Protocol

import msgspec
import psycopg
import pytest

from sharding_app.adapters.memory import MemoryServer
from sharding_app.adapters.memory import moving as memory_moving
from sharding_app.adapters.memory.moving import LeftCopies, MemoryMover
from sharding_app.adapters.postgres import copied_rows, moving
from sharding_app.adapters.postgres.left_copies import NotDeleted, delete_left_copies, erase_in_copies
from sharding_app.adapters.postgres.moving import settle_moves
from sharding_app.adapters.postgres.moving_sessions import rows_session, session
from sharding_app.embedded import Servers
from sharding_app.ports.deliveries import MessageChanges, MessageRow, Taking
from sharding_app.ports.journal import Erasure, Journal, Mark, Snapshot
from sharding_app.ports.store import ClusterStore
from sharding_app.protocol import moving as course
from sharding_app.protocol.ids import ShardId, shard_of
from sharding_app.protocol.moving import Answer, CannotMove, Limits, Move, Step, Wanted
from sharding_app.protocol.records import HomeChange
from tests.acceptance.scenario import SECONDS
from tests.contract.factories import MemoryWorld, PostgresWorld, postgres_world
from tests.contract.test_differential import outcome_of
from tests.support.given import CART, elected, event_row, with_type
from tests.support.scratch import empty_tables, make_tables, scratch_database

pytestmark = pytest.mark.asyncio

SEEDS = range(60 if SECONDS else 2)
TURNS = 60
SHARDS = 3
THERE = "b"
PLACES = ("", THERE)
TYPE = msgspec.structs.replace(CART, number_of_shards=SHARDS, extractor="hash:crc32-1")
IDS = [f"e{number}" for number in range(8)]
LONG = 600.0
LIMITS = Limits(homes=1.0, projections=0.2, closed=LONG, look=0.1, rest=5.0, in_use=0.1)
ROWS, NOTES = memory_moving.ROWS_AT_ONCE, 1_000
"""All notes are taken at once: those of one statement have no order."""
READ = (
    course.Renew, course.Homes, course.Fence, course.Stand, course.Watch, course.Prepare, course.Stash, course.Switch,
    course.Unpassed, course.Apply,
)  # fmt: skip
"""The course goes by their answers."""
Dump = dict[str, object]

STORED = {
    "shards": "SELECT shard, epoch, home, step, journal FROM sharding_shard",
    "events": "SELECT entity, seq, shard, epoch, payload::text FROM sharding_event",
    "snapshots": "SELECT entity, seq, shard, epoch, state::text FROM sharding_snapshot",
    "remembered": "SELECT shard, entity FROM sharding_remembered",
    "messages": "SELECT id, shard, entity, epoch, seq, key, failures, parked, error FROM sharding_message",
    "stash": "SELECT id, shard, entity, epoch, seq, key, failures, parked, error FROM sharding_moving_message",
    "marks": "SELECT id, shard, entity, epoch, journal, partial FROM sharding_taken",
    "moves": "SELECT shard, source, target, step, closed_until IS NOT NULL FROM sharding_move",
    "closings": "SELECT closings FROM sharding_type",
    "watched": "SELECT target, shards, walking, entity, seq FROM sharding_moving",
    "notes": "SELECT entity, first, last FROM sharding_moving_touched",
}
ONLY_WHILE_WATCHED = ("stash", "watched", "notes")
ONLY_THE_CLUSTERS = ("moves", "closings")


def alias(journal: str) -> str:
    return journal or "default"


class Side(Protocol):
    """One of the two worlds: two journals, and the command."""

    store: ClusterStore
    journals: Mapping[str, Journal]
    type_id: int

    async def open(self, wanted: Wanted) -> None: ...

    async def do(self, request: course.Request) -> object: ...

    def close(self) -> None:
        """End the command's process."""

    async def settle(self, lying: Mapping[str, list[ShardId]]) -> None:
        """End what a command has left undone behind its last switch."""

    async def delete(self) -> None: ...

    async def erase(self, entity: str) -> None: ...

    def dump(self) -> Mapping[str, Dump]: ...


class Memory:
    def __init__(self) -> None:
        self.servers = {place: MemoryServer() for place in PLACES}
        self.worlds = {place: MemoryWorld(server) for place, server in self.servers.items()}
        self.store: ClusterStore = self.worlds[""].store()
        self.journals: Mapping[str, Journal] = {place: each.journal() for place, each in self.worlds.items()}
        self.type_id = 0
        self._mover: MemoryMover | None = None

    async def open(self, wanted: Wanted) -> None:
        self._mover = MemoryMover(self.servers, wanted, "mover")
        await self._mover.open()

    async def do(self, request: course.Request) -> object:
        assert self._mover is not None
        return await self._mover.do(request)

    def close(self) -> None:
        if self._mover is not None:
            self._mover.close()

    async def settle(self, lying: Mapping[str, list[ShardId]]) -> None:
        for source, shards in lying.items():
            if source:
                mover = MemoryMover(self.servers, Wanted(TYPE.name, source, "", shards), "mover")
                await mover.open()
                await mover.leave()
                mover.close()
            if not any(
                move.source == source and move.step != "moved"
                for move in self.servers[""].cluster.moves.values()
            ):
                self.servers[source].journal.watching.end(self.type_id)

    async def delete(self) -> None:
        await LeftCopies(self.servers, TYPE.name, "cleaner").delete()

    async def erase(self, entity: str) -> None:
        await LeftCopies(self.servers, TYPE.name, "eraser").erase(entity)

    def dump(self) -> Mapping[str, Dump]:
        return {place: self._dump(place) for place in PLACES}

    def _dump(self, place: str) -> Dump:
        server = self.servers[place]
        cluster, journal, messages = server.cluster, server.journal, server.messages
        watched = journal.watching.types.get(self.type_id)
        config = cluster.types.get(TYPE.name)

        def message(each: Any) -> tuple[object, ...]:
            row = each.row
            return (
                row.id,
                row.shard,
                row.entity,
                row.epoch,
                row.seq,
                row.key,
                each.failures,
                each.parked,
                each.error,
            )

        found: dict[str, list[Any]] = {
            "shards": [
                (
                    row.shard, row.epoch, row.home, row.step,
                    cluster.left.get((self.type_id, row.shard), "") if place else cluster.journals[key],
                )
                for key, row in cluster.shards.items()
            ],
            "events": [
                (entity, seq, each.row.shard, each.row.epoch, each.row.payload.decode())
                for (_, entity), rows in journal.events.items() for seq, each in rows.items()
            ],
            "snapshots": [
                (entity, seq, each.shard, each.epoch, each.state.decode())
                for (_, entity), rows in journal.snapshots.items() for seq, each in rows.items()
            ],
            "remembered": [(shard, each) for (_, shard), rows in journal.remembered.items() for each in rows],
            "messages": [message(each) for each in messages.rows.values()],
            "marks": [
                (name, each.taker[1], each.taker[3], each.taker[2], each.journal, each.partial)
                for name, each in messages.marks.items()
            ],
            "moves": [
                (shard, move.source, move.target, move.step, move.closed_until is not None)
                for (_, shard), move in cluster.moves.items()
            ],
            "closings": [(config.closings,)] if config is not None else [],
            "stash": [message(each) for each in messages.stash.values()],
            "watched": [(watched.target, sorted(watched.shards), watched.walking, *watched.after)] if watched else [],
            "notes": [(each.entity, each.first, each.last) for each in journal.watching.notes.get(self.type_id, [])],
        }  # fmt: skip
        return {
            name: sorted(rows, key=repr)
            for name, rows in found.items()
            if not place or name not in ONLY_THE_CLUSTERS
        }


class Real:
    def __init__(self, world: PostgresWorld, params: Mapping[str, Any]) -> None:
        self._params = {"": world.params, THERE: params}
        self._further = {THERE: params}
        self.there = PostgresWorld(dict(params), "")
        self.store: ClusterStore = world.store()
        self.journals: Mapping[str, Journal] = {"": world.journal(), THERE: self.there.journal()}
        self.type_id = 0
        self._lookers = {
            place: psycopg.connect(**each, autocommit=True) for place, each in self._params.items()
        }
        self._command = ExitStack()
        self._move: Any = None

    async def open(self, wanted: Wanted) -> None:
        enter, where = self._command.enter_context, self._params[""]
        cluster = enter(session("", where, self._further))
        number = moving._be_alone(cluster, TYPE.name)
        planned = moving.plan(cluster, TYPE.name, wanted.target, wanted.shards)
        assert planned.shards == {wanted.source: sorted(wanted.shards)}
        source, target = (
            enter(rows_session(name, where, self._further, number, TYPE.name, alias))
            for name in (wanted.source, wanted.target)
        )
        self._move = moving._Move(
            planned, wanted.source, wanted.shards, cluster, source, target, "a test", alias
        )

    async def do(self, request: course.Request) -> object:
        return self._move._do(request)

    def close(self) -> None:
        self._command.close()

    async def settle(self, lying: Mapping[str, list[ShardId]]) -> None:
        settle_moves(self._params[""], self._further, TYPE.name, names=alias)

    async def delete(self) -> None:
        delete_left_copies(self._params[""], self._further, TYPE.name, None, "a test", rows_at_once=1_000)

    async def erase(self, entity: str) -> None:
        erase_in_copies(self._params[""], self._further, TYPE.name, entity)

    def dump(self) -> Mapping[str, Dump]:
        return {place: self._dump(place) for place in PLACES}

    def _dump(self, place: str) -> Dump:
        names = [each for each in STORED if not place or each not in ONLY_THE_CLUSTERS]
        run = self._lookers[place].execute
        ((watched,),) = run("SELECT to_regclass('sharding_moving') IS NOT NULL").fetchall()
        asked = [each for each in names if watched or each not in ONLY_WHILE_WATCHED]
        with self._lookers[place].pipeline():
            cursors = {name: run(STORED[name].encode()) for name in asked}
            rows = {name: cursor.fetchall() for name, cursor in cursors.items()}
        return {name: sorted(rows.get(name, []), key=repr) for name in names}

    async def end(self) -> None:
        self.close()
        for each in self._lookers.values():
            each.close()
        await self.there.close()


Write = Callable[[Side], Awaitable[object]]


class History:
    """Draws what happens beside the command."""

    def __init__(self, seed: int, memory: Memory) -> None:
        self.random = Random(seed)
        self._memory = memory
        self._numbers: dict[str, int] = {}
        self._staged = 0
        self._homes: list[tuple[str, int, ShardId]] = []
        "Homes that there were: their journals, epochs and shards."

    def lies_in(self, shard: ShardId) -> str:
        return self._memory.servers[""].cluster.journals[TYPE.name, shard]

    def moves(self) -> dict[ShardId, Any]:
        return {shard: each for (_, shard), each in self._memory.servers[""].cluster.moves.items()}

    def write(self) -> tuple[str, Write]:
        makers = (
            *(self._append,) * 6, *(self._home,) * 4, self._stop, self._snapshot, self._snapshot, self._remember, self._outside,
            self._trim, self._erase, self._lapse, self._look, self._late,
        )  # fmt: skip
        return self.random.choice(makers)()

    def stop_all(self) -> tuple[str, Write]:
        return self._stopping([row.shard for row in self._rows() if row.home is not None])

    def home_all(self) -> tuple[str, Write]:
        return self._homing(list(range(SHARDS)))

    def _rows(self) -> list[Any]:
        return list(self._memory.servers[""].cluster.shards.values())

    def _epoch(self, shard: ShardId) -> int:
        return self._memory.servers[""].cluster.shards[TYPE.name, shard].epoch

    def _home(self) -> tuple[str, Write]:
        return self._homing([self.random.randrange(SHARDS)])

    def _homing(self, shards: list[ShardId]) -> tuple[str, Write]:
        known = self._memory.servers[""].cluster.shards
        changes = []
        for shard in shards:
            epoch = known[TYPE.name, shard].epoch if (TYPE.name, shard) in known else 0
            changes.append(HomeChange(TYPE.name, shard, epoch, epoch + 1, "n", "home"))

        async def home(side: Side) -> object:
            """Give shards a home, which takes those that lie in the further journal."""
            rows = await side.store.decide(1, changes)
            taken = {row.shard: row.epoch for row in rows if row.home and self.lies_in(row.shard)}
            self._homes += [
                (self.lies_in(row.shard), row.epoch, row.shard)
                for row in rows
                if row.home and side is self._memory
            ]
            found = None
            if taken:
                found = await side.journals[THERE].take(TYPE.name, side.type_id, TYPE.numbering, taken, "n")
            return sorted(rows, key=lambda row: row.shard), found and (found.shards, dict(found.left))

        return f"home {shards}", home

    def _stop(self) -> tuple[str, Write]:
        return self._stopping([self.random.randrange(SHARDS)])

    def _stopping(self, shards: list[ShardId]) -> tuple[str, Write]:
        changes = [
            HomeChange(TYPE.name, each, self._epoch(each), self._epoch(each) + 1, None, "stopped")
            for each in shards
        ]

        async def stop(side: Side) -> object:
            return sorted(await side.store.decide(1, changes), key=lambda row: row.shard)

        return f"stop {shards}", stop

    def _drawn(self) -> tuple[str, ShardId, str, int]:
        """Return an entity, its shard, the journal in which that lies, and the epoch of its home,
        or a former one.
        """
        entity = self.random.choice(IDS)
        shard = shard_of(entity, SHARDS)
        return entity, shard, self.lies_in(shard), self._epoch(shard) - self.random.choice((0,) * 9 + (1,))

    def _message(
        self, type_id: int, entity: str, shard: ShardId, epoch: int | None, **fields: Any
    ) -> MessageRow:
        row = MessageRow(
            f"m{self._staged}", type_id, shard, entity, epoch, self._staged, 0, TYPE.name, "e1", "c", b""
        )
        return row._replace(**fields)

    def _append(self) -> tuple[str, Write]:
        """Events, with messages, timers and marks of messages from the other journal."""
        random = self.random
        entity, shard, journal, epoch = self._drawn()
        first = self._numbers.get(entity, 0) + 1
        last = self._numbers[entity] = first + random.randrange(3)
        self._staged += 1
        key, delay = random.choice(((None, 0.0), (None, 0.0), ("k", 9999.0)))
        others = [
            each
            for place, server in self._memory.servers.items()
            if place != journal
            for each in sorted(server.messages.rows)
        ]
        kind = random.choice(("", "", "send", "send", "take", "part", "own"))
        foreign = random.choice(others) if others and kind in ("take", "part") else None
        own = sorted(self._memory.servers[journal].messages.rows)
        mine = random.choice(own) if own and kind == "own" else None

        async def append(side: Side) -> object:
            rows = [
                event_row(side.type_id, entity, seq, shard=shard, epoch=epoch, payload=b'{"n": %d}' % seq)
                for seq in range(first, last + 1)
            ]
            sends = (
                [self._message(side.type_id, entity, shard, epoch, key=key, delay=delay)]
                if kind == "send"
                else []
            )
            takes = []
            if foreign is not None:
                taker = side.type_id, shard, epoch, entity
                takes = [
                    Taking(foreign, foreign=THERE if not journal else "", taker=taker, park=kind == "part")
                ]
            if mine is not None:
                takes = [Taking(mine)]
            await side.journals[journal].append(rows, MessageChanges(sends, takes=takes))
            return None

        return (
            f"append {entity} {first}-{last} in {journal!r} at {epoch} {kind} {foreign or mine or key}",
            append,
        )

    def _late(self) -> tuple[str, Write]:
        """An append of a former home to the journal that it knew."""
        entity, shard, journal, _ = self._drawn()
        elsewhere, epoch = self.random.choice(
            [each for each in self._homes if each[2] == shard] or [(journal, 0, shard)]
        )[:2]
        seq = self._numbers.get(entity, 0) + 1

        async def late(side: Side) -> object:
            row = event_row(side.type_id, entity, seq, shard=shard, epoch=epoch)
            await side.journals[elsewhere].append([row])
            return None

        return f"late {entity} {seq} in {elsewhere!r} at {epoch}", late

    def _snapshot(self) -> tuple[str, Write]:
        entity, shard, journal, epoch = self._drawn()
        seq = max(1, self._numbers.get(entity, 0) - self.random.randrange(2))

        async def save(side: Side) -> object:
            made = Snapshot(side.type_id, entity, seq, shard, epoch, b"[%d]" % seq)
            await side.journals[journal].save_snapshots([made])
            return None

        return f"snapshot {entity} {seq}", save

    def _remember(self) -> tuple[str, Write]:
        entity, shard, journal, epoch = self._drawn()
        runs = self.random.random() < 0.7

        async def remember(side: Side) -> object:
            mark = Mark(type_id=side.type_id, shard=shard, entity=entity, epoch=epoch, runs=runs)
            await side.journals[journal].remember([mark])
            return None

        return f"remember {entity} {runs}", remember

    def _outside(self) -> tuple[str, Write]:
        """A message or a timer from outside lies in the cluster's own database."""
        self._staged += 1
        entity = self.random.choice(IDS)
        key, delay = self.random.choice(((None, 0.0), ("k", 9999.0)))

        async def stage(side: Side) -> object:
            row = self._message(side.type_id, entity, shard_of(entity, SHARDS), None, key=key, delay=delay)
            await side.journals[""].stage([row])
            return None

        return f"outside {entity} {key}", stage

    def _trim(self) -> tuple[str, Write]:
        entity, _, journal, _ = self._drawn()
        before = self.random.randint(1, 6)

        async def trim(side: Side) -> object:
            return await side.journals[journal].trim(side.type_id, entity, before, 1, 0.0, 2, keep_events=1)

        return f"trim {entity} {before}", trim

    def _erase(self) -> tuple[str, Write]:
        entity, shard, journal, epoch = self._drawn()

        async def erase(side: Side) -> object:
            found = await side.journals[journal].erase(
                side.type_id, shard, epoch, entity, at_most=3, before=Erasure(), by="x"
            )
            if found.whole:
                await side.erase(entity)
            return found

        return f"erase {entity}", erase

    def _lapse(self) -> tuple[str, Write]:
        async def lapse(side: Side) -> object:
            """Let a closing be over that its command has not renewed."""
            await side.store.renew_closings(side.type_id, list(range(SHARDS)), -1.0)
            return await side.store.open_lapsed(1)

        return "lapse", lapse

    def _look(self) -> tuple[str, Write]:
        async def look(side: Side) -> object:
            found = [
                (await each.due([(side.type_id, shard) for shard in range(SHARDS)], 1e6, 100)).messages
                for each in side.journals.values()
            ]
            return [sorted(each.id for each in page) for page in found], await side.store.closed_shards()

        return "look", look


class Comparison:
    """Carries out everything on both sides."""

    def __init__(self, seed: int, sides: tuple[Memory, Real]) -> None:
        self._seed = seed
        self._sides = sides
        self._done: list[str] = []
        self._now = 0.0
        self.seen: set[str] = set()
        self.history = History(seed, sides[0])

    async def both(self, what: str, act: Callable[[Any], Awaitable[object]]) -> object:
        """Return the answer, which has to be the same; raise the error, likewise."""
        self._done.append(what)
        answers = []
        for side in self._sides:
            try:
                answers.append(await outcome_of(act, side))  # type: ignore[arg-type] # a side of another kind
            except (CannotMove, NotDeleted) as error:
                answers.append((type(error).__name__, str(error)))
        self.say_same(answers[0], answers[1])
        return answers[1]

    def say_same(self, fake: object, true: object) -> None:
        named = isinstance(true, tuple) and isinstance(fake, tuple) and "CannotMove" in (fake[:1] + true[:1])
        if named:  # the texts are for people, and differ
            fake, true = fake[:1], true[:1]  # type: ignore[index] # tuples
        assert fake == true, f"seed {self._seed}: {self._done[-12:]}"

    def compare(self) -> None:
        fake, true = (each.dump() for each in self._sides)
        for place in PLACES:
            for name in true[place]:
                where = f"{name} in {place!r}, seed {self._seed}: {self._done[-12:]}"
                assert fake[place][name] == true[place][name], where

    async def write(self, drawn: tuple[str, Write]) -> None:
        what, write = drawn
        answer = await self.both(what, write)
        self.seen.add(what.split()[0])
        if isinstance(answer, tuple) and answer and isinstance(answer[0], str):
            self.seen.add(answer[0])

    # -- The command -----------------------------------------------------------------------------

    def choose(self) -> tuple[Wanted, bool] | None:
        random = self.history.random
        moves = self.history.moves()
        under_way = {shard: each for shard, each in moves.items() if each.step != "moved"}
        if under_way:
            source, target = next((each.source, each.target) for each in under_way.values())
            return Wanted(TYPE.name, source, target, sorted(under_way)), random.random() < 0.3
        free = [each for each in range(SHARDS) if each not in moves]
        if not free:
            return None
        source = self.history.lies_in(random.choice(free))
        lying = [each for each in free if self.history.lies_in(each) == source]
        shards = sorted(random.sample(lying, random.randint(1, len(lying))))
        return Wanted(TYPE.name, source, THERE if not source else "", shards), False

    async def command(self) -> None:
        """One call. It dies at some request, or comes to its end."""
        random, chosen = self.history.random, self.choose()
        if chosen is None:
            await self.clean_up()
            return
        wanted, takes_back = chosen
        self._done.append(f"{'takes back' if takes_back else 'moves'} {wanted}")
        for side in self._sides:
            await side.open(wanted)
        made = Move(wanted, LIMITS)
        requests = made.take_back() if takes_back else made.run(random.randint(1, 3))
        left = random.choice((10_000, random.randrange(60)))
        try:
            await self._carry_out(requests, left)
        except CannotMove as error:
            self.seen.add("CannotMove")
            self._done.append(f"has to end: {error}")
        else:
            self.seen.add("taken back" if takes_back else "came to its end")
        finally:
            for side in self._sides:
                side.close()
        self.compare()

    async def _carry_out(self, requests: course.Course, left: int) -> None:
        random = self.history.random
        request = next(requests)
        try:
            while True:
                left -= 1
                if not left:
                    self._done.append(f"dies before {request}")
                    return
                value: object = None
                if isinstance(request, course.Wait):
                    self._now += request.seconds
                    await self.write(
                        self.history.stop_all() if random.random() < 0.5 else self.history.write()
                    )
                elif not isinstance(request, Step):
                    self.seen.add(type(request).__name__)
                    try:
                        value = await self._ask(request)
                    except CannotMove as error:
                        request = requests.throw(error)
                        continue
                if random.random() < 0.25:
                    await self.write(self.history.write())
                self._now += 0.001
                request = requests.send(Answer(self._now, value))
        except StopIteration:
            return

    async def _ask(self, request: course.Request) -> object:
        """Raises CannotMove."""

        async def do(side: Side) -> object:
            found = await side.do(request)
            match request:
                case course.Copy():
                    return found is None  # how much is copied is told to people
                case _ if isinstance(request, READ):
                    return found
            return None

        value = await self.both(str(request), do)
        if self.history.random.random() < 0.15:
            self.compare()
        if isinstance(value, tuple) and value[:1] == ("CannotMove",):
            raise CannotMove(value[1])
        if isinstance(request, course.Copy):
            return None if value else 1
        return value

    async def clean_up(self) -> None:
        """End what a call has left undone, and delete the copies."""
        moves = self.history.moves()
        lying: dict[str, list[ShardId]] = {}
        for shard, each in sorted(moves.items()):
            lying.setdefault(each.source, []).append(shard)
        await self.both("settle", lambda side: side.settle(lying))
        self.compare()
        await self.both("delete", lambda side: side.delete())
        self.seen.add("deleted")
        self.compare()


@pytest.fixture(scope="session")
def further_database(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        yield params


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides copy in pieces of one size."""
    for name in ("ROWS_AT_FIRST", "ROWS_AT_LEAST"):
        monkeypatch.setattr(copied_rows, name, ROWS)
    monkeypatch.setattr(copied_rows, "next_rows", lambda *_: ROWS)
    for module in (copied_rows, moving, memory_moving):
        monkeypatch.setattr(module, "NOTES_AT_ONCE", NOTES)


def forget_moves(params: Mapping[str, Any]) -> None:
    """Drop what a command that was killed has made."""
    with psycopg.connect(**params, autocommit=True) as admin:
        for trigger, table in admin.execute(
            "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE 'sharding\\_moving\\_%'"
        ).fetchall():
            admin.execute(f"DROP TRIGGER {trigger} ON {table}".encode())
        admin.execute(
            "DROP TABLE IF EXISTS sharding_moving, sharding_moving_touched, sharding_moving_message"
        )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("pieces")
async def test_both_move_the_same(
    seed: int, further_database: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    empty_tables(further_database)
    async with postgres_world(request) as world:
        assert isinstance(world, PostgresWorld)
        memory, real = Memory(), Real(world, further_database)
        try:
            for place, side in ((memory.worlds[""], memory), (world, real)):
                side.type_id = await with_type(side.store, TYPE)
                assert await elected(place) == 1
                await side.journals[THERE].own(await side.store.cluster_id())
            compared = Comparison(seed, (memory, real))
            await compared.write(compared.history.home_all())
            turns = 0
            while turns < TURNS:
                turns += 1
                if compared.history.random.random() < 0.12:
                    await compared.command()
                    if compared.history.random.random() < 0.3:
                        await compared.clean_up()
                else:
                    await compared.write(compared.history.write())
            compared.compare()
            assert "append" in compared.seen
        finally:
            await real.end()
            for params in (world.params, further_database):
                forget_moves(params)
