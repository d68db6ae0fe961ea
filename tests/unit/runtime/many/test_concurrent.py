"""A concurrent query answers from the committed state while its entity is busy with a command."""

import asyncio
import threading
from functools import partial
from typing import Any, ClassVar

import pytest

from sharding_app import (
    DeclarationError,
    DurableState,
    Entity,
    EntityFailed,
    EventSourced,
    Rejected,
    ShardingSettings,
    applies,
    command,
    event,
    query,
)
from sharding_app.errors import BufferFull, NotSerializable
from sharding_app.runtime.execution.beside import Watched
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.commits import Resident
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


@event
class Put:
    number: int


class Shelf(EventSourced, name="concurrent.Shelf"):
    gates: ClassVar[dict[str, asyncio.Event]] = {}
    born: ClassVar[list[str]] = []
    numbers: list[int]

    def __init__(self) -> None:
        self.numbers = []
        self.born.append(self.entity_id)

    @classmethod
    def gate(cls, name: str) -> asyncio.Event:
        return cls.gates.setdefault(name, asyncio.Event())

    @command
    def put(self, number: int) -> int:
        self.persist(Put(number))
        return len(self.numbers)

    @command
    async def wait_and_put(self, number: int) -> int:
        await self.gate("wait").wait()
        self.persist(Put(number))
        return len(self.numbers)

    @command
    async def put_and_wait(self, number: int, *, fails: bool = False) -> int:
        self.persist(Put(number))
        await self.gate("wait").wait()
        if fails:
            raise RuntimeError("after the wait")
        return len(self.numbers)

    @command
    async def put_in_steps(self, first: int, second: int) -> int:
        await self.persist(Put(first))
        self.persist(Put(second))
        await self.gate("wait").wait()
        return len(self.numbers)

    @command(thread=True)
    def block(self, number: int) -> int:
        self.persist(Put(number))
        self.entered.set()
        assert self.leave.wait(10)
        return len(self.numbers)

    entered: ClassVar[threading.Event] = threading.Event()
    leave: ClassVar[threading.Event] = threading.Event()

    @query
    async def look_slowly(self) -> list[int]:
        await self.gate("wait").wait()
        return self.numbers

    @query(concurrent=True)
    def look(self) -> list[int]:
        return self.numbers

    @query(concurrent=True)
    def misuse(self, how: str) -> None:
        if how == "persist":
            self.persist(Put(0))
        if how == "reject":
            raise Rejected("no")
        raise ZeroDivisionError(how)

    @query
    def look_in_turn(self) -> list[int]:
        return self.numbers

    @applies(Put)
    def on_put(self, happened: Put) -> None:
        self.numbers.append(happened.number)


class HotShelf(Shelf, name="concurrent.HotShelf"):
    settings = ShardingSettings(pipelined=True)


class Board(DurableState, name="concurrent.Board"):
    text: str = ""

    @command
    async def write(self, text: str, *, fails: bool = False) -> None:
        self.text = text
        await Shelf.gate("wait").wait()
        if fails:
            raise Rejected("no")

    @query(concurrent=True)
    def read(self) -> str:
        return self.text


class Lamp(Entity, name="concurrent.Lamp"):
    lit: bool = False

    @command
    async def light(self) -> None:
        self.lit = True
        await Shelf.gate("wait").wait()

    @query(concurrent=True)
    def is_lit(self) -> bool:
        return self.lit


@pytest.fixture(autouse=True)
def closed_gates() -> None:
    Shelf.gates.clear()
    Shelf.born.clear()
    Shelf.entered.clear()
    Shelf.leave.clear()


def host(cluster: MemoryCluster, of: type[Any] = Shelf) -> TypeHost:
    (node,) = cluster.nodes.values()
    return node.hosts[of._sharding_type.name]


def slots(cluster: MemoryCluster) -> list[Resident]:
    return [slot for shard in host(cluster).shards.values() for slot in shard.slots.values()]


async def begun(cluster: MemoryCluster, call: Any, entity: Any = Shelf) -> "asyncio.Task[Any]":
    """Have a command begin and wait."""
    task: asyncio.Task[Any] = asyncio.ensure_future(call)
    waiting = host(cluster, entity).execution.waiting
    await until(lambda: any(each.phase.name == "RUNNING" for each in waiting.values()))
    return task


async def test_it_does_not_wait_for_a_command_that_waits(cluster: MemoryCluster) -> None:
    shelf = Shelf.ref("a")
    await shelf.put(1)
    waits = await begun(cluster, shelf.wait_and_put(2))
    assert await shelf.look() == [1]
    late = asyncio.ensure_future(shelf.look_in_turn())
    assert await shelf.look() == [1]
    assert not late.done(), "an ordinary one waits"
    Shelf.gate("wait").set()
    assert await waits == 2
    assert await late == [1, 2]
    assert await shelf.look() == [1, 2]


