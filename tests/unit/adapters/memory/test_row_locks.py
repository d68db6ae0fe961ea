"""What waits on the virtual server, in which order it goes on, and when it gives up.
`test_overlapping` compares with PostgreSQL.
"""

import asyncio

import pytest

from sharding_app.adapters.memory import MemoryJournal, MemoryServer, MemoryStore
from sharding_app.adapters.memory.cluster_writes import shard_key
from sharding_app.adapters.memory.locks import Key, Lock, RowLocks
from sharding_app.ports.journal import JournalUnavailable, ShardsFenced, ShardsLocked
from sharding_app.protocol.records import CoordinatorRow, HomeChange
from tests.contract.gates import MemoryGates, Rest, at_rest
from tests.support.given import CART, event_row, member, with_type

ROW: Key = ("shard", 1, 0)
SHARED, ALONE = Lock(ROW, shared=True), Lock(ROW)


class Taker:
    """Notes when it gets what it waits for."""

    def __init__(self, locks: RowLocks, name: str, got: list[str]) -> None:
        self.locks = locks
        self.name = name
        self._got = got

    def take(self, lock: Lock) -> bool:
        return self.locks.take(self, lock)

    def granted(self) -> None:
        self._got.append(self.name)


def takers(number: int) -> tuple[list[Taker], list[str]]:
    locks, got = RowLocks(), list[str]()
    return [Taker(locks, "abcdef"[each], got) for each in range(number)], got


def test_a_row_is_shared_or_held_alone() -> None:
    (a, b, c), got = takers(3)
    assert a.take(SHARED)
    assert b.take(SHARED)
    assert not c.take(ALONE)
    assert a.take(SHARED), "what it has is taken again"
    a.locks.release(a)
    assert got == []
    a.locks.release(b)
    assert got == ["c"]
    assert c.locks.holder(ROW) == "c"


def test_who_shares_a_row_goes_past_those_that_wait_to_have_it_alone() -> None:
    (a, b, c), got = takers(3)
    assert a.take(SHARED)
    assert not b.take(ALONE)
    assert c.take(SHARED)
    a.locks.release(a)
    assert got == []


def test_those_that_wait_go_on_in_the_order_in_which_they_came() -> None:
    (a, b, c, d), got = takers(4)
    assert a.take(ALONE)
    assert not b.take(SHARED)
    assert not c.take(ALONE)
    assert not d.take(SHARED)
    a.locks.release(a)
    assert got == ["b"]
    a.locks.release(b)
    assert got == ["b", "c"]
    a.locks.release(c)
    assert got == ["b", "c", "d"]


def test_a_new_version_of_a_row_is_shared_past_one_that_waits_to_have_it_alone() -> None:
    (a, b, c, d), got = takers(4)
    assert a.take(ALONE)
    for each, lock in ((b, SHARED), (c, ALONE), (d, SHARED)):
        assert not each.take(lock)
    a.locks.release(a, changed=True)
    assert got == ["b", "d"]


def test_one_that_goes_away_while_it_waits_leaves_its_place_to_the_next() -> None:
    (a, b, c), got = takers(3)
    assert a.take(SHARED)
    assert not b.take(ALONE)
    assert not c.take(ALONE)
    a.locks.release(b)
    a.locks.release(a)
    assert got == ["c"]


def test_nothing_is_kept_of_rows_that_are_free() -> None:
    (a, b), _ = takers(2)
    a.take(ALONE)
    b.take(ALONE)
    a.locks.release(a)
    a.locks.release(b)
    assert a.locks.holder(ROW) is None
    assert not a.locks._rows
    assert not a.locks._held


@pytest.mark.asyncio
async def test_a_copy_that_is_cut_in_the_middle_leaves_nothing() -> None:
    gates = MemoryGates()
    gates.server.cluster.epochs[1, 0] = 1
    journal, next_home = MemoryJournal(gates.server, "one"), MemoryJournal(gates.server, "two")
    rows = [event_row(1, "a", seq) for seq in (1, 2, 3)]
    await gates.shut("one", "work")
    append = asyncio.ensure_future(journal.append(rows))
    assert await at_rest(gates, "one", append) == "held"
    assert not gates.server.journal.events, "others see none of it yet"
    await gates.end("one")
    with pytest.raises(JournalUnavailable) as lost:
        await append
    assert not lost.value.answered
    assert not gates.server.journal.events
    await next_home.append(rows[:1])


@pytest.mark.asyncio
async def test_a_wait_is_given_up_after_the_locks_time_or_the_statements() -> None:
    server = MemoryServer()
    server.cluster.epochs[1, 0] = 1
    held = server.locks.hold(shard_key(1, 0), "another session")
    journal = MemoryJournal(server, lock_seconds=0.01)
    with pytest.raises(ShardsLocked) as locked:
        await journal.append([event_row(1, "a", 1)])
    assert locked.value.holders == {(1, 0): "another session"}
    server.statement_seconds = 0.01
    with pytest.raises(JournalUnavailable, match="57014"):
        await MemoryJournal(server, lock_seconds=60).append([event_row(1, "a", 1)])
    server.locks.release(held)
    await journal.append([event_row(1, "a", 1)])


@pytest.mark.asyncio
async def test_what_has_waited_looks_at_the_row_again() -> None:
    gates = MemoryGates()
    store, other = MemoryStore(gates.server, "one"), MemoryStore(gates.server, "two", lock_seconds=60)
    await store.join(member("node"), (1, 2))
    await gates.shut("one", "commit")
    leave = asyncio.ensure_future(store.leave("node"))
    assert await at_rest(gates, "one", leave) == "held"
    update = asyncio.ensure_future(other.update_member("node", deaf=True))
    assert await at_rest(gates, "two", update) == "waits"
    await gates.open("one", "commit")
    assert await update is False
    await leave


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "rests",
    [{"move": "held", "append": "waits"}, {"append": "answered", "move": "held"}],
    ids=["the move first", "the append first"],
)
async def test_of_those_that_race_for_a_new_version_the_one_goes_first_that_did_so_on_postgres(
    rests: dict[str, Rest],
) -> None:
    """Both wait for a decision that raises an epoch. An append that comes first is refused at once,
    else it waits for the move.
    """
    gates = MemoryGates()
    stores = {name: MemoryStore(gates.server, name, lock_seconds=60) for name in ("decision", "move")}
    number = await with_type(stores["move"])
    gates.server.cluster.coordinator = CoordinatorRow(1, "a")
    await stores["move"].decide(1, [HomeChange(CART.name, 0, 0, 1, "a", "home")])
    await gates.shut("decision", "commit")
    await gates.shut("move", "commit")
    tasks: dict[str, asyncio.Task[object]] = {}
    for name, before in (("decision", 1), ("move", 2)):
        change = HomeChange(CART.name, 0, before, before + 1, "a", "home")
        tasks[name] = asyncio.ensure_future(stores[name].decide(1, [change]))
        await at_rest(gates, name, tasks[name])
    journal = MemoryJournal(gates.server, "append", lock_seconds=60)
    tasks["append"] = asyncio.ensure_future(journal.append([event_row(number, "a", 1)]))
    assert await at_rest(gates, "append", tasks["append"]) == "waits"
    gates.follow(rests)
    await gates.open("decision", "commit")
    assert {name: await at_rest(gates, name, tasks[name]) for name in rests} == rests
    await gates.open("move", "commit")
    await tasks["move"]
    with pytest.raises(ShardsFenced):
        await tasks["append"]
