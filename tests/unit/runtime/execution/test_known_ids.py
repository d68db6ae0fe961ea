"""Ids of commands that are kept in memory: a fresh one costs no look-up, and one that may not be
fresh always does.
"""

import asyncio
from typing import Any

import pytest

from sharding_app.adapters.memory import MemoryJournal
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Cart, HotCart, Profile
from tests.unit.runtime.waiting import travel

pytestmark = pytest.mark.asyncio

WINDOW = 60.0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that the journal was asked for."""
    found: list[str] = []
    outcome = MemoryJournal.outcome

    async def noted(self: MemoryJournal, type_id: int, entity: str, command_id: str, age_ms: int) -> Any:
        found.append(command_id)
        return await outcome(self, type_id, entity, command_id, age_ms)

    monkeypatch.setattr(MemoryJournal, "outcome", noted)
    return found


def windowed(*types: type[Any], nodes: int = 1) -> MemoryCluster:
    return MemoryCluster(list(types), nodes=nodes, config=NodeConfig(command_window_seconds=WINDOW))


@pytest.mark.parametrize("kind", [Cart, HotCart])
async def test_of_a_new_entity_no_fresh_id_is_asked_for(kind: type[Cart], asked: list[str]) -> None:
    async with windowed(kind) as cluster:
        with cluster.in_use():
            for number in range(1, 10):
                assert await kind.ref("a", command_id=f"c{number}").add("book") == number
            assert asked == []
            assert await kind.ref("a", command_id="c3").add("book") == 3
            assert asked == ["c3"]


async def test_of_a_durable_state_neither(asked: list[str]) -> None:
    async with windowed(Profile) as cluster:
        with cluster.in_use():
            assert await Profile.ref("a", command_id="c1").visit() == 1
            assert await Profile.ref("a", command_id="c2").visit() == 2
            assert await Profile.ref("a", command_id="c1").visit() == 1
            assert asked == ["c1"]


async def test_after_a_recovery_every_id_is_asked_for_until_the_window_has_passed(asked: list[str]) -> None:
    """What a former home, or the entity's former object, has stored in that time is not known
    here.
    """
    async with windowed(Cart) as cluster:
        with cluster.in_use():
            assert await Cart.ref("a", command_id="before").add("book") == 1
            cluster.forget()
            assert await Cart.ref("a", command_id="one").add("book") == 2
            assert await Cart.ref("a", command_id="before").add("book") == 1
            assert asked == ["one", "before"]
            await travel(WINDOW * 1.2)
            assert await Cart.ref("a", command_id="two").add("book") == 3
            assert asked == ["one", "before"]


async def test_after_a_move(asked: list[str]) -> None:
    async with windowed(Cart, nodes=2) as cluster:
        with cluster.in_use():
            once = Cart.ref("a", command_id="once")
            assert await once.add("book") == 1
            await cluster.stop_node(cluster.home_of(Cart, "a"))
            assert await once.add("book") == 1
            assert asked == ["once"]


async def test_a_commit_that_failed_leaves_its_id_to_be_asked_for(asked: list[str]) -> None:
    async with windowed(Cart) as cluster:
        with cluster.in_use():
            once = Cart.ref("a", command_id="once")
            await Cart.ref("a").total()
            cluster.fail_next_write(Cart, "a")
            with pytest.raises(Exception, match="write"):
                await once.add("book")
            assert await once.add("book") == 1
            assert asked == ["once"]


async def test_two_attempts_at_once_take_effect_once(asked: list[str]) -> None:
    async with windowed(HotCart) as cluster:
        with cluster.in_use():
            await HotCart.ref("a").total()
            once = HotCart.ref("a", command_id="once")
            assert await asyncio.gather(*(once.add("book") for _ in range(5))) == [1] * 5
            assert len(asked) == 4
