"""Clients at once in a further journal: takes, also such that follow a resize, beside appends with
marks, removals of marks, first messages, and remembered entities.

As in `test_overlapping`: each round is played on PostgreSQL, and then on the virtual server. Who
waits, the answers, and all rows have to be the same. Shards leave the journal, or come back to it,
between the rounds.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from sharding_app.adapters.memory import MemoryServer
from sharding_app.ports.deliveries import MessageChanges, MessagesGone, Taking
from sharding_app.ports.journal import EventRow, Mark, ShardsFenced
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import ShardRow
from tests.contract.gates import MemoryGates, Place, PostgresGates, at_rest
from tests.contract.test_differential import Operation
from tests.contract.test_overlapping import (
    FIRST,
    KEEPER,
    LONG_AGO,
    SECOND,
    THIRD,
    Client,
    Script,
    World,
    memory_client,
    play,
    postgres_client,
)
from tests.support.given import event_row, message
from tests.support.scratch import empty_tables

pytestmark = pytest.mark.asyncio

SEEDS = range(4)
ROUNDS = 40
TYPE, NUMBER = "tests.Taken", 7
EIGHT, FOUR = Numbering(8), Numbering(4, revision=1)
NUMBERS = (2, 4, 8)
HOMES = ("n-one", "n-two")
IDS = [f"entity-{number}" for number in range(6)]
PAIRS = (
    ("_take", "_append"), ("_append", "_take"), ("_take", "_take"), ("_take", "_take"), ("_follow", "_take"),
    ("_take", "_follow"), ("_follow", "_follow"), ("_append", "_follow"), ("_follow", "_append"),
    ("_append", "_append"), ("_append", "_unmark"), ("_unmark", "_append"), ("_take", "_unmark"), ("_unmark", "_take"),
    ("_unmark", "_unmark"), ("_stage", "_take"), ("_take", "_stage"), ("_stage", "_follow"), ("_follow", "_stage"),
    ("_stage", "_stage"), ("_remember", "_take"), ("_follow", "_remember"), ("_unmark", "_follow"), ("_follow", "_unmark"),
)  # fmt: skip
"Operations that meet at some row."


class Rows:
    """All rows of a further journal: of one database and of the virtual server."""

    def __init__(self, params: dict[str, Any], server: MemoryServer) -> None:
        self._params = params
        self._server = server

    async def real(self) -> dict[str, list[tuple[Any, ...]]]:
        queries = {
            "types": "SELECT id, name, number_of_shards, shards_wanted, groups_resized, shards_revision, uses_messages"
            " FROM sharding_type",
            "shards": "SELECT shard, epoch, home, step, journal FROM sharding_shard",
            "remembered": "SELECT shard, entity FROM sharding_remembered",
            "messages": "SELECT id, shard, entity, epoch FROM sharding_message",
            "marks": "SELECT id, shard, epoch, entity, journal, partial FROM sharding_taken",
            "events": "SELECT entity, seq, shard, epoch FROM sharding_event",
        }
        async with await psycopg.AsyncConnection.connect(**self._params) as connection:
            return {
                name: sorted(await (await connection.execute(query.encode())).fetchall())
                for name, query in queries.items()
            }

    def virtual(self) -> dict[str, list[tuple[Any, ...]]]:
        cluster, messages, journal = self._server.cluster, self._server.messages, self._server.journal
        numbers = cluster.numbers_here.items()
        return {
            "types": [
                (number, TYPE, each.shards, each.wanted, each.done, each.revision, number in messages.types)
                for number, each in numbers
            ],
            "shards": sorted(
                (row.shard, row.epoch, row.home, row.step, cluster.left.get((NUMBER, row.shard), ""))
                for row in cluster.shards.values()
            ),
            "remembered": sorted(
                (shard, entity) for (_, shard), found in journal.remembered.items() for entity in found
            ),
            "messages": sorted(
                (each.row.id, each.row.shard, each.row.entity, each.row.epoch)
                for each in messages.rows.values()
            ),
            "marks": sorted(
                (name, each.taker[1], each.taker[2], each.taker[3], each.journal, each.partial)
                for name, each in messages.marks.items()
            ),
            "events": sorted(
                (entity, seq, one.row.shard, one.row.epoch)
                for (_, entity), found in journal.events.items()
                for seq, one in found.items()
            ),
        }

    async def leave(self, shard: ShardId, journal: str) -> None:
        """Say of a shard in which journal it lies now; "": in this one."""
        async with await psycopg.AsyncConnection.connect(**self._params, autocommit=True) as mover:
            await mover.execute(
                "UPDATE sharding_shard SET journal = %s, home = NULL, step = 'stopped' WHERE shard = %s",
                [journal, shard],
            )
            if journal:
                await mover.execute("DELETE FROM sharding_remembered WHERE shard = %s", [shard])
                await mover.execute("DELETE FROM sharding_message WHERE shard = %s", [shard])
                await mover.execute("DELETE FROM sharding_taken WHERE shard = %s", [shard])
        cluster = self._server.cluster
        row = cluster.shards[TYPE, shard]
        cluster.shards[TYPE, shard] = ShardRow(TYPE, shard, row.epoch, None, "stopped")
        cluster.left.pop((NUMBER, shard), None)
        if journal:
            cluster.left[NUMBER, shard] = journal
            self._server.journal.remembered.pop((NUMBER, shard), None)
            messages = self._server.messages
            for each in messages.in_shards(NUMBER, {shard}):
                messages.pop(each)
            messages.marks = {name: one for name, one in messages.marks.items() if one.taker[1] != shard}


class History:
    """Draws operations on what the last round has left: mostly sensible ones."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.numbers = [Numbering(4)]
        "The numbers that the cluster has had, the last ones last."
        self.epochs: dict[ShardId, Epoch] = {}
        self.lengths: dict[str, int] = {}
        self.marks: dict[str, bool] = {}
        "Whether they are partial."
        self.remembered: list[tuple[Any, ...]] = []
        "Shards and entities."
        self.drawn = 0

    def look(self, rows: dict[str, list[tuple[Any, ...]]]) -> None:
        self.epochs = {shard: epoch for shard, epoch, *_ in rows["shards"]}
        self.lengths = {}
        for entity, seq, *_ in rows["events"]:
            self.lengths[entity] = max(seq, self.lengths.get(entity, 0))
        self.remembered = rows["remembered"]
        self.marks = {name: partial for name, *_, partial in rows["marks"]}
        here = {row[5] for row in rows["types"]}
        self.here = next((each for each in self.numbers if each.revision in here), self.numbers[0])

    def moved(self) -> tuple[ShardId, str] | None:
        if not self.epochs or self.random.random() > 0.25:
            return None
        return self.random.choice(sorted(self.epochs)), self.random.choice(("journal_b", "journal_b", ""))

    def script(self) -> Script:
        random = self.random
        makers = list(random.choice(PAIRS)) if random.random() < 0.8 else []
        others = ("_take", "_follow", "_append", "_append", "_unmark", "_stage", "_remember")
        while len(makers) < random.choice((2, 2, 3)):
            makers.append(random.choice(others))
        drawn = [getattr(self, each)() for each in makers]
        # A take has a place in its middle on PostgreSQL alone: it writes several tables.
        places: tuple[Place, ...] = ("commit", "work") if makers[0] == "_append" else ("commit",)
        return Script(
            names=[name for name, _ in drawn],
            operations=[operation for _, operation in drawn],
            place=random.choice(places),
            committed=random.random() < 0.75,
            second_ends=random.random() < 0.15,
        )

    # -- Takes -------------------------------------------------------------------------------------

    def _take(self) -> tuple[str, Operation]:
        """By the numbers that the journal follows, or by former ones."""
        known = self.numbers[: self.numbers.index(self.here) + 1]
        return self._taking(self.random.choice(known[-2:]) if self.random.random() < 0.2 else self.here)

    def _follow(self) -> tuple[str, Operation]:
        """By numbers that are new to the journal."""
        if self.numbers[-1] == self.here or self.random.random() < 0.2:
            self.numbers.append(self._next(self.numbers[-1]))
        return self._taking(self.numbers[-1])

    def _next(self, before: Numbering) -> Numbering:
        if before.resizing:
            return before.after(self.random.randint(before.done + 1, before.groups))
        wanted = self.random.choice([each for each in NUMBERS if each != before.shards])
        begun = Numbering(before.shards, wanted, 0, before.revision + 1)
        return self._next(begun) if self.random.random() < 0.7 else begun

    def _taking(self, numbers: Numbering) -> tuple[str, Operation]:
        random = self.random
        there = [each for each in range(numbers.most) if numbers.has(each)]
        wanted = random.sample(there, min(len(there), random.randint(1, 3)))
        shards = {each: max(1, self.epochs.get(each, 0) + random.choice((1, 1, 2, 0, -1))) for each in wanted}
        return self.taking(numbers, shards, random.choice(HOMES))

    def taking(
        self, numbers: Numbering, shards: dict[ShardId, Epoch], home: Incarnation
    ) -> tuple[str, Operation]:
        async def take(side: Any) -> object:
            found = await side.journal.take(TYPE, NUMBER, numbers, shards, home)
            return sorted(found.shards), found.uses_messages, sorted(found.left.items())

        return f"take {numbers} {shards} {home}", take

    # -- Writes ------------------------------------------------------------------------------------

    def _claim(self, entity: str) -> tuple[ShardId, Epoch]:
        shard = self.here.shard_of(entity)
        return shard, max(1, self.epochs.get(shard, 1) + self.random.choice((0, 0, 0, 0, 0, -1)))

    def _takings(self, entity: str, shard: ShardId, epoch: Epoch) -> list[Taking]:
        random = self.random
        found: list[Taking] = []
        for _ in range(random.randint(0, 3)):
            self.drawn += 1
            known = random.choice(sorted(self.marks)) if self.marks and random.random() < 0.6 else None
            name = known or random.choice((f"m{self.drawn}", f"m{self.drawn // 4}"))
            if name not in [each.id for each in found]:
                resumed = self.marks.get(name, False) if random.random() < 0.8 else random.random() < 0.5
                taker = NUMBER, shard, epoch, entity
                park = random.random() < 0.5
                found.append(Taking(name, park=park, resumed=resumed, foreign="journal_b", taker=taker))
        return found

    def _append(self) -> tuple[str, Operation]:
        rows: list[EventRow] = []
        takes: list[Taking] = []
        for entity in sorted(self.random.sample(IDS, self.random.randint(1, 2))):
            shard, epoch = self._claim(entity)
            seq = self.lengths.get(entity, 0) + self.random.choice((1, 1, 1, 1, 0))
            rows.append(event_row(NUMBER, entity, max(1, seq), shard=shard, epoch=epoch))
            known = {each.id for each in takes}
            takes += [each for each in self._takings(entity, shard, epoch) if each.id not in known]
        where = [(row.entity, row.seq, row.shard, row.epoch) for row in rows]
        marked = [(each.id, each.park, each.resumed, each.taker) for each in takes]

        async def append(side: Any) -> object:
            try:
                return await side.journal.append(rows, MessageChanges(takes=takes)) is not None
            except MessagesGone as error:
                return "gone", sorted(error.gone), sorted(error.marked.items())

        return f"append {where} {marked}", append

    def _unmark(self) -> tuple[str, Operation]:
        known = sorted({*self.marks, f"m{self.drawn + 1}", f"m{self.drawn + 2}"})
        names = self.random.sample(known, min(len(known), self.random.randint(1, 3)))
        shard, epoch = self._claim(self.random.choice(IDS))

        async def unmark(side: Any) -> None:
            await side.journal.unmark(names, (NUMBER, shard, epoch))

        return f"unmark {names} {shard} {epoch}", unmark

    def _stage(self) -> tuple[str, Operation]:
        self.drawn += 1
        name, entity = f"sent{self.drawn}", self.random.choice(IDS)
        shard, epoch = self._claim(entity)

        async def stage(side: Any) -> None:
            await side.journal.stage([message(NUMBER, name, entity, shard=shard, epoch=epoch)])

        return f"stage {name} {entity} {shard} {epoch}", stage

    def _remember(self) -> tuple[str, Operation]:
        """Marks of one kind: see `test_overlapping`. None that runs is there already: it is held
        before its shard, a take holds it behind that, and PostgreSQL ends one of the two.
        """
        runs = self.random.random() < 0.8
        marks = []
        for entity in self.random.sample(IDS, 2):
            shard, epoch = self._claim(entity)
            if not runs or (shard, entity) not in self.remembered:
                marks.append(Mark(NUMBER, shard, epoch, entity, runs))

        async def remember(side: Any) -> None:
            await side.journal.remember(marks)

        return f"remember {marks}", remember


