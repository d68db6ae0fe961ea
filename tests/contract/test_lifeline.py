"""What every lifeline session does (`ports.lifeline`)."""

import asyncio

import pytest

from sharding_app.ports.lifeline import SessionLost
from sharding_app.protocol.records import CoordinatorRow, News
from tests.contract.factories import World
from tests.support.given import joined, member, until
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio


async def test_a_lock_is_held_by_one_session_at_a_time(world: World) -> None:
    first, second = world.session("a"), world.session("b")
    await first.open()
    await second.open()
    assert await first.lock(11)
    assert not await second.lock(11)
    assert await second.lock(12)
    await first.unlock(11)
    assert await second.lock(11)


@pytest.mark.parametrize("key", [0, -1, 1, 2**63 - 1, -(2**63), 2**32, -(2**31)])
async def test_keys_are_any_64_bits(world: World, key: int) -> None:
    store = world.store()
    session = world.session()
    await session.open()
    await store.join(member("a"), (key, 99))
    assert await session.lock(key)
    assert [each.locks for each in (await store.members())[1]] == [1]


async def test_the_end_of_a_session_frees_its_locks(world: World) -> None:
    first, second = world.session("a"), world.session("b")
    backend = await first.open()
    await second.open()
    assert await first.lock(11)
    await world.end(backend)

    async def freed() -> bool:
        return await second.lock(11)

    await until(freed)
    with pytest.raises(SessionLost):
        await first.ping()


async def test_after_a_loss_only_open_helps(world: World) -> None:
    session = world.session()
    with pytest.raises(SessionLost):
        await session.ping()
    former = await session.open()
    await session.ping()
    await world.end(former)
    for _ in range(2):
        with pytest.raises(SessionLost):
            await session.lock(11)
    assert await session.open() != former
    assert await session.lock(11)


async def test_open_on_an_open_session_gives_up_the_former(world: World) -> None:
    session, other = world.session("a"), world.session("b")
    await session.open()
    await other.open()
    assert await session.lock(11)
    await session.open()

    async def freed() -> bool:
        return await other.lock(11)

    await until(freed)


async def test_close_frees_all_and_may_be_repeated(world: World) -> None:
    session, other = world.session("a"), world.session("b")
    await session.open()
    await other.open()
    assert await session.lock(11)
    await session.close()
    await session.close()

    async def freed() -> bool:
        return await other.lock(11)

    await until(freed)
    with pytest.raises(SessionLost):
        await session.unlock(11)


async def test_a_pulse_shows_the_server_and_the_coordinator(world: World) -> None:
    store = world.store()
    sessions = await joined(world, store, "a")
    pulse = await sessions[1].ping()
    assert pulse.server == (await store.members())[0]
    assert not pulse.coordinator_locked
    assert await store.news("a") == News(0, None, None, "up", False)
    term = await sessions[0].elect("a")
    assert term is not None
    assert (await sessions[0].ping()).coordinator_locked
    assert (await sessions[1].ping()).coordinator_locked
    assert await store.coordinator() == CoordinatorRow(term, "a")
    assert await store.news("a") == News(term, "a", None, "up", False)
    await store.ask_to("leave", ["a"])
    assert await store.news("a") == News(term, "a", "leave", "up", False)
    assert await store.update_member("a", state="leaving", deaf=True)
    assert await store.news("a") == News(term, "a", "leave", "leaving", True)
    assert await store.news("stranger") == News(term, "a", None, None, False)
    await sessions[0].resign()
    assert not (await sessions[0].ping()).coordinator_locked
    assert not (await sessions[1].ping()).coordinator_locked


async def test_the_holder_is_elected_once(world: World) -> None:
    store = world.store()
    sessions = await joined(world, store, "a")
    term = await sessions[0].elect("a")
    assert term is not None
    assert await sessions[0].elect("a") == term
    await sessions[0].resign()
    await sessions[0].resign()
    assert await sessions[0].elect("a") == term + 1


async def test_every_election_raises_the_term(world: World) -> None:
    store = world.store()
    first = await joined(world, store, "a")
    second = await joined(world, store, "b")
    term = await first[0].elect("a")
    assert term is not None
    assert await second[0].elect("b") is None
    for session in first:
        await session.close()

    async def takes_over() -> bool:
        return await second[0].elect("b") == term + 1

    await until(takes_over)
    assert await store.coordinator() == CoordinatorRow(term + 1, "b")


async def test_a_younger_candidate_leaves_the_lock_to_an_older_live_one(world: World) -> None:
    store = world.store()
    older = await joined(world, store, "older")
    younger = await joined(world, store, "younger")
    youngest = await joined(world, store, "youngest")
    assert await younger[0].elect("younger") is None
    assert younger[0].older == 1
    assert await youngest[0].elect("youngest") is None
    assert youngest[0].older == 2
    assert not (await younger[0].ping()).coordinator_locked
    assert await older[0].elect("older") is not None


@pytest.mark.parametrize(
    "changes", [{"candidate": False}, {"state": "joining"}, {"state": "leaving"}, {"deaf": True}]
)
async def test_an_older_one_that_may_not_lead_is_no_hindrance(
    world: World, changes: dict[str, object]
) -> None:
    store = world.store()
    await joined(world, store, "older", **changes)
    younger = await joined(world, store, "younger")
    assert await younger[0].elect("younger") is not None


async def test_an_older_one_with_one_lock_is_no_hindrance(world: World) -> None:
    store = world.store()
    older = await joined(world, store, "older")
    younger = await joined(world, store, "younger")
    await older[1].close()

    async def elected() -> bool:
        return await younger[0].elect("younger") is not None

    await until(elected)


async def test_a_lost_session_loses_the_election_with_it(world: World) -> None:
    store = world.store()
    sessions = await joined(world, store, "a")
    term = await sessions[0].elect("a")
    assert term is not None
    await sessions[0].close()
    await sessions[0].open()

    async def elected_again() -> bool:
        return await sessions[0].elect("a") == term + 1

    await until(elected_again)


async def test_an_end_that_came_before_the_watch_is_heard(world: World) -> None:
    session = world.session()
    await world.end(await session.open())
    heard = asyncio.Event()
    ends = session.watch(heard.set)
    await asyncio.wait_for(heard.wait(), 5 * SLACK)
    ends()
    with pytest.raises(SessionLost):
        await session.ping()
