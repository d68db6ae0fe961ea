"""What a command does to an entity, by the contract that every host keeps: shown on one entity
alone.
"""

import asyncio
import contextlib
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app import (
    DurableState,
    Entity,
    EntityFailed,
    EventSourced,
    InvalidCall,
    NotSerializable,
    PartiallyApplied,
    Rejected,
    WrongContext,
    applies,
    command,
    event,
    query,
)
from sharding_app.testing.local import LocalHost
from tests.unit.entities.cart import Cart, ItemAdded

pytestmark = pytest.mark.asyncio


@event
class Counted:
    by: int


class Counter(EventSourced):
    count: int = 0

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        if happened.by == 13:
            self.count = -1
            raise ZeroDivisionError("unlucky")
        self.count += happened.by

    @command
    def several(self, *, then_fail: bool = False) -> int:
        self.persist(Counted(1), Counted(2))
        self.persist(Counted(3))
        self.persist()
        if then_fail:
            raise KeyError("late")
        return self.count

    @command
    async def in_two_steps(self, fail: bool) -> int:
        await self.persist(Counted(1))
        await asyncio.sleep(0)
        self.persist(Counted(10))
        if fail:
            raise ValueError("after the first commit")
        return self.count

    @command
    def swallow(self) -> int:
        with contextlib.suppress(ZeroDivisionError):
            self.persist(Counted(13))
        return self.count

    @command
    def half(self, bad: bool) -> None:
        self.persist(Counted(1), Counted(float("nan") if bad else 2))  # type: ignore[arg-type]

    @command
    def unapplied(self) -> None:
        self.persist(ItemAdded("x", 1))

    @command
    def no_event(self) -> None:
        self.persist("counted")

    @command
    def wrong_reply(self) -> int:
        self.persist(Counted(1))
        return "one"  # type: ignore[return-value]

    @command
    def refuse(self) -> None:
        self.persist(Counted(1))
        raise Rejected("no", code="never", params={"why": 1})

    @command(thread=True)
    def in_a_thread(self) -> str:
        self.persist(Counted(1))
        return threading.current_thread().name

    @command
    async def with_rows(self, fail: bool) -> int:
        def rows() -> None:
            ran.append(self.count)
            if fail:
                raise OSError("the rows failed")

        await self.persist(Counted(5), in_transaction=rows)
        return self.count

    @query
    def write_in_query(self) -> None:
        self.persist(Counted(1))

    @query
    async def read(self) -> int:
        return self.count


ran: list[int] = []


async def test_the_design_page_runs_as_it_stands() -> None:
    cart = LocalHost(Cart, "alice")

    assert await cart.run("add", "book", 2) == 2
    assert await cart.run("add", "book") == 3
    assert await cart.run("total") == 3
    assert cart.journal[0] == ("ItemAdded", 1, b'{"sku":"book","quantity":2}')
    assert cart.state() == b'{"items":{"book":3}}'
    with pytest.raises(Rejected, match="quantity must be at least 1"):
        await cart.run("add", "book", 0)
    assert len(cart.journal) == 2


async def test_given_events_when_command_then_events_reply_state() -> None:
    cart = LocalHost(Cart, events=[ItemAdded("book", 2)])

    assert await cart.run("add", "pen", 4) == 4
    assert cart.events == [ItemAdded("pen", 4)]
    assert cart.entity.items == {"book": 2, "pen": 4}


async def test_all_that_is_staged_is_stored_together() -> None:
    host = LocalHost(Counter)
    assert await host.run("several") == 6
    assert host.events == [Counted(1), Counted(2), Counted(3)]


async def test_a_handler_that_raises_stores_nothing_and_changes_nothing() -> None:
    host = LocalHost(Counter, "c1", events=[Counted(7)])
    with pytest.raises(EntityFailed, match=r"tests\.Counter 'c1': several raised KeyError: 'late'") as caught:
        await host.run("several", then_fail=True)
    assert caught.value.params == {
        "type": "tests.Counter",
        "entity_id": "c1",
        "command": "several",
        "error": "KeyError",
    }
    assert (len(host.journal), host.entity.count) == (1, 7)


async def test_what_was_awaited_stays_and_the_error_says_so() -> None:
    host = LocalHost(Counter)
    with pytest.raises(PartiallyApplied, match=r"ValueError: after the first commit .*is stored"):
        await host.run("in_two_steps", True)
    assert (len(host.journal), host.entity.count) == (1, 1)
    assert await host.run("in_two_steps", False) == 12


async def test_a_rejection_reaches_the_caller_as_itself() -> None:
    host = LocalHost(Counter)
    with pytest.raises(Rejected) as caught:
        await host.run("refuse")
    assert (caught.value.code, caught.value.params) == ("never", {"why": 1})
    assert (host.journal, host.entity.count) == ([], 0)


async def test_an_applier_that_fails_fails_the_command_even_when_the_handler_swallows_it() -> None:
    host = LocalHost(Counter)
    with pytest.raises(EntityFailed, match="ZeroDivisionError: unlucky"):
        await host.run("swallow")
    assert (host.journal, host.entity.count) == ([], 0)


