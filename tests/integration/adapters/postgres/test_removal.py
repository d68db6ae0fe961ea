"""What `sharding_remove_data` stands on: it refuses while a node lives, keeps the journal, and
fences the past.
"""

import asyncio
import itertools
from typing import Any

import msgspec
import psycopg
import pytest

from sharding_app.adapters.postgres.deletion import (
    MessagesWait,
    NodesAlive,
    NoPlace,
    Removal,
    UnknownTypes,
    remove_data,
)
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.ports.deliveries import MessageChanges, Taking
from sharding_app.ports.journal import ShardsFenced
from sharding_app.ports.store import StaleTerm
from sharding_app.protocol.records import CoordinatorRow, HomeChange, ShardRow
from tests.integration.adapters.postgres.writers import connect
from tests.support.given import CART, event_row, member, message

pytestmark = pytest.mark.asyncio

ORDER = msgspec.structs.replace(CART, name="shop.Order")


async def ran_once(params: dict[str, Any]) -> tuple[PostgresStore, PostgresJournal]:
    """A cluster that ran: two types with a home each, an event, remembered ids, a lease, a node
    row.
    """
    store, journal = PostgresStore(params), PostgresJournal(params)
    numbers, _ = await store.register_types([CART, ORDER])
    await store.join(member("a"), (11, 12))
    async with await connect(params) as admin:
        await admin.execute("INSERT INTO sharding_coordinator (term, incarnation) VALUES (1, 'a')")
        await store.decide(1, [HomeChange(each.name, 0, 0, 1, "a", "home") for each in (CART, ORDER)])
        for number in numbers.values():
            await journal.append([event_row(number, "alice", 1)])
            await admin.execute(
                "INSERT INTO sharding_remembered (type_id, shard, entity, epoch) VALUES (%s, 0, 'alice', 1)",
                [number],
            )
        await admin.execute("INSERT INTO sharding_lease (name) VALUES ('singleton')")
    return store, journal


async def test_all_is_removed_but_the_journal(params: dict[str, Any]) -> None:
    store, journal = await ran_once(params)
    expected = Removal(homes=2, remembered=2, leases=1, nodes=1)
    assert await asyncio.to_thread(remove_data, params, dry_run=True) == expected
    assert await asyncio.to_thread(remove_data, params, dry_run=True) == expected
    assert await asyncio.to_thread(remove_data, params) == expected
    assert await asyncio.to_thread(remove_data, params) == Removal(0, 0, 0, 0)
    assert (await store.members())[1] == []
    numbers = await store.type_ids()
    for number in numbers.values():
        assert len((await journal.read_from(number, "alice", 0)).events) == 1
    await store.close()
    await journal.close()


async def test_a_configuration_that_the_next_node_may_change_binds_no_process(params: dict[str, Any]) -> None:
    """A process that starts before that node would otherwise refuse the type for good."""
    store, journal = await ran_once(params)
    assert await store.types_in_force() == [CART, ORDER]
    await asyncio.to_thread(remove_data, params, [CART.name])
    assert await store.types_in_force() == [ORDER]
    fewer = msgspec.structs.replace(CART, number_of_shards=7)
    await store.register_types([fewer])
    assert await store.types_in_force() == [msgspec.structs.replace(fewer, revision=1), ORDER]
    await store.close()
    await journal.close()


