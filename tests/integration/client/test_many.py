"""Many entities from a process that only asks: real nodes, PostgreSQL, every kind of loop."""

import asyncio

from project.shop.entities import Cart
from sharding_app import AskTimeout, Rejected
from tests.support.live import Live

IDS = [f"many-{number:03}" for number in range(120)]


def test_many_are_asked_and_listed_from_both_sides(client: Live) -> None:
    answers = Cart.ask_many(IDS).sync(Cart.add, "a", 2)
    assert answers == dict.fromkeys(IDS, 2)

    async def main() -> None:
        asked = await Cart.ask_many([*IDS, "many-none"], at_a_time=50)(Cart.total)
        assert asked == {**dict.fromkeys(IDS, 2), "many-none": 0}
        assert not asked.errors
        listed = [each.entity_id async for each in Cart.refs(prefix="many-")]
        assert listed == IDS, "one that has stored nothing is not in it"
        in_memory = [each.entity_id async for each in Cart.refs(prefix="many-", stored=False)]
        assert sorted(in_memory) == [*IDS, "many-none"]
        total = 0
        async for answer in Cart.ask_many(Cart.refs(prefix="many-0"), at_a_time=7)(Cart.total):
            total += answer.value
        assert total == 200

    asyncio.run(main())
    assert [each.entity_id for each in Cart.refs(prefix="many-00")] == IDS[:10]


def test_each_of_many_fails_by_itself(client: Live) -> None:
    answers = Cart.ask_many(["many-x", "many-y"], timeout=20).sync(Cart.add, "a", 0)
    assert {type(each) for each in answers.errors.values()} <= {Rejected, AskTimeout}
    assert list(answers.errors) == ["many-x", "many-y"]