async def test_it_sees_nothing_that_is_only_staged(cluster: MemoryCluster) -> None:
    shelf = Shelf.ref("a")
    await shelf.put(1)
    waits = await begun(cluster, shelf.put_and_wait(2, fails=True))
    assert [await shelf.look() for _ in range(3)] == [[1]] * 3
    assert len(Shelf.born) == 2, "one copy serves all of them"
    Shelf.gate("wait").set()
    with pytest.raises(EntityFailed):
        await waits
    assert await shelf.look() == [1]


async def test_it_sees_an_awaited_step_and_nothing_behind_it(cluster: MemoryCluster) -> None:
    shelf = Shelf.ref("a")
    waits = await begun(cluster, shelf.put_in_steps(1, 2))
    await until(lambda: len(cluster.events(Shelf, "a")) == 1)
    await until(lambda: next(iter(host(cluster).execution.waiting.values())).steps == 1)
    assert await shelf.look() == [1]
    Shelf.gate("wait").set()
    assert await waits == 2
    assert await shelf.look() == [1, 2]


async def test_a_step_under_way_is_not_seen(cluster: MemoryCluster) -> None:
    shelf = Shelf.ref("a")
    with cluster.writes_wait():
        waits = await begun(cluster, shelf.put_in_steps(1, 2))
        assert await shelf.look() == []
    Shelf.gate("wait").set()
    assert await waits == 2


async def test_it_answers_while_a_handler_is_in_its_thread(cluster: MemoryCluster) -> None:
    shelf = Shelf.ref("a")
    await shelf.put(1)
    blocks = asyncio.ensure_future(shelf.block(2))
    await asyncio.to_thread(Shelf.entered.wait, 10)
    assert await shelf.look() == [1]
    Shelf.leave.set()
    assert await blocks == 2
    assert await shelf.look() == [1, 2]


async def test_its_answer_waits_for_the_commit_that_it_has_seen(cluster: MemoryCluster) -> None:
    shelf = Shelf.ref("a")
    await shelf.put(1)
    with cluster.writes_wait():
        puts = [asyncio.ensure_future(shelf.put(number)) for number in (2, 3)]
        await until(lambda: any(slot.tail for slot in slots(cluster)))
        look = asyncio.ensure_future(shelf.look())
        await travel(0.2)
        assert not look.done()
    assert await look == [1, 2], "it did not wait for the command in the mailbox"
    assert [await each for each in puts] == [2, 3]


async def test_a_state_whose_commit_fails_is_not_told(cluster: MemoryCluster) -> None:
    shelf = Shelf.ref("a")
    await shelf.put(1)
    cluster.fail_next_write(Shelf, "a")
    with cluster.writes_wait():
        put = asyncio.ensure_future(shelf.put(2))
        await until(lambda: any(slot.tail for slot in slots(cluster)))
        look = asyncio.ensure_future(shelf.look())
        await travel(0.2)
    assert await look == [1]
    with pytest.raises(Exception, match="refused"):
        await put


async def looks_at_a_commit_that_fails(cluster: MemoryCluster, looks: int) -> tuple[list[Any], list[int]]:
    """Ask that many queries while a commit is under way that is refused. Return their outcomes, and
    their places in the order in which they were answered.
    """
    shelf = Shelf.ref("a")
    await shelf.put(1)
    for shard in host(cluster).shards.values():
        shard.mailbox_limit = 3
    order: list[int] = []

    def answered(place: int, _: object) -> None:
        order.append(place)

    cluster.fail_next_write(Shelf, "a")
    with cluster.writes_wait():
        put = asyncio.ensure_future(shelf.put(2))
        await until(lambda: any(slot.tail for slot in slots(cluster)))
        asked = [asyncio.ensure_future(shelf.look()) for _ in range(looks)]
        for place, each in enumerate(asked):
            each.add_done_callback(partial(answered, place))
        await travel(0.2)
        assert all(len(slot.mailbox or ()) <= 3 for slot in slots(cluster))
    outcomes = await asyncio.gather(put, *asked, return_exceptions=True)
    assert isinstance(outcomes[0], NotSerializable)
    assert not host(cluster).backlog._bytes
    return outcomes[1:], order


async def test_those_whose_commit_fails_are_answered_in_their_order(cluster: MemoryCluster) -> None:
    assert await looks_at_a_commit_that_fails(cluster, 3) == ([[1]] * 3, [0, 1, 2])


async def test_answers_that_wait_for_a_commit_have_the_limit_of_the_mailbox(
    cluster: MemoryCluster,
) -> None:
    outcomes, order = await looks_at_a_commit_that_fails(cluster, 7)
    assert isinstance(outcomes[6], BufferFull), "three wait for the commit, and three in the mailbox"
    assert order[0] == 6
    assert [type(each) for each in outcomes[:3]] == [BufferFull] * 3, "there is no room to go back"
    assert outcomes[3:6] == [[1]] * 3