class JournalWorld(World):
    """Clients of one further journal."""

    async def begin(self) -> None:
        """Do nothing: the first take makes the rows."""


@pytest.mark.parametrize("seed", SEEDS)
async def test_clients_of_a_further_journal_get_the_same_answers(
    seed: int, gated_database: dict[str, Any]
) -> None:
    empty_tables(gated_database)
    seen: set[str] = set()
    async with AsyncExitStack() as stack:
        gates = await stack.enter_async_context(PostgresGates(gated_database))
        virtual_gates = MemoryGates()
        make_real: Callable[[str], Client] = lambda name: postgres_client(gated_database, "cluster", name)  # noqa: E731
        real = JournalWorld(gates, make_real)
        virtual = JournalWorld(virtual_gates, lambda name: memory_client(virtual_gates.server, name))
        for world in (real, virtual):
            for client in world.clients.values():
                stack.push_async_callback(client.close)
        rows, history = Rows(gated_database, virtual_gates.server), History(seed)
        for number in range(ROUNDS):
            history.look(await rows.real())
            if (moved := history.moved()) is not None:
                await rows.leave(*moved)
            script = history.script()
            where = f"seed {seed}, round {number}: {script}"
            true = await play(real, script)
            fake = await play(virtual, script, true)
            assert fake == true, where
            assert rows.virtual() == await rows.real(), where
            seen.update(true.begun)
    assert seen == {"answered", "held", "waits"}


