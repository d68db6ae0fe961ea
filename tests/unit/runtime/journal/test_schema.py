"""Schema evolution: what the journal of former code means to the present one."""

import pytest

from sharding_app import (
    DeclarationError,
    EventSourced,
    UnreadableEvent,
    applies,
    command,
    event,
    query,
    upcasts,
)
from sharding_app.testing.cluster import MemoryCluster

pytestmark = pytest.mark.asyncio


@event(name="money.paid", version=3)
class Paid:
    cents: int
    currency: str


@upcasts(Paid, from_version=1)
def euros_to_cents(fields: dict[str, object]) -> dict[str, object]:
    return {"cents": round(float(str(fields["euros"])) * 100)}


@upcasts(Paid, from_version=2)
def all_were_euros(fields: dict[str, object]) -> dict[str, object]:
    return {**fields, "currency": "EUR"}


@event(version=3)
class Gapped:
    x: int


@upcasts(Gapped, from_version=2)
def second(fields: dict[str, object]) -> dict[str, object]:
    return fields


@event(version=2)
class Fragile:
    x: int


@upcasts(Fragile, from_version=1)
def breaks(fields: dict[str, object]) -> dict[str, object]:
    return {"x": fields["gone"]}


class Purse(EventSourced, name="entities.Purse"):
    ignore_events = ("Retired",)
    balance: dict[str, int]

    def __init__(self) -> None:
        self.balance = {}

    @command
    def pay(self, cents: int) -> None:
        self.persist(Paid(cents, "EUR"))

    @query
    def show(self) -> dict[str, int]:
        return self.balance

    @applies(Paid)
    def on_paid(self, happened: Paid) -> None:
        self.balance[happened.currency] = self.balance.get(happened.currency, 0) + happened.cents

    @applies(Gapped, Fragile)
    def on_other(self, happened: Gapped | Fragile) -> None:
        self.balance["other"] = happened.x


async def test_old_versions_go_through_their_upcasters_one_by_one(cluster: MemoryCluster) -> None:
    await Purse.ref("other").show()
    cluster.append_raw(
        Purse, "p",
        ("money.paid", 1, b'{"euros": "1.50"}'),
        ("money.paid", 2, b'{"cents": 25}'),
        ("money.paid", 3, b'{"cents": 5, "currency": "USD"}'),
    )  # fmt: skip
    await Purse.ref("p").pay(100)
    assert await Purse.ref("p").show() == {"EUR": 275, "USD": 5}
    assert cluster.events_raw(Purse, "p")[0][1] == 1, "the journal is never rewritten"
    assert cluster.events_raw(Purse, "p")[-1] == ("money.paid", 3, b'{"cents":100,"currency":"EUR"}')


async def test_names_do_not_depend_on_the_module(cluster: MemoryCluster) -> None:
    await Purse.ref("p").pay(1)
    ((name, version, _),) = cluster.events_raw(Purse, "p")
    assert (name, version) == ("money.paid", 3)
    assert __name__ not in name


async def test_unknown_fields_are_ignored_and_stay_in_the_journal(cluster: MemoryCluster) -> None:
    await Purse.ref("other").show()
    record = ("money.paid", 3, b'{"cents": 5, "currency": "EUR", "from_the_future": [1]}')
    cluster.append_raw(Purse, "p", record)
    assert await Purse.ref("p").show() == {"EUR": 5}
    assert cluster.events_raw(Purse, "p") == [record]


async def test_a_missing_upcaster_is_named(cluster: MemoryCluster) -> None:
    await Purse.ref("other").show()
    cluster.append_raw(Purse, "p", ("Gapped", 1, b'{"x": 1}'))
    with pytest.raises(UnreadableEvent, match=r"event 1: .*add @upcasts\(Gapped, from_version=1\)"):
        await Purse.ref("p").show()
    assert await Purse.ref("other").show() == {}


async def test_an_upcaster_that_raises_is_named(cluster: MemoryCluster) -> None:
    await Purse.ref("other").show()
    cluster.append_raw(Purse, "p", ("Fragile", 1, b'{"x": 1}'))
    with pytest.raises(UnreadableEvent, match=r"event 1: .*'Fragile' of version 1 cannot be read: 'gone'"):
        await Purse.ref("p").show()


async def test_an_unknown_type_stops_the_entity_and_only_it(cluster: MemoryCluster) -> None:
    await Purse.ref("other").pay(1)
    cluster.append_raw(Purse, "p", ("money.paid", 2, b'{"cents": 1}'), ("Renamed", 1, b"{}"))
    with pytest.raises(UnreadableEvent, match=r"event 2: .*unknown event 'Renamed'"):
        await Purse.ref("p").pay(1)
    assert await Purse.ref("other").show() == {"EUR": 1}


async def test_what_the_class_ignores_is_skipped_and_keeps_its_number(cluster: MemoryCluster) -> None:
    await Purse.ref("other").show()
    cluster.append_raw(Purse, "p", ("Retired", 7, b'{"whatever": 1}'), ("money.paid", 2, b'{"cents": 1}'))
    await Purse.ref("p").pay(4)
    assert await Purse.ref("p").show() == {"EUR": 5}
    assert len(cluster.events_raw(Purse, "p")) == 3
    cluster.forget()
    assert await Purse.ref("p").show() == {"EUR": 5}


async def test_names_with_a_meaning_of_their_own_are_refused() -> None:
    for name in ("?finished", "~x"):
        with pytest.raises(DeclarationError, match="which is reserved"):
            event(name=name)(type("Odd", (), {}))