async def test_one_that_comes_during_recovery_passes_a_command_that_waits(cluster: MemoryCluster) -> None:
    shelf = Shelf.ref("a")
    await shelf.put(1)
    cluster.forget(Shelf)
    waits = asyncio.ensure_future(shelf.wait_and_put(2))
    look = asyncio.ensure_future(shelf.look())
    assert await look == [1]
    assert not waits.done()
    Shelf.gate("wait").set()
    assert await waits == 2


async def test_a_full_mailbox_does_not_hold_it_up(cluster: MemoryCluster) -> None:
    shelf = Shelf.ref("a")
    waits = await begun(cluster, shelf.wait_and_put(1))
    for shard in host(cluster).shards.values():
        shard.mailbox_limit = 2
    queued = [asyncio.ensure_future(shelf.put(number)) for number in (2, 3)]
    await until(lambda: any(slot.mailbox and len(slot.mailbox) == 2 for slot in slots(cluster)))
    assert await shelf.look() == []
    Shelf.gate("wait").set()
    assert await waits == 1
    assert [await each for each in queued] == [2, 3]
    assert not host(cluster).backlog._bytes


async def test_a_pipelined_entity_tells_committed_states_alone(cluster: MemoryCluster) -> None:
    shelf = HotShelf.ref("a")
    await shelf.put(1)
    with cluster.writes_wait():
        put = asyncio.ensure_future(shelf.put(2))
        waits = await begun(cluster, shelf.put_and_wait(3), HotShelf)
        look = asyncio.ensure_future(shelf.look())
        await travel(0.2)
        assert not look.done(), "it has seen a commit that is under way"
    assert await look == [1, 2]
    assert await put == 2
    Shelf.gate("wait").set()
    assert await waits == 3


@pytest.mark.parametrize("fails", [False, True])
async def test_a_durable_state_that_changes_is_not_seen(cluster: MemoryCluster, fails: bool) -> None:
    board = Board.ref("a")
    waits = await begun(cluster, board.write("new", fails=fails), Board)
    assert await board.read() == ""
    Shelf.gate("wait").set()
    await asyncio.gather(waits, return_exceptions=True)
    assert await board.read() == ("" if fails else "new")


async def test_an_entity_in_memory_shows_what_its_last_command_left(cluster: MemoryCluster) -> None:
    lamp = Lamp.ref("a")
    waits = await begun(cluster, lamp.light(), Lamp)
    assert await lamp.is_lit() is False
    Shelf.gate("wait").set()
    await waits
    assert await lamp.is_lit() is True


async def test_a_query_that_waits_is_no_reason_for_a_copy(cluster: MemoryCluster) -> None:
    shelf = Shelf.ref("a")
    await shelf.put(1)
    waits = await begun(cluster, shelf.look_slowly())
    assert await shelf.look() == [1]
    assert len(Shelf.born) == 1
    Shelf.gate("wait").set()
    await waits


@pytest.mark.parametrize(
    ("how", "error"), [("persist", EntityFailed), ("reject", Rejected), ("fail", EntityFailed)]
)
async def test_its_failure_costs_the_running_command_nothing(
    cluster: MemoryCluster, how: str, error: type[Exception]
) -> None:
    shelf = Shelf.ref("a")
    waits = await begun(cluster, shelf.put_and_wait(1))
    with pytest.raises(error):
        await shelf.misuse(how)
    Shelf.gate("wait").set()
    assert await waits == 1
    assert await shelf.look() == [1]


async def test_a_state_that_cannot_be_copied_makes_it_wait(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dump_state(obj: object) -> bytes:
        raise SystemExit("a user's snapshot()")

    monkeypatch.setattr(host(cluster).type, "dump_state", dump_state)
    shelf = Shelf.ref("a")
    waits = await begun(cluster, shelf.wait_and_put(1))
    look = asyncio.ensure_future(shelf.look())
    await travel(0.2)
    assert not look.done()
    Shelf.gate("wait").set()
    assert await waits == 1
    assert await look == [1]
    assert host(cluster).execution.counters["states_not_copied"] == 1


async def test_types_without_one_have_plain_commands(cluster: MemoryCluster) -> None:
    assert issubclass(host(cluster).execution.command_class, Watched)

    class Plain(Shelf, name="concurrent.Plain"):
        @query
        def look(self) -> list[int]:
            return self.numbers

        @query
        def misuse(self, how: str) -> None: ...

    assert Plain._sharding_type is not None
    assert not Plain._sharding_type.concurrent


def declared(**options: Any) -> None:
    query(concurrent=True, **options)(lambda self: None)


async def test_it_is_a_plain_def() -> None:
    for options in ({"thread": True}, {"fenced": True}):
        with pytest.raises(DeclarationError, match="must be a plain def"):
            declared(**options)
    with pytest.raises(DeclarationError, match="must be a plain def"):

        @query(concurrent=True)
        async def look(self: object) -> None: ...
