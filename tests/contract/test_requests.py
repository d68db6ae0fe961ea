"""What operators and the application ask of the cluster is a row (`ports.store`), and a node's
lifeline sees it.
"""

import pytest

from sharding_app.ports.store import StaleTerm
from sharding_app.protocol.records import NumberOfWorkers
from tests.contract.factories import World
from tests.support.given import CART, elected, joined, member, with_type

pytestmark = pytest.mark.asyncio


async def test_a5_1_there_are_no_locations_before_any_was_said(world: World) -> None:
    store = world.store()
    assert await store.locations(CART.name) is None
    assert not await store.locate(CART.name, {1: "node-a"})
    await with_type(store)
    assert await store.locations(CART.name) == (0, {})


async def test_locations_are_kept_and_changed(world: World) -> None:
    store = world.store()
    await with_type(store)
    assert await store.locate(CART.name, {7: "node-a", 3: "a node that is not there yet"})
    assert await store.locations(CART.name) == (1, {3: "a node that is not there yet", 7: "node-a"})
    assert await store.locate(CART.name, {7: "node-b"})
    assert await world.store().locations(CART.name) == (2, {3: "a node that is not there yet", 7: "node-b"})


async def test_who_knows_the_last_change_is_told_nothing(world: World) -> None:
    store = world.store()
    await with_type(store)
    await store.locate(CART.name, {1: "node-a"})
    assert await store.locations(CART.name, 0) == (1, {1: "node-a"})
    assert await store.locations(CART.name, 1) is None


async def test_a_set_of_workers_keeps_the_number_that_the_first_node_says(world: World) -> None:
    store = world.store()
    await store.introduce_workers({CART.name: 4})
    assert await store.workers() == [], "the cluster knows no such type yet"
    await with_type(store)
    assert await store.rescale(CART.name, 8) is None, "it is no set of workers"
    await store.introduce_workers({CART.name: 4})
    await world.store().introduce_workers({CART.name: 7})
    assert await store.workers() == [NumberOfWorkers(CART.name, 4, 4)]


async def test_a_rescale_is_wished_by_anyone_and_put_in_force_by_the_coordinator(world: World) -> None:
    store = world.store()
    await with_type(store)
    await store.introduce_workers({CART.name: 4})
    wished = await world.store().rescale(CART.name, 8, "the operator")
    assert wished == NumberOfWorkers(CART.name, 4, 8)
    assert wished.rescaling
    assert await store.workers() == [wished]
    term = await elected(world)
    with pytest.raises(StaleTerm):
        await store.put_in_force(term - 1, wished)
    await store.rescale(CART.name, 6)
    in_force = NumberOfWorkers(CART.name, 6, 6, 1)
    assert await store.put_in_force(term, wished) == in_force, "what is wished last counts"
    assert await store.put_in_force(term, wished) is None, "it had another revision then"
    assert await store.workers() == [in_force]


async def test_a_request_stands_in_the_members_row_until_it_is_taken_back(world: World) -> None:
    store = world.store()
    await store.join(member("a"), (1, 2))
    await store.join(member("b"), (3, 4))
    assert [each.asked for each in (await store.members())[1]] == [None, None]
    assert await store.ask_to("leave", ["b", "nobody"]) == ["b"]
    assert [each.asked for each in (await store.members())[1]] == [None, "leave"]
    assert await store.ask_to("prepare", ["a", "b"]) == ["a", "b"]
    await store.update_member("a", state="leaving")
    assert [each.asked for each in (await store.members())[1]] == ["prepare", "prepare"]
    assert await store.ask_to(None, ["a", "b"]) == ["a", "b"]
    assert [each.asked for each in (await store.members())[1]] == [None, None]


async def test_joining_again_does_not_forget_a_request(world: World) -> None:
    store = world.store()
    await store.join(member("a"), (1, 2))
    await store.ask_to("stop", ["a"])
    await store.join(member("a"), (1, 2))
    assert [each.asked for each in (await store.members())[1]] == ["stop"]


async def test_a_nodes_own_news_hold_the_request_and_others_do_not(world: World) -> None:
    store = world.store()
    await joined(world, store, "a")
    await joined(world, store, "b")
    assert (await store.news("a")).asked is None
    await store.ask_to("leave", ["a"])
    assert [(await store.news(each)).asked for each in ("a", "b")] == ["leave", None]
