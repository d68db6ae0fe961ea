"""The entities of a type are listed: those that have stored something, or those in memory."""

from typing import Any

import pytest

from sharding_app import InvalidCall, WrongContext
from sharding_app.adapters.memory import MemoryJournal
from sharding_app.entities.listing import Refs
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Cart, Profile, Room

pytestmark = pytest.mark.asyncio


async def filled(*ids: str) -> None:
    for each in ids:
        await Cart.ref(each).add("book")


async def listed(**options: Any) -> list[str]:
    return [each.entity_id async for each in Cart.refs(**options)]


async def test_what_has_stored_something_is_listed_in_order(cluster: MemoryCluster) -> None:
    await cluster.add_node()
    await filled("b", "aé", "a", "a-1", "a-2", "ab", "\U0001f600", "z")
    await Cart.ref("c").total()
    await Profile.ref("p").rename("Ann")
    assert await listed() == ["a", "a-1", "a-2", "ab", "aé", "b", "z", "\U0001f600"]
    assert await listed(prefix="a-") == ["a-1", "a-2"]
    assert await listed(prefix="x") == []
    assert [each.entity_id async for each in Profile.refs()] == ["p"]
    async for ref in Cart.refs(prefix="b"):
        assert await ref.total() == 1


async def test_pages_follow_one_another(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Refs, "page_ids", 3)
    ids = [f"{number:02}" for number in range(9)]
    await filled(*ids)
    assert await listed() == ids
    assert await listed(prefix="0") == ids


async def test_the_journal_may_be_away_for_a_while(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled("a")
    real, failures = MemoryJournal.ids, iter(range(3))

    async def ids(self: MemoryJournal, *args: Any) -> list[str]:
        for _ in failures:
            raise JournalUnavailable("the server is away")
        return await real(self, *args)

    monkeypatch.setattr(MemoryJournal, "ids", ids)
    assert await listed() == ["a"]
    assert next(failures, None) is None


async def test_what_is_in_memory_is_listed_from_all_nodes(cluster: MemoryCluster) -> None:
    await cluster.add_node()
    ids = [f"x{number}" for number in range(20)]
    await Cart.ask_many([*ids, "y"]).total()
    found = await listed(prefix="x", stored=False)
    assert sorted(found) == sorted(ids)
    cluster.forget(Cart)
    assert await listed(stored=False) == []
    await Room.ref("t").enter()
    assert [each.entity_id async for each in Room.refs(stored=False)] == ["t"]


async def test_a_type_without_a_journal_has_nothing_stored(cluster: MemoryCluster) -> None:
    with pytest.raises(InvalidCall, match="stores nothing"):
        Room.refs()


async def test_a_loop_over_refs_does_not_block_an_event_loop(cluster: MemoryCluster) -> None:
    with pytest.raises(WrongContext, match="async for"):
        iter(Cart.refs())


@pytest.mark.parametrize("wrong", ["a\0", "\ud800", "x" * 513, 7, None])
async def test_a_prefix_is_the_beginning_of_an_id(cluster: MemoryCluster, wrong: Any) -> None:
    with pytest.raises(InvalidCall, match="prefix"):
        Cart.refs(prefix=wrong)
