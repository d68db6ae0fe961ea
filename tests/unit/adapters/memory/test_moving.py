"""A move of shards between two virtual servers: all rows arrive, wherever the command is killed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharding_app.adapters.memory.cluster_writes import shard_key
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.message_rows import Marked, Stored
from sharding_app.adapters.memory.moving import LeftCopies, MemoryMover
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.steps import Pause
from sharding_app.ports.deliveries import MessageRow
from sharding_app.ports.journal import EventRow, Snapshot
from sharding_app.protocol import moving
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.moving import Answer, CannotMove, Limits, Move, Step, Wanted
from sharding_app.protocol.records import ShardRow
from tests.support.given import CART

pytestmark = pytest.mark.asyncio

SHARDS, THERE = CART.number_of_shards, "journal_b"
NAME = CART.name
IDS = [f"e{number}" for number in range(12)]
LIMITS = Limits(homes=0.3, projections=0.3, look=0.01)


class Killed(BaseException):
    """The process of the command has ended here."""


class Both:
    """Two servers, and the shards of one type in them."""

    def __init__(self, source: str = "") -> None:
        self.servers = {"": MemoryServer(), THERE: MemoryServer()}
        cluster = self.servers[""].cluster
        cluster.register_types([CART])
        for shard in range(SHARDS):
            cluster.shards[NAME, shard] = ShardRow(NAME, shard, 7, None, "stopped")
            cluster.journals[NAME, shard] = source
            cluster.epochs[1, shard] = 7
        if source:
            there = self.servers[source].cluster
            there.type_ids[NAME] = 1
            there.numbers_here[1] = CART.numbering
            there.shards.update(cluster.shards)
            there.epochs.update(cluster.epochs)
        self.fill(source)

    def fill(self, journal: str) -> None:
        server = self.servers[journal]
        for entity in IDS:
            shard = shard_of(entity, SHARDS)
            rows = [
                EventRow(1, entity, seq, shard, 7, "Added", 1, b"{}", None, None, None) for seq in range(1, 6)
            ]
            server.journal.store(rows, 1.0)
            server.journal.snapshots[1, entity] = {3: Snapshot(1, entity, 3, shard, 7, b"{}")}
            server.journal.remembered.setdefault((1, shard), {})[entity] = None
            row = MessageRow(f"m-{entity}", 1, shard, entity, 7, 5, 0, NAME, "e1", "go", b"\x01")
            server.messages.put(Stored(row, server.date()))

    def stored(self, journal: str, shards: set[int] | None = None) -> dict[str, Any]:
        server, wanted = self.servers[journal], set(range(SHARDS)) if shards is None else shards
        return {
            "event": {
                (entity, seq, each.row.payload)
                for (_, entity), rows in server.journal.events.items()
                for seq, each in rows.items()
                if each.row.shard in wanted
            },
            "snapshot": {
                (entity, seq)
                for (_, entity), rows in server.journal.snapshots.items()
                for seq, each in rows.items()
                if each.shard in wanted
            },
            "remembered": {
                (shard, entity)
                for (_, shard), entities in server.journal.remembered.items()
                for entity in entities
                if shard in wanted
            },
            "message": {each.row.id for each in server.messages.rows.values() if each.row.shard in wanted},
        }

    def places(self) -> dict[int, str]:
        return {shard: journal for (_, shard), journal in self.servers[""].cluster.journals.items()}

    async def move(self, target: str, shards: list[int] | None = None, kill_at: int = -1) -> int:
        """Return the number of its requests. `kill_at`: it dies before this one."""
        places = self.places()
        wanted = [each for each in places if places[each] != target and (shards is None or each in shards)]
        if not wanted:
            return 0
        mover = MemoryMover(self.servers, Wanted(NAME, places[wanted[0]], target, wanted), "mover")
        try:
            await mover.open()
            return await _carried_out(mover, Move(mover.wanted, LIMITS).run(2), kill_at)
        finally:
            for server in self.servers.values():
                server.client_died("mover")

    async def take_back(self, target: str) -> None:
        mover = MemoryMover(self.servers, Wanted(NAME, "", target, sorted(self.places())), "mover")
        await mover.open()
        await _carried_out(mover, Move(mover.wanted, LIMITS).take_back())
        mover.close()


async def _carried_out(mover: MemoryMover, course: moving.Course, kill_at: int = -1) -> int:
    number, request = 0, next(course)
    while True:
        value = None
        if not isinstance(request, Step):
            if number == kill_at:
                raise Killed
            number += 1
            try:
                value = await mover.do(request)
            except CannotMove as error:
                request = course.throw(error)
                continue
        try:
            request = course.send(Answer(0.0, value))
        except StopIteration:
            return number


@pytest.mark.parametrize(("source", "target"), [("", THERE), (THERE, "")])
async def test_it_goes_on_wherever_it_was_killed(source: str, target: str) -> None:
    both = Both(source)
    before = both.stored(source)
    kills = 0
    for number in range(1000):
        try:
            await both.move(target, kill_at=number)
        except Killed:
            kills += 1
        else:
            break
        for shard, journal in both.places().items():
            if journal:
                both.servers[THERE].messages.unstash(1, [shard], both.servers[THERE].cluster.epochs)
            assert both.stored(journal, {shard}) == _of_shard(before, shard), (number, shard)
    assert both.stored(target) == before
    assert kills > 30
    assert set(both.places().values()) == {target}


def _of_shard(stored: dict[str, Any], shard: int) -> dict[str, Any]:
    mine = {each for each in IDS if shard_of(each, SHARDS) == shard}
    return {
        "event": {each for each in stored["event"] if each[0] in mine},
        "snapshot": {each for each in stored["snapshot"] if each[0] in mine},
        "remembered": {each for each in stored["remembered"] if each[1] in mine},
        "message": {each for each in stored["message"] if each.removeprefix("m-") in mine},
    }


async def a_copy_that_differs(both: Both) -> None:
    """The command is killed behind its copy, and the target loses a row of that."""
    mover = MemoryMover(both.servers, Wanted(NAME, "", THERE, sorted(both.places())), "mover")
    await mover.open()
    course = Move(mover.wanted, LIMITS).run(2)
    request = next(course)
    while not isinstance(request, moving.Compare):
        value = None if isinstance(request, Step) else await mover.do(request)
        request = course.send(Answer(0.0, value))
    for server in both.servers.values():
        server.client_died("mover")
    del both.servers[THERE].journal.events[1, IDS[0]]


async def test_a_copy_that_differs_is_not_switched() -> None:
    both = Both()
    await a_copy_that_differs(both)
    with pytest.raises(CannotMove, match="differs"):
        await both.move(THERE)
    assert set(both.places().values()) == {""}


async def test_a_copy_begins_again_behind_a_failover() -> None:
    both = Both()
    before = both.stored("")
    await a_copy_that_differs(both)
    both.servers[THERE].timeline += 1
    await both.move(THERE)
    assert both.stored(THERE) == before


async def test_two_moves_of_a_type_are_not_at_work_together() -> None:
    both = Both()
    one, other = (
        MemoryMover(both.servers, Wanted(NAME, "", THERE, [0]), name) for name in ("mover-1", "mover-2")
    )
    await one.open()
    with pytest.raises(CannotMove, match="Another move"):
        await other.open()
    other.close()
    one.close()
    await other.open()


async def test_an_append_that_is_under_way_at_the_fence_comes_along() -> None:
    both = Both()
    server, shard = both.servers[""], shard_of(IDS[0], SHARDS)
    server.pace = lambda client, kind, step: 0.05 if (kind, step) == ("append", Pause.COMMIT) else 0.0
    mover = MemoryMover(both.servers, Wanted(NAME, "", THERE, [shard]), "mover")
    await mover.open()
    append = None
    course = Move(mover.wanted, LIMITS).run(1)
    request = next(course)
    while True:
        if isinstance(request, moving.Homes):
            row = EventRow(1, IDS[0], 6, shard, 7, "Added", 1, b"{}", None, None, None)
            append = asyncio.create_task(MemoryJournal(server, "late").append([row]))
            while not server.locks.is_held(shard_key(1, shard)):  # noqa: ASYNC110
                await asyncio.sleep(0)
        value = None if isinstance(request, Step) else await mover.do(request)
        try:
            request = course.send(Answer(0.0, value))
        except StopIteration:
            break
    assert append is not None
    await append
    assert (IDS[0], 6, b"{}") in both.stored(THERE)["event"]


async def test_a_shard_with_a_home_does_not_move() -> None:
    both = Both()
    both.servers[""].cluster.shards[NAME, 1] = ShardRow(NAME, 1, 7, "n-1", "home")
    with pytest.raises(CannotMove, match="Shards 1 still have a home"):
        await _with_time(both)
    assert set(both.places().values()) == {""}
    assert not both.servers[""].cluster.closed()


async def _with_time(both: Both) -> None:
    mover = MemoryMover(both.servers, Wanted(NAME, "", THERE, [1]), "mover")
    await mover.open()
    course, now = Move(mover.wanted, LIMITS).run(1), 0.0
    request = next(course)
    while True:
        try:
            value = None if isinstance(request, Step) else await mover.do(request)
        except CannotMove as error:
            request = course.throw(error)
            continue
        now += 0.1
        try:
            request = course.send(Answer(now, value))
        except StopIteration:
            return


async def test_a_move_is_taken_back() -> None:
    both = Both()
    before = both.stored("")
    with pytest.raises(Killed):
        await both.move(THERE, kill_at=20)
    assert both.stored(THERE)["event"]
    await both.take_back(THERE)
    assert both.stored("") == before
    assert not any(both.stored(THERE).values())
    assert not both.servers[""].cluster.moves


async def test_a_message_that_a_moved_target_had_marked_does_not_come_again() -> None:
    """Its owner moves to the journal of its target, which has marked it."""
    both = Both()
    target = shard_of(IDS[0], SHARDS)
    await both.move(THERE, [target])
    other = next(each for each in IDS if shard_of(each, SHARDS) != target)
    marks = both.servers[THERE].messages.marks
    marks[f"m-{other}"] = Marked((1, target, 8, IDS[0]), "", False, both.servers[""].date())
    await both.move(THERE, [shard_of(other, SHARDS)])
    assert f"m-{other}" not in both.servers[THERE].messages.rows


async def test_marks_come_along_with_the_shard_that_has_taken_the_messages() -> None:
    both = Both()
    target = shard_of(IDS[0], SHARDS)
    mark = Marked((1, target, 7, IDS[0]), "journal_c", False, both.servers[""].date())
    both.servers[""].messages.marks["m"] = mark
    await both.move(THERE, [target])
    assert both.servers[THERE].messages.marks["m"] == mark._replace(taker=(1, target, 8, IDS[0]))
    assert not both.servers[""].messages.marks


async def test_a_home_puts_back_what_a_move_has_taken_out() -> None:
    both = Both(THERE)
    before, shard = both.stored(THERE), shard_of(IDS[0], SHARDS)
    both.servers[THERE].messages.take_out(1, [shard])
    assert f"m-{IDS[0]}" not in both.stored(THERE)["message"]
    journal = MemoryJournal(both.servers[THERE], "home")
    await journal.connect()
    taken = await journal.take(NAME, 1, CART.numbering, {shard: 8}, "home")
    assert taken.shards == {shard}
    assert both.stored(THERE) == before
    await journal.close()


async def test_shards_that_were_opened_meanwhile_are_not_switched() -> None:
    both = Both()
    mover = MemoryMover(both.servers, Wanted(NAME, "", THERE, sorted(both.places())), "mover")
    await mover.open()
    with pytest.raises(CannotMove, match="were opened again"):
        await _opened_at_the_switch(both, mover)
    assert set(both.places().values()) == {""}
    mover.close()


async def _opened_at_the_switch(both: Both, mover: MemoryMover) -> None:
    course = Move(mover.wanted, LIMITS).run(SHARDS)
    request = next(course)
    while True:
        if isinstance(request, moving.Switch):
            both.servers[""].cluster.open(NAME, [1])
        try:
            value = None if isinstance(request, Step) else await mover.do(request)
        except CannotMove as error:
            request = course.throw(error)
            continue
        try:
            request = course.send(Answer(0.0, value))
        except StopIteration:
            return


async def test_a_message_that_is_taken_out_counts_as_there_for_its_mark() -> None:
    both = Both(THERE)
    message = f"m-{IDS[0]}"
    journal = MemoryJournal(both.servers[THERE], "home of the mark")
    both.servers[THERE].messages.take_out(1, [shard_of(IDS[0], SHARDS)])
    assert await journal.standing([message]) == {}
    assert (await journal.standing([message], secured=True)).keys() == {message}
    await journal.close()


async def test_what_is_left_behind_is_erased_and_deleted() -> None:
    both = Both()
    await both.move(THERE)
    assert len(both.stored("")["event"]) == 60
    copies = LeftCopies(both.servers, NAME, "operator")
    await copies.erase(IDS[0])
    assert len(both.stored("")["event"]) == 55
    await LeftCopies(both.servers, NAME, "operator").delete()
    assert not any(both.stored("").values())
    assert len(both.stored(THERE)["event"]) == 60
    assert not both.servers[""].cluster.moves


async def test_a_former_journal_that_has_lost_the_row_of_a_shard_holds_nothing_up() -> None:
    both = Both(THERE)
    await both.move("")
    there = both.servers[THERE].cluster
    shard = shard_of(IDS[0], SHARDS)
    del there.shards[NAME, shard], there.left[1, shard]
    await LeftCopies(both.servers, NAME, "operator").delete()
    assert not any(both.stored(THERE).values())
    assert not both.servers[""].cluster.moves