async def test_an_event_that_cannot_be_stored_stops_all_of_its_call() -> None:
    host = LocalHost(Counter)
    with pytest.raises(
        NotSerializable, match="half raised NotSerializable: Counter: event Counted: field 'by'"
    ):
        await host.run("half", True)
    assert (host.journal, host.entity.count) == ([], 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unapplied", r"nothing in Counter applies ItemAdded: add a method with @applies\(ItemAdded\)"),
        ("no_event", "takes events, and str is not decorated with @event"),
        ("write_in_query", "persist\\(\\) can only be called while a command handler runs"),
        ("wrong_reply", "returned 'one', which its annotation does not allow"),
    ],
)
async def test_what_persist_and_replies_refuse(name: str, message: str) -> None:
    host = LocalHost(Counter)
    with pytest.raises((EntityFailed, NotSerializable), match=message):
        await host.run(name)
    assert (host.journal, host.entity.count) == ([], 0)
    assert await host.run("read") == 0


async def test_a_thread_handler_runs_in_a_thread() -> None:
    host = LocalHost(Counter)
    assert await host.run("in_a_thread") != threading.current_thread().name
    assert host.entity.count == 1


async def test_rows_are_written_with_the_events() -> None:
    host = LocalHost(Counter)
    ran.clear()
    assert await host.run("with_rows", False) == 5
    assert ran == [5]
    with pytest.raises(EntityFailed, match="OSError: the rows failed"):
        await host.run("with_rows", True)
    assert (len(host.journal), host.entity.count) == (1, 5)


async def test_persist_outside_of_a_handler_is_refused() -> None:
    class Eager(EventSourced):
        @applies(Counted)
        def on(self, happened: Counted) -> None:
            self.persist(Counted(1))

        @command
        def go(self) -> None:
            self.persist(Counted(1))

    host = LocalHost(Eager)
    with pytest.raises(
        EntityFailed, match="WrongContext: persist\\(\\) can only be called while a command handler runs"
    ):
        await host.run("go")
    with pytest.raises(WrongContext):
        host.entity.persist(Counted(1))


async def test_a_command_on_self_is_an_error_that_names_the_fix() -> None:
    class Chatty(Cart):
        @command
        def twice(self, sku: str) -> int:
            return self.add(sku) + self.add(sku)

        @command
        def told(self, sku: str) -> None:
            self.add.tell(sku)  # type: ignore[attr-defined]

    host = LocalHost(Chatty)
    for name in ("twice", "told"):
        with pytest.raises(
            EntityFailed, match=r"InvalidCall: .*add is a command: a call on self.*plain method"
        ):
            await host.run(name, "book")


async def test_unknown_commands_are_told() -> None:
    with pytest.raises(InvalidCall, match=r"tests.Cart has no command 'ad' \(known: add, total\)"):
        await LocalHost(Cart).run("ad")


class Door(DurableState):
    is_open: bool = False
    opened: list[str]

    def __init__(self) -> None:
        self.opened = []

    @command
    def open(self, by: str) -> int:
        self.is_open = True
        self.opened.append(by)
        if by == "thief":
            raise Rejected("no")
        return len(self.opened)

    @command
    async def knock(self) -> None:
        self.opened.append("knock")
        await self.persist()
        self.opened.append("lost")
        raise RuntimeError("nobody home")

    @query
    def look(self) -> bool:
        return self.is_open


async def test_a_durable_state_is_stored_when_it_has_changed() -> None:
    host = LocalHost(Door)
    assert await host.run("open", "me") == 1
    assert host.stored == b'{"is_open":true,"opened":["me"]}'
    stored = host.stored
    assert await host.run("look") is True
    assert host.stored is stored


async def test_a_durable_state_is_put_back_when_the_handler_raises() -> None:
    host = LocalHost(Door)
    await host.run("open", "me")
    with pytest.raises(Rejected):
        await host.run("open", "thief")
    assert host.entity.opened == ["me"]


async def test_what_a_durable_state_awaited_stays() -> None:
    host = LocalHost(Door)
    with pytest.raises(PartiallyApplied):
        await host.run("knock")
    assert host.entity.opened == ["knock"]


async def test_a_plain_entity_has_commands_too_and_no_persist() -> None:
    class Room(Entity):
        people: set[str]

        def __init__(self) -> None:
            self.people = set()

        @command
        def enter(self, name: str) -> int:
            self.people.add(name)
            return len(self.people)

    host = LocalHost(Room)
    assert [await host.run("enter", name) for name in ("a", "b", "a")] == [1, 2, 2]
    assert not hasattr(host.entity, "persist")


@given(st.lists(st.tuples(st.sampled_from(["several", "fail", "in_two_steps", "refuse", "swallow"]))))
async def test_the_state_is_the_fold_of_the_journal(calls: list[tuple[str]]) -> None:
    host = LocalHost(Counter)
    for (name,) in calls:
        arguments: dict[str, Any] = {"then_fail": True} if name == "fail" else {}
        positional = (len(host.journal) % 2 == 0,) if name == "in_two_steps" else ()
        with contextlib.suppress(EntityFailed, Rejected):
            await host.run("several" if name == "fail" else name, *positional, **arguments)
        kind = host.entity_type
        fresh = kind.new("1")
        kind.replay(fresh, [(number, *record) for number, record in enumerate(host.journal, 1)])
        assert kind.dump_state(fresh) == host.state()