async def test_messages_that_wait_get_the_shards_of_another_configuration(params: dict[str, Any]) -> None:
    store, journal = await ran_once(params)
    numbers = await store.type_ids()
    number = numbers[CART.name]
    names = [f"m{each:02}" for each in range(30)]
    await journal.stage([message(number, each, entity=each) for each in names])
    fewer = msgspec.structs.replace(CART, number_of_shards=7)
    shards = dict(zip(names, itertools.cycle(range(7)), strict=False))
    with pytest.raises(NoPlace, match=CART.name):
        await asyncio.to_thread(remove_data, params, placing={ORDER.name: (ORDER, shards.__getitem__)})
    assert (await asyncio.to_thread(remove_data, params, dry_run=True)).messages == 30
    placing = {CART.name: (fewer, shards.__getitem__)}
    removed = await asyncio.to_thread(remove_data, params, placing=placing)
    assert removed == Removal(homes=2, remembered=2, leases=1, nodes=1, messages=0)
    page = await journal.due([(number, each) for each in range(7)], 10.0, 100)
    assert {each.id: each.shard for each in page.messages} == shards
    # Nodes with these settings host it, and others do not: they would look in other shards. The
    # former configuration of the other type binds no process that starts.
    assert await store.types_in_force() == [msgspec.structs.replace(fewer, revision=1)]
    assert (await store.register_types([fewer]))[1] == {}
    in_force = msgspec.structs.replace(fewer, revision=1)
    assert (await store.register_types([CART]))[1] == {CART.name: in_force}
    # Of a type without messages that is open.
    assert (await store.register_types([msgspec.structs.replace(ORDER, number_of_shards=7)]))[1] == {}
    # Each of these shards has a row, so the coordinator looks for a home at once.
    assert {row.shard for row in await store.shards() if row.type == CART.name} >= set(range(7))
    await store.close()
    await journal.close()


async def test_messages_that_wait_are_not_removed_unless_that_is_said(params: dict[str, Any]) -> None:
    store, journal = await ran_once(params)
    number = (await store.type_ids())[CART.name]
    await journal.stage([message(number, "m1")])
    for types in (None, [CART.name]):
        with pytest.raises(MessagesWait, match="1 message"):
            await asyncio.to_thread(remove_data, params, types)
    assert len(await store.shards()) == 2
    assert (await asyncio.to_thread(remove_data, params, [ORDER.name])).homes == 1
    assert (await asyncio.to_thread(remove_data, params, [CART.name], messages=True)).messages == 1
    await store.close()
    await journal.close()


async def test_marks_are_placed_with_the_messages_and_go_with_all_data(params: dict[str, Any]) -> None:
    """The message of a mark may still wait in another journal, with a sender of another type."""
    store, journal = await ran_once(params)
    number = (await store.type_ids())[CART.name]
    taking = Taking("m", foreign="b", taker=(number, 0, 1, "alice"))
    await journal.append([event_row(number, "alice", 2)], MessageChanges(takes=[taking]))
    fewer = msgspec.structs.replace(CART, number_of_shards=7)
    await asyncio.to_thread(remove_data, params, placing={CART.name: (fewer, lambda _: 5)})
    assert [each.shard for each in await journal.marks([(number, 0), (number, 5)], "", 9)] == [5]
    for types in ([ORDER.name], [CART.name]):
        await asyncio.to_thread(remove_data, params, types)
        assert await journal.marked(["m"]) == {"m": False}
    await asyncio.to_thread(remove_data, params)
    assert await journal.marked(["m"]) == {}
    await store.close()
    await journal.close()


async def test_one_type_is_removed_alone(params: dict[str, Any]) -> None:
    store, journal = await ran_once(params)
    found = await asyncio.to_thread(remove_data, params, [CART.name])
    assert found == Removal(homes=1, remembered=1, leases=0, nodes=0)
    assert await store.shards([ORDER.name]) == [ShardRow(ORDER.name, 0, 1, "a", "home")]
    assert len((await store.members())[1]) == 1
    with pytest.raises(UnknownTypes, match=r"shop\.Nothing"):
        await asyncio.to_thread(remove_data, params, [ORDER.name, "shop.Nothing"])
    assert await store.shards([ORDER.name]) == [ShardRow(ORDER.name, 0, 1, "a", "home")]
    await store.close()
    await journal.close()


@pytest.mark.parametrize("key", [11, 12])
async def test_a_living_node_is_named_and_nothing_is_removed(params: dict[str, Any], key: int) -> None:
    store, journal = await ran_once(params)
    session = PostgresLifelineSession(params, cluster_id="c", ttl_seconds=30)
    await session.open()
    await session.lock(key)
    with pytest.raises(NodesAlive, match="node-a"):
        await asyncio.to_thread(remove_data, params)
    assert len(await store.shards()) == 2
    assert await store.coordinator() == CoordinatorRow(1, "a")
    await session.close()
    await store.close()
    await journal.close()


