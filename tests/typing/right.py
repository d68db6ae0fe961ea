"""What type checkers must accept, with the types that they must infer. Read by them, never run."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Generic, TypeVar, assert_type
from uuid import UUID

from sharding_app import (
    Answer,
    Answers,
    Daily,
    DurableState,
    Entity,
    EntityContext,
    EventSourced,
    Failure,
    Happened,
    Ref,
    Rejected,
    Remote,
    Sent,
    ShardingError,
    ShardingSettings,
    Singleton,
    applies,
    command,
    event,
    every,
    message,
    on_start,
    query,
)

T = TypeVar("T")


@event
class ItemAdded:
    sku: str
    quantity: int


@event(name="removed", version=2)
class ItemRemoved:
    sku: str
    why: str = "no reason"


class Cart(EventSourced):
    settings = ShardingSettings(role="backend", snapshot_every=100)
    ignore_events = ("Gone",)
    items: dict[str, int]

    def __init__(self) -> None:
        self.items = {}

    @command
    def add(self, sku: str, quantity: int = 1) -> int:
        if quantity < 1:
            raise Rejected("quantity must be at least 1")
        self.persist(ItemAdded(sku, quantity))
        return self.items[sku]

    @command
    async def remove(self, sku: str, *, why: str = "") -> list[str]:
        await self.persist(ItemRemoved(sku), ItemAdded(sku, quantity=1), in_transaction=lambda: None)
        self.context.start_timer("again", 3.0, Cart.add, sku, quantity=2)
        self.context.stop()
        return list(self.items)

    @command(thread=True)
    def block(self, key: UUID) -> bytes:
        assert_type(self.entity_id, str)
        assert_type(self.context, EntityContext)
        return key.bytes

    @query
    def total(self) -> int:
        return sum(self.items.values())

    @query(fenced=True)
    def surely(self) -> int:
        return self.total_of(list(self.items))

    def total_of(self, skus: list[str]) -> int:
        return len(skus)

    @applies(ItemAdded)
    def on_item_added(self, happened: ItemAdded) -> None:
        self.items[happened.sku] = happened.quantity

    @applies(ItemAdded, ItemRemoved)
    def on_either(self, happened: ItemAdded | ItemRemoved) -> None:
        self.items.pop(happened.sku)


class Box(DurableState, Generic[T]):
    value: T | None = None

    @command
    async def put(self, value: T) -> list[T]:
        self.value = value
        await self.persist()
        return [value]


class IntBox(Box[int]): ...


@message(entity_id="counter_id")
class Get:
    counter_id: str


class Counter(Entity):
    count: int = 0

    async def receive(self, message: object) -> object:
        match message:
            case Get():
                return self.count
            case _:
                return None


class PlainCounter(Entity):
    def receive(self, message: object) -> int:
        return 1


async def from_async_code(given: Ref[Cart]) -> None:
    assert_type(await Cart.ref("alice").add("book", 2), int)
    assert_type(await Cart.ref("alice", timeout=3, command_id="c").add(sku="book"), int)
    assert_type(await Cart.ref(5).remove("book", why="x"), list[str])
    assert_type(await Cart.ref(UUID(int=5)).block(UUID(int=1)), bytes)
    assert_type(await given.surely(), int)
    assert_type(await given.exists(), bool)
    assert_type(Cart.ref("alice").add.tell("book"), None)
    assert_type(await IntBox.ref("1").put(3), list[int])
    assert_type(await Box[str].ref("1").put("x"), list[str])
    assert_type(given.add.name, str)
    given = Cart.ref("bob", on_commit=False)
    answers = await Cart.ask_many(["alice", 5, UUID(int=5), given], timeout=3)(Cart.add, "book", quantity=2)
    assert_type(answers, Answers[int])
    assert_type(answers["alice"], int)
    assert_type(answers.errors, dict[str, ShardingError])
    async for each in Cart.ask_many(Cart.refs(prefix="2026-"))(Cart.total):
        assert_type(each, Answer[int])
        assert_type(each.value, int)
    async for ref in Cart.refs(stored=False):
        assert_type(await ref.total(), int)
    loosely: Answers[int] = await Cart.ask_many(["alice"]).total()
    del loosely
    remote: Remote[[str, int], int] = given.add
    await remote("book", 1)
    await helper(Cart.ref("x"), Cart.ref("y"))


async def helper(*carts: Ref[Cart]) -> list[int]:
    return [await cart.total() for cart in carts]


def from_sync_code(given: Ref[Cart]) -> None:
    assert_type(Cart.ref("alice").sync.add("book", 2), int)
    assert_type(given.sync.remove("book"), list[str])
    assert_type(given.sync.total(), int)
    assert_type(given.sync.exists(), bool)
    assert_type(IntBox.ref("1").sync.put(3), list[int])
    match ItemAdded("a", 1):
        case ItemAdded(sku=sku, quantity=quantity):
            assert_type(sku, str)
            assert_type(quantity, int)


class Auction(EventSourced):
    @command
    def bid(self, by: str, when: datetime) -> None:
        own: Ref[Auction] = self.ref
        own.close.tell()
        assert_type(self.send(Cart.ref(by).add, "book", quantity=1), Sent[int])
        self.send(Cart.ref(by).add, sku="book").reply_to(self.paid).on_failure(self.refused)
        self.send(Cart.ref(by).remove, "book").reply_to(self.close).on_failure(self.ref.close)
        self.send(Cart.ref(by).add, "book").reply_to(self.ref.paid)
        self.schedule(self.ref.close, key="closing", at=when)
        self.schedule(call=self.close, key="closing", after=5)
        self.schedule(self.ref.paid.bind(3), key="closing", after=timedelta(seconds=3))
        self.schedule(self.ref.close, key="c", every=timedelta(hours=1))
        self.schedule(self.ref.hint, key="c", every=Daily("07:00", tz="UTC"), missed="all")
        self.cancel("closing")
        self.after_commit(lambda: None)

    @command
    async def paid(self, amount: int) -> None: ...

    @command
    def refused(self, failure: Failure) -> None:
        assert_type(failure.code, str)

    @command
    def close(self) -> int:
        return 3

    @command
    def hint(self, number: int = 1) -> None: ...

    @on_start
    async def connect(self) -> None: ...


class Digest(Singleton, EventSourced):
    @every(day_at="07:00", tz="Europe/Berlin", missed="skip")
    @command
    def send_out(self) -> int:
        return 1

    @every(hours=1)
    @command
    async def clean_up(self) -> None: ...


async def durably(when: datetime) -> None:
    assert_type(await Digest.the().send_out(), int)
    assert_type(Auction.ref(1).close.later(at=when), Awaitable[None])
    await Auction.ref(1).close.later(after=3)
    await Auction.ref(1).hint.later(after=timedelta(1))
    await Auction.ref(1).paid.later(when, 3)
    await Auction.ref(1).paid.later(timedelta(1), amount=3)
    await Auction.ref(1).paid.durably(amount=3)


async def following(given: Ref[Cart]) -> None:
    async for happened in Cart.ref("alice").events(after=3):
        assert_type(happened.number, int)
        assert_type(happened.at, datetime)
        if isinstance(happened.event, ItemAdded):
            assert_type(happened.event.quantity, int)
    async for total in given.total.changes():
        assert_type(total, int)
    for each in given.sync.events(timeout=1.0):
        assert_type(each.entity_id, str)


def shown(happened: Happened[ItemAdded]) -> str:
    return happened.event.sku
