"""Many entities are asked at once, and the ids of a type are listed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, cast

import pytest

from sharding_app import (
    Answers,
    AskTimeout,
    BufferFull,
    Entity,
    InvalidCall,
    Rejected,
    ShardingError,
    Unavailable,
    WrongContext,
    query,
)
from sharding_app.protocol.messages import Answer, AnyMessage, Deliver
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Cart, Profile

pytestmark = pytest.mark.asyncio


async def filled(*ids: str) -> None:
    for number, each in enumerate(ids, 1):
        await Cart.ref(each).add("book", number)


async def all_of(ids: list[str], timeout: float) -> Answers[int]:
    return await Cart.ask_many(ids, timeout=timeout)(Cart.total)


async def test_each_id_has_its_own_answer(cluster: MemoryCluster) -> None:
    await filled("a", "b")
    answers = await Cart.ask_many(["a", "b", "none"]).total()
    assert answers == {"a": 1, "b": 2, "none": 0}
    assert answers.errors == {}


async def test_a_handler_is_named_by_its_class_too(cluster: MemoryCluster) -> None:
    answers = await Cart.ask_many(["a", 7])(Cart.add, "book", quantity=3)
    assert answers == {"a": 3, "7": 3}
    assert answers[7] == 3, "an id as it was given"
    with pytest.raises(InvalidCall, match="takes a handler of Cart"):
        Cart.ask_many(["a"])(Profile.show)
    with pytest.raises(AttributeError, match="has no command or query 'totall'"):
        Cart.ask_many(["a"]).totall()


async def test_refs_are_ids_and_an_id_is_asked_once(cluster: MemoryCluster) -> None:
    answers = await Cart.ask_many([Cart.ref("a"), "a", "a"]).add("book")
    assert answers == {"a": 1}
    with pytest.raises(InvalidCall, match="no ref of Cart"):
        await Cart.ask_many([Profile.ref("a")]).total()


async def test_an_error_is_of_its_id_alone(cluster: MemoryCluster) -> None:
    await filled("a")
    answers = await Cart.ask_many(["a", "b"]).add("book", 0)
    assert set(answers.errors) == {"a", "b"}
    assert not answers
    with pytest.raises(Rejected, match="quantity must be at least 1"):
        answers["a"]
    with pytest.raises(KeyError):
        answers["c"]


class Loose(Entity, name="many.Loose"):
    """A query's result is not checked at the entity."""

    @query
    def number(self) -> int:
        return cast(int, "two") if self.entity_id == "b" else 1


async def test_a_result_that_does_not_fit_is_of_its_id_alone() -> None:
    async with MemoryCluster([Loose]) as cluster:
        with cluster.in_use():
            answers = await Loose.ask_many(["a", "b", "c"]).number()
            assert answers == {"a": 1, "c": 1}
            for error in (answers.errors["b"], await failure(Loose.ref("b").number())):
                assert "many.Loose.number: its result does not fit the annotation" in str(error)
                assert error.stored == "unknown"


async def failure(asked: Awaitable[object]) -> ShardingError:
    with pytest.raises(ShardingError) as raised:
        await asked
    return raised.value


async def test_one_that_is_late_holds_no_other_up(cluster: MemoryCluster) -> None:
    late = asyncio.ensure_future(Cart.ref("late").slow_add("book", 100))
    await asyncio.sleep(0)
    answers = await Cart.ask_many(["late", "a"], timeout=2).total()
    assert answers == {"a": 0}
    assert isinstance(answers.errors["late"], AskTimeout)
    late.cancel()


async def test_each_is_yielded_with_its_id(cluster: MemoryCluster) -> None:
    await filled("a", "b")

    async def ids() -> AsyncIterator[str]:
        for each in ("a", "b", "a"):
            yield each

    found = [each async for each in Cart.ask_many(ids(), at_a_time=2).total()]
    assert [(each.entity_id, each.value) for each in found] == [("a", 1), ("b", 2), ("a", 1)]


async def test_a_piece_is_taken_before_the_next_is_read(cluster: MemoryCluster) -> None:
    read: list[int] = []

    def ids() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    async for each in Cart.ask_many(ids(), at_a_time=10).total():
        if each.entity_id == "14":
            break
    assert len(read) == 20


