"""What leases promise, in memory and in Postgres alike."""

import asyncio

import pytest

from sharding_app.ports.lease import Leases
from tests.contract.factories import World
from tests.support.given import joined
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio

LONG = 60.0
SHORT = 2.0 * SLACK


async def members(world: World, *names: str) -> None:
    store = world.store("observer")
    for name in names:
        await joined(world, store, name)


async def test_one_holder_at_a_time(world: World) -> None:
    await members(world, "n-1", "n-2")
    first, second = world.leases("n-1", LONG), world.leases("n-2", LONG)
    assert list(await first.acquire(["a"])) == ["a"]
    assert list(await second.acquire(["a", "b"])) == ["b"]
    assert list(await first.acquire(["b", "a"])) == ["a"], "its own is granted again"
    await second.release(["a"])
    assert list(await second.acquire(["a"])) == [], "a client gives back none but its own leases"
    await first.release(["a", "c"])
    assert list(await second.acquire(["a"])) == ["a"]
    assert list(await first.renew(["a"])) == []


async def test_many_want_one_at_once(world: World) -> None:
    names = [f"n-{number}" for number in range(8)]
    await members(world, *names)
    wanted = ["a", "b", "c"]
    granted = await asyncio.gather(*(world.leases(each, LONG).acquire(wanted) for each in names))
    assert sorted(name for each in granted for name in each) == wanted


async def eventually(leases: Leases, name: str) -> None:
    """Ask for a lease until it is granted."""
    loop = asyncio.get_running_loop()
    end = loop.time() + 30.0 * SLACK
    while not await leases.acquire([name]):
        assert loop.time() < end
        await asyncio.sleep(0.05)


async def test_time_over_is_free_and_renewing_prolongs_it(world: World) -> None:
    await members(world, "n-1", "n-2", "n-3")
    first, left, third = world.leases("n-1", LONG), world.leases("n-2", SHORT), world.leases("n-3", LONG)
    await third.acquire(["another"])  # it has its connection by now
    await first.acquire(["kept"])
    await left.acquire(["left", "left too"])
    assert list(await left.renew(["left"])) == ["left"], "the time of the other one is prolonged as well"
    assert list(await third.acquire(["left", "left too"])) == []
    await eventually(third, "left")
    assert list(await first.renew(["kept"])) == ["kept"]
    assert list(await third.acquire(["kept"])) == []
    assert sorted(await left.renew(["left", "left too"])) == ["left too"], "the other is lost"
    assert list(await third.acquire(["left too"])) == []


async def test_a_process_without_a_row_has_its_leases_for_their_time(world: World) -> None:
    """It is no node (yet). What it has taken it cannot renew."""
    await members(world, "n-2")
    first, second = world.leases("n-1", SHORT), world.leases("n-2", LONG)
    await second.acquire(["another"])  # it has its connection by now
    assert list(await first.acquire(["a"])) == ["a"]
    assert list(await second.acquire(["a"])) == []
    assert list(await first.renew(["a"])) == []
    await eventually(second, "a")


async def test_an_owner_whose_time_is_over_renews_or_loses_and_never_both(world: World) -> None:
    """Its renewal and the request of another node for the same lease come at the same time."""
    names = [f"n-{number}" for number in range(8)]
    await members(world, "heir", *names)
    seconds = 3.0
    former = {name: world.leases(name, seconds) for name in names}
    for name, each in former.items():
        assert list(await each.acquire([name])) == [name]
    await asyncio.sleep(seconds)
    heirs = {name: world.leases("heir", LONG) for name in names}

    async def both(name: str) -> int:
        renewed, taken = await asyncio.gather(former[name].renew([name]), heirs[name].acquire([name]))
        return len([*renewed, *taken])

    assert await asyncio.gather(*map(both, names)) == [1] * len(names), "one of them has it"


async def test_a_lease_that_its_node_does_not_know_of_is_freed_by_a_renewal(world: World) -> None:
    """Its request was executed after the node had given it back."""
    await members(world, "n-1", "n-2")
    first, late, second = world.leases("n-1", SHORT), world.leases("n-1", SHORT), world.leases("n-2", LONG)
    await first.acquire(["known"])
    await late.acquire(["late"])
    loop = asyncio.get_running_loop()
    end = loop.time() + 30.0 * SLACK
    while not await second.acquire(["late"]):
        assert list(await first.renew(["known"])) == ["known"]
        assert loop.time() < end
        await asyncio.sleep(0.05)
    assert list(await second.acquire(["known"])) == []


async def test_late_but_not_taken_is_still_ones_own(world: World) -> None:
    await members(world, "n-1")
    leases = world.leases("n-1", 0.05)
    await leases.acquire(["a"])
    await asyncio.sleep(0.1)
    assert list(await leases.renew(["a"])) == ["a"]


async def test_a_holder_without_a_row_is_waited_for_as_long_as_it_may_live(world: World) -> None:
    """It was taken for dead, and perhaps it is not: its own lease is over within a node's TTL,
    whatever it hears.
    """
    await members(world, "n-1", "n-2")
    former = world.leases("n-1", LONG)
    heir, hasty = world.leases("n-2", LONG, 0.4), world.leases("n-2", LONG, LONG / 2)
    await former.acquire(["a"])
    assert list(await heir.acquire(["a"])) == []
    await world.store("observer").leave("n-1")
    assert list(await former.renew(["a"])) == [], "the holder learns of it"
    assert list(await hasty.acquire(["a"])) == []
    assert list(await heir.acquire(["a"])) == []
    loop = asyncio.get_running_loop()
    end = loop.time() + 10.0 * SLACK
    while not await heir.acquire(["a"]):
        assert loop.time() < end
        await asyncio.sleep(0.05)
    assert list(await former.renew(["a"])) == []


async def test_an_earlier_grant_neither_renews_nor_releases_a_later_one(world: World) -> None:
    """A statement may still be executed after its sender has given up on it."""
    await members(world, "n-1", "n-2")
    late, now = world.leases("n-1", LONG), world.leases("n-1", LONG)
    await late.acquire(["a"])
    await now.acquire(["a"])
    assert list(await late.renew(["a"])) == []
    await late.release(["a"])
    assert list(await now.renew(["a"])) == ["a"]
    assert list(await world.leases("n-2", LONG).acquire(["a"])) == []


async def test_what_may_have_been_granted_without_an_answer_can_be_given_back(world: World) -> None:
    await members(world, "n-1", "n-2")
    await world.leases("n-1", LONG).acquire(["a"])
    await world.leases("n-1", LONG).release(["a"])
    assert list(await world.leases("n-2", LONG).acquire(["a"])) == ["a"]


async def test_nothing_of_nothing(world: World) -> None:
    leases = world.leases("n-1", LONG)
    assert list(await leases.acquire([])) == []
    assert list(await leases.renew(["never had"])) == []
    await leases.release([])
    await leases.close()