@pytest_asyncio.fixture
async def worlds(gated_database: dict[str, Any]) -> AsyncIterator[tuple[World, World]]:
    """Give the real one and the virtual one. The home of shard 0 has taken it, of eight."""
    empty_tables(gated_database)
    async with AsyncExitStack() as stack:
        gates = await stack.enter_async_context(PostgresGates(gated_database))
        virtual = MemoryGates()
        worlds = (
            JournalWorld(gates, lambda name: postgres_client(gated_database, "cluster", name)),
            JournalWorld(virtual, lambda name: memory_client(virtual.server, name)),
        )
        for world in worlds:
            for client in world.clients.values():
                stack.push_async_callback(client.close)
            await world.clients[KEEPER].journal.take(TYPE, NUMBER, EIGHT, {0: 5, 5: 5}, "n-one")
        yield worlds


async def append(side: Any) -> None:
    await side.journal.append([event_row(NUMBER, "other", 1, shard=0, epoch=5)])


async def test_a_take_by_former_numbers_is_not_done_beside_one_that_follows_a_resize(
    worlds: tuple[World, World],
) -> None:
    """The home of a former number would write entities whose shard has another home now. The shard
    has no row here yet, so there is none that fences it.
    """
    follow = History(0).taking(FOUR, {1: 9}, "n-two")[1]
    late = History(0).taking(EIGHT, {6: 5}, "n-one")[1]
    operations = [append, follow, late]
    script = Script(["append", "follow", "late"], operations, "commit", committed=True, second_ends=False)
    for world in worlds:
        done = await play(world, script)
        assert done.begun == ["held", "waits", "waits"], world.gates
        assert done.answers == [None, ([1], False, []), ([], False, [])]
        with pytest.raises(ShardsFenced):
            await world.clients[KEEPER].journal.append([event_row(NUMBER, "x", 1, shard=6, epoch=5)])