async def test_a_type_that_no_living_node_hosts_is_removed_while_others_live(params: dict[str, Any]) -> None:
    store, journal = await ran_once(params)
    await store.update_member("a", member=member("a", types=(ORDER.name,)))
    session = PostgresLifelineSession(params, cluster_id="c", ttl_seconds=30)
    await session.open()
    await session.lock(11)
    with pytest.raises(NodesAlive, match="node-a"):
        await asyncio.to_thread(remove_data, params, [ORDER.name])
    found = await asyncio.to_thread(remove_data, params, [CART.name])
    assert found.homes == 1
    # Its coordinator goes on: it has no part in that type, and meets the higher epoch when it has.
    assert await store.coordinator() == CoordinatorRow(1, "a")
    (row,) = await store.decide(1, [HomeChange(CART.name, 0, 1, 2, "a", "home")])
    assert (row.epoch, row.home) == (2, None)
    await session.close()
    await store.close()
    await journal.close()


async def test_other_types_send_messages_while_some_are_taken_along(params: dict[str, Any]) -> None:
    store, journal = await ran_once(params)
    numbers = await store.type_ids()
    await store.update_member("a", member=member("a", types=(ORDER.name,)))
    session = PostgresLifelineSession(params, cluster_id="c", ttl_seconds=30)
    await session.open()
    await session.lock(11)
    await journal.stage([message(numbers[CART.name], "m1")])
    sending = [message(numbers[ORDER.name], "m2")]
    loop = asyncio.get_running_loop()

    def placed(entity: str) -> int:
        asyncio.run_coroutine_threadsafe(journal.stage(sending), loop).result(30)
        return 5

    found = await asyncio.to_thread(remove_data, params, [CART.name], placing={CART.name: (CART, placed)})
    assert found.homes == 1
    page = await journal.due([(numbers[CART.name], 5), (numbers[ORDER.name], 0)], 10.0, 100)
    assert {each.id for each in page.messages} == {"m1", "m2"}
    await session.close()
    await store.close()
    await journal.close()


async def test_a_node_that_slept_through_the_removal_is_fenced_for_ever(params: dict[str, Any]) -> None:
    """It had epoch 1 in term 1. The first home after the removal must not be at epoch 1 again."""
    store, journal = await ran_once(params)
    number = (await store.type_ids())[CART.name]
    await asyncio.to_thread(remove_data, params)
    (row,) = await store.shards([CART.name])
    assert row == ShardRow(CART.name, 0, 2, None, "stopped")
    with pytest.raises(StaleTerm):
        await store.decide(1, [HomeChange(CART.name, 0, 2, 3, "a", "home")])
    await store.decide(2, [HomeChange(CART.name, 0, 2, 3, "b", "home")])
    with pytest.raises(ShardsFenced):
        await journal.append([event_row(number, "alice", 2)])
    await store.close()
    await journal.close()


async def test_types_may_be_configured_anew_afterwards_and_keep_their_number(params: dict[str, Any]) -> None:
    store, journal = await ran_once(params)
    before = await store.type_ids()
    changed = msgspec.structs.replace(CART, number_of_shards=7)
    _, differing = await store.register_types([changed])
    assert differing == {CART.name: CART}
    await asyncio.to_thread(remove_data, params, [CART.name])
    numbers, differing = await store.register_types([changed])
    assert (numbers[CART.name], differing) == (before[CART.name], {})
    _, differing = await store.register_types([CART])
    assert differing == {CART.name: msgspec.structs.replace(changed, revision=1)}
    await store.close()
    await journal.close()


async def test_a_join_waits_for_the_removal_and_comes_after_it(params: dict[str, Any]) -> None:
    store, journal = await ran_once(params)
    async with await connect(params) as removing:
        async with removing.transaction():
            await removing.execute("LOCK TABLE sharding_node IN SHARE ROW EXCLUSIVE MODE")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                await asyncio.to_thread(remove_data, params)
        await store.join(member("b"), (13, 14))
    await store.close()
    await journal.close()
