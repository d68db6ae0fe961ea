"""Recovery: in bulk, bounded, and a failure that concerns one entity and says which event and
why.
"""

import asyncio

import pytest

from sharding_app import (
    DurableState,
    EventSourced,
    ShardingError,
    UnreadableEvent,
    UnreadableState,
    applies,
    command,
    event,
    query,
)
from sharding_app.adapters.memory import MemoryJournal
from sharding_app.ports.journal import Bounds, History
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Cart, Profile

pytestmark = pytest.mark.asyncio


async def test_entities_that_wake_together_are_read_together(cluster: MemoryCluster) -> None:
    carts = [Cart.ref(number) for number in range(300)]
    await asyncio.gather(*(cart.add("book", 2) for cart in carts))
    assert cluster.forget(Cart) == 300
    loader = cluster.nodes["node1"].hosts["entities.Cart"].loader
    before = loader.reads
    assert await asyncio.gather(*(cart.total() for cart in carts)) == [2] * 300
    assert loader.reads - before <= 10
    assert loader.entities >= 600


async def test_no_more_are_recovered_at_a_time_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way = [0, 0]
    read = MemoryJournal.read

    async def slow_read(
        self: MemoryJournal, type_id: int, entities: list[str], bounds: Bounds
    ) -> dict[str, History]:
        under_way[0] += len(entities)
        under_way[1] = max(under_way)
        await asyncio.sleep(0.01)
        under_way[0] -= len(entities)
        return await read(self, type_id, entities, bounds)

    class Other(Cart, name="entities.Other"):
        """A second type: the limit is the node's."""

    monkeypatch.setattr(MemoryJournal, "read", slow_read)
    async with MemoryCluster([Cart, Other], config=NodeConfig(max_concurrent_recoveries=10)) as cluster:
        with cluster.in_use():
            asks = [kind.ref(number).total() for number in range(60) for kind in (Cart, Other)]
            assert await asyncio.gather(*asks) == [0] * 120
    assert under_way[1] == 10


@event
class Fragile:
    amount: int


class Broken(EventSourced, name="entities.Broken"):
    total: int = 0

    @command
    def take(self, amount: int) -> int:
        self.persist(Fragile(amount))
        return self.total

    @query
    def show(self) -> int:
        return self.total

    @applies(Fragile)
    def on_fragile(self, happened: Fragile) -> None:
        if happened.amount == 13:
            raise ValueError("thirteen")
        self.total += happened.amount


def fragile(*amounts: int) -> list[tuple[str, int, bytes]]:
    return [("Fragile", 1, b'{"amount": %d}' % amount) for amount in amounts]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (fragile(1, 2, 13), r"event 3: .*applying 'Fragile' of version 1 raised ValueError: thirteen"),
        ([*fragile(1), ("Unheard", 1, b"{}")], r"event 2: .*unknown event 'Unheard'"),
        ([*fragile(1), ("Fragile", 2, b"{}")], r"event 2: .*'Fragile' of version 2.*newer code"),
        ([*fragile(1, 2), ("Fragile", 1, b'{"amount": "x"}')], r"event 3: .*Expected `int`"),
        ([*fragile(1), ("Fragile", 1, b"{}")], r"event 2: .*missing required field `amount`"),
    ],
    ids=["applier raises", "unknown type", "newer version", "wrong field", "missing field"],
)
async def test_a_failure_names_entity_event_and_cause_and_concerns_one_entity(
    cluster: MemoryCluster,
    records: list[tuple[str, int, bytes]],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await Broken.ref("other").take(1)
    cluster.append_raw(Broken, "bad", *records)
    for _ in range(2):
        with pytest.raises(
            UnreadableEvent, match=rf"entities.Broken 'bad' cannot be recovered: {said}"
        ) as caught:
            await Broken.ref("bad").take(1)
        assert caught.value.params["entity_id"] == "bad"
        assert caught.value.params["number"] == len(records)
    assert await Broken.ref("other").take(1) == 2
    assert not cluster.is_in_memory(Broken, "bad")
    assert len(cluster.events_raw(Broken, "bad")) == len(records), "nothing was written over it"
    log = next(each for each in caplog.records if getattr(each, "action", "") == "recovery_failed")
    assert log.getMessage().startswith("entities.Broken 'bad' cannot be recovered: ")
    assert log.__dict__["entity"] == "bad"


async def test_all_that_wait_for_an_entity_learn_of_its_failure(cluster: MemoryCluster) -> None:
    await Broken.ref("other").take(1)
    cluster.append_raw(Broken, "bad", *fragile(13))
    outcomes = await asyncio.gather(*(Broken.ref("bad").show() for _ in range(5)), return_exceptions=True)
    assert all(isinstance(each, UnreadableEvent) for each in outcomes)


async def test_a_gap_in_the_journal_is_never_passed_over(cluster: MemoryCluster) -> None:
    for _ in range(4):
        await Broken.ref("a").take(1)
    del cluster.server.journal.events[cluster._key(Broken, "a")][2]
    cluster.forget()
    with pytest.raises(UnreadableEvent, match="cannot be rebuilt from its journal: it has a gap"):
        await Broken.ref("a").show()


async def test_a_durable_value_that_cannot_be_read(cluster: MemoryCluster) -> None:
    await Profile.ref("fine").visit()
    cluster.append_raw(Profile, "bad", ("state", 1, b'{"visits": "many"}'))
    with pytest.raises(
        UnreadableState, match=r"'bad' cannot be recovered: Profile: its state cannot be read"
    ):
        await Profile.ref("bad").visit()
    assert await Profile.ref("fine").visit() == 2


async def test_an_init_that_raises_concerns_its_entity_alone(cluster: MemoryCluster) -> None:
    class Picky(DurableState, name="entities.Picky"):
        count: int = 0

        def __init__(self) -> None:
            if self.entity_id == "bad":
                raise LookupError("not this one")

        @command
        def step(self) -> int:
            self.count += 1
            return self.count

    async with MemoryCluster([Picky]) as own:
        with own.in_use():
            with pytest.raises(ShardingError, match="'bad' cannot be recovered: LookupError: not this one"):
                await Picky.ref("bad").step()
            assert await Picky.ref("good").step() == 1


async def test_recovery_waits_while_the_journal_is_out_of_reach(cluster: MemoryCluster) -> None:
    await Cart.ref("a").add("book")
    cluster.forget()
    cluster.server.stop()
    total = asyncio.ensure_future(Cart.ref("a").total())
    await asyncio.sleep(0.3)
    assert not total.done()
    cluster.server.start()
    assert await total == 1