async def test_a_home_gets_one_frame_and_answers_in_one(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.add_node()
    ids = [str(number) for number in range(60)]
    await Cart.ask_many(ids).total()  # homes are known, and entities in memory
    frames: list[tuple[str, str, int]] = []
    for process in (cluster.client, *cluster.nodes.values()):

        def take(
            source: str, messages: list[AnyMessage], process: Any = process, taken: Any = process._deliver
        ) -> None:
            kinds = {type(each) for each in messages} & {Deliver, Answer}
            frames.extend((source, process.incarnation, len(messages)) for _ in kinds)
            taken(source, messages)

        monkeypatch.setattr(process.links, "_deliver", take)
    assert len(await Cart.ask_many(ids).total()) == 60
    assert max(Counter((source, target) for source, target, _ in frames).values()) == 1
    assert sum(count for *_, count in frames) == 120


async def test_ids_survive_the_death_of_a_home(cluster: MemoryCluster) -> None:
    await cluster.add_node("second")
    ids = [str(number) for number in range(40)]
    await filled(*ids)
    asked = asyncio.ensure_future(all_of(ids, timeout=60))
    await asyncio.sleep(0)
    await cluster.kill_node("second")
    answers = await asked
    assert answers == {each: number for number, each in enumerate(ids, 1)}


async def test_a_command_id_holds_for_each_entity(cluster: MemoryCluster) -> None:
    for _ in range(2):
        assert await Cart.ask_many(["a", "b"], command_id="once").add("book") == {"a": 1, "b": 1}


@pytest.mark.parametrize("wrong", ["abc", b"abc", 7, None])
async def test_ids_are_a_collection(cluster: MemoryCluster, wrong: Any) -> None:
    with pytest.raises(InvalidCall, match="takes ids or refs"):
        Cart.ask_many(wrong)


async def test_options_are_checked(cluster: MemoryCluster) -> None:
    with pytest.raises(InvalidCall, match="at_a_time must be an int"):
        Cart.ask_many([], at_a_time=0)
    with pytest.raises(InvalidCall, match="timeout must be"):
        Cart.ask_many([], timeout=0)
    with pytest.raises(WrongContext, match="would block the event loop"):
        Cart.ask_many(["a"]).sync.total()
    assert await Cart.ask_many([]).total() == {}


async def test_without_a_loop_it_blocks(cluster: MemoryCluster) -> None:
    await filled("a", "b")
    answers = asyncio.to_thread(lambda: Cart.ask_many(["a", "b", "a"], at_a_time=1).sync.total())
    assert await answers == {"a": 1, "b": 2}
    listed = asyncio.to_thread(lambda: [each.entity_id for each in Cart.refs()])
    assert await listed == ["a", "b"]


async def test_calls_beyond_the_limit_are_refused_one_by_one(cluster: MemoryCluster) -> None:
    limits = cluster.portal._limits
    cluster.portal._limits = type(limits)(max_calls=2)
    there: Any = cluster.portal.process
    cluster.portal.left("away")
    asked = asyncio.ensure_future(all_of(["a", "b", "c"], timeout=20))
    await asyncio.sleep(0)
    cluster.portal.joined(there)
    answers = await asked
    assert answers == {"a": 0, "b": 0}
    assert isinstance(answers.errors["c"], BufferFull)


async def test_each_id_has_an_error_when_the_process_has_left(cluster: MemoryCluster) -> None:
    cluster.portal.close("it has left")
    answers = await asyncio.to_thread(lambda: Cart.ask_many(["a", "b"]).sync.total())
    assert not answers
    assert {type(each) for each in answers.errors.values()} == {Unavailable}
    assert len(answers.errors) == 2


async def test_one_that_asks_is_no_value(cluster: MemoryCluster) -> None:
    many = Cart.ask_many(["a"])
    for each in (many, many.sync):
        with pytest.raises(AttributeError):
            each.__deepcopy__  # noqa: B018
    assert repr(many.total()) == "<Cart.ask_many(...).total(...), not asked yet>"
    assert repr(Cart.refs(prefix="a", stored=False)) == "Cart.refs(prefix='a', stored=False)"