async def test_a_message_that_a_take_has_waited_for_gets_its_new_shard(worlds: tuple[World, World]) -> None:
    """No home would deliver it in a shard that there is no more."""

    async def stage(side: Any) -> None:
        await side.journal.stage([message(NUMBER, "m", "entity", shard=5, epoch=5, due=LONG_AGO)])

    follow = History(0).taking(FOUR, {1: 9}, "n-two")[1]
    script = Script(["stage", "follow"], [stage, follow], "commit", committed=True, second_ends=False)
    for world in worlds:
        journal = world.clients[KEEPER].journal
        # The first one of the type makes a take wait before it looks for messages.
        await journal.stage([message(NUMBER, "first", key="later", delay=9e4, shard=0, epoch=5)])
        assert (await play(world, script)).begun == ["held", "waits"], world.gates
        page = await journal.due([(NUMBER, shard) for shard in range(8)], 0.0, 10)
        assert [(each.id, each.shard) for each in page.messages] == [("m", FOUR.shard_of("entity"))]


async def test_a_take_knows_of_the_first_message_during_its_wait(worlds: tuple[World, World]) -> None:
    """Its home would not look for messages of the shard."""
    take = History(0).taking(EIGHT, {0: 6}, "n-two")[1]
    for world in worlds:
        await world.gates.shut(FIRST, "commit")
        first = asyncio.ensure_future(append(world.clients[FIRST]))
        assert await at_rest(world.gates, FIRST, first) == "held"
        second = asyncio.ensure_future(take(world.clients[SECOND]))  # type: ignore[arg-type]
        assert await at_rest(world.gates, SECOND, second) == "waits"
        await world.clients[THIRD].journal.stage([message(NUMBER, "m", shard=5, epoch=5)])
        await world.gates.open(FIRST, "commit")
        await first
        assert await second == ([0], True, [])
