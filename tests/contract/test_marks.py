"""Marks of messages whose rows lie in another journal: made with events or not at all, once, and
removed by the home of their shard, on PostgreSQL and on the virtual server.
"""

from typing import Any

import pytest

from sharding_app.ports.deliveries import MessageChanges, MessagesGone, Taking
from sharding_app.ports.journal import Erasure, Journal, RowRefused, ShardsFenced
from sharding_app.protocol.delivery.foreign import Standing
from sharding_app.protocol.records import HomeChange
from tests.contract.factories import World
from tests.support.given import CART, event_row, homed, message

pytestmark = pytest.mark.asyncio

ELSEWHERE = "journal_b"


def foreign(name: str, type_id: int, *, shard: int = 0, epoch: int = 1, **fields: Any) -> Taking:
    return Taking(name, foreign=ELSEWHERE, taker=(type_id, shard, epoch, "a"))._replace(**fields)


async def take(journal: Journal, type_id: int, seq: int, *takes: Taking, **fields: Any) -> None:
    await journal.append([event_row(type_id, "a", seq, **fields)], MessageChanges(takes=takes))


async def refused(journal: Journal, type_id: int, seq: int, *takes: Taking) -> MessagesGone:
    """Append what may not be appended, and see that nothing of it was stored."""
    with pytest.raises(MessagesGone) as found:
        await take(journal, type_id, seq, *takes)
    assert await journal.last_seq(type_id, "a") == seq - 1
    return found.value


async def marks(journal: Journal, type_id: int, *shards: int) -> list[str]:
    return [each.id for each in await journal.marks([(type_id, each) for each in shards or (0, 1)], "", 100)]


async def test_a_message_of_another_journal_is_marked_with_the_events_and_once(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await take(journal, type_id, 1, foreign("m", type_id))
    (found,) = await journal.marks([(type_id, 0)], "", 100)
    assert found[:5] == ("m", type_id, 0, ELSEWHERE, False)
    assert 0.0 <= found.age < 60.0
    gone = await refused(journal, type_id, 2, foreign("m", type_id))
    assert gone.marked == {"m": False}
    assert gone.ids == {"m"}
    assert not gone.gone


async def test_an_append_that_is_refused_marks_nothing(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await take(journal, type_id, 1, foreign("m", type_id))
    with pytest.raises(RowRefused):
        await take(journal, type_id, 1, foreign("n", type_id))
    await refused(journal, type_id, 2, foreign("o", type_id), foreign("m", type_id))
    assert await marks(journal, type_id) == ["m"]


async def waiting(journal: Journal, type_id: int) -> list[str]:
    found = await journal.due([(type_id, 0), (type_id, 1)], 60.0, 100)
    return sorted(each.id for each in found.messages)


async def test_an_append_takes_rows_of_here_and_of_elsewhere(world: World) -> None:
    """It stores messages beside them."""
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.stage([message(type_id, "here"), message(type_id, "kept")])
    changes = MessageChanges([message(type_id, "reply")], takes=[foreign("there", type_id), Taking("here")])
    assert await journal.append([event_row(type_id, "a", 1)], changes) is not None
    assert await waiting(journal, type_id) == ["kept", "reply"]
    assert await marks(journal, type_id) == ["there"]
    gone = await refused(journal, type_id, 2, Taking("here"), foreign("new", type_id))
    assert gone.gone == {"here"}
    assert await marks(journal, type_id) == ["there"]


async def test_a_reply_without_events_leaves_a_mark_and_is_stored_once(world: World) -> None:
    """An entity in memory may hear a message twice, and replies once."""
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.stage([message(type_id, "reply")], takes=[foreign("m", type_id)])
    assert await marks(journal, type_id) == ["m"]
    with pytest.raises(MessagesGone) as found:
        await journal.stage([message(type_id, "another")], takes=[foreign("m", type_id)])
    assert found.value.marked == {"m": False}
    assert await waiting(journal, type_id) == ["reply"]
    with pytest.raises(ShardsFenced):
        await journal.stage([message(type_id, "late", epoch=2)], takes=[foreign("n", type_id, epoch=2)])
    assert await marks(journal, type_id) == ["m"]


async def test_a_row_that_has_come_with_its_shard_goes_with_the_mark(world: World) -> None:
    """The delivery began while the row lay in another journal: here it would take effect again."""
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.stage([message(type_id, each) for each in "mno"])
    await take(journal, type_id, 1, foreign("m", type_id), foreign("n", type_id, park=True))
    assert await waiting(journal, type_id) == ["n", "o"], "the handler of one has not ended"
    await take(journal, type_id, 2, foreign("n", type_id, resumed=True))
    assert await waiting(journal, type_id) == ["o"]
    assert (await refused(journal, type_id, 3, Taking("m"))).gone == {"m"}
    assert await marks(journal, type_id) == ["m", "n"]


async def test_a_commit_in_the_middle_leaves_a_partial_mark_for_its_own_handler(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await take(journal, type_id, 1, foreign("m", type_id, park=True))
    assert (await refused(journal, type_id, 2, foreign("m", type_id))).marked == {"m": True}
    assert (await refused(journal, type_id, 2, foreign("m", type_id, park=True))).marked == {"m": True}
    await take(journal, type_id, 2, foreign("m", type_id, park=True, resumed=True))
    assert await journal.marked(["m", "x"]) == {"m": True}
    await take(journal, type_id, 3, foreign("m", type_id, resumed=True))
    assert await journal.marked(["m", "x"]) == {"m": False}
    assert (await refused(journal, type_id, 4, foreign("m", type_id, resumed=True))).marked == {"m": False}
    assert (await refused(journal, type_id, 4, foreign("x", type_id, resumed=True))).gone == {"x"}


async def test_a_mark_is_fenced_as_events_are(world: World) -> None:
    type_id = await homed(world, {0: 1, 1: 1})
    store, journal = world.store(), world.journal()
    await take(journal, type_id, 1, foreign("m", type_id))
    await store.decide(1, [HomeChange(CART.name, 0, 1, 2, "n2", "home")])
    with pytest.raises(ShardsFenced) as fenced:
        await take(journal, type_id, 2, foreign("n", type_id))
    assert fenced.value.shards == {(type_id, 0)}
    with pytest.raises(ShardsFenced):
        await take(journal, type_id, 2, foreign("n", type_id), shard=1)  # of the mark alone
    assert await marks(journal, type_id) == ["m"]
    await take(journal, type_id, 2, foreign("n", type_id, epoch=2), epoch=2)
    assert await marks(journal, type_id) == ["m", "n"]


async def test_only_the_present_home_of_a_shard_removes_its_marks(world: World) -> None:
    type_id = await homed(world, {0: 1, 1: 1})
    store, journal = world.store(), world.journal()
    await take(journal, type_id, 1, *(foreign(each, type_id) for each in "mno"))
    await take(journal, type_id, 2, foreign("p", type_id, shard=1), shard=1)
    await store.decide(1, [HomeChange(CART.name, 0, 1, 2, "n2", "home")])
    with pytest.raises(ShardsFenced) as fenced:
        await journal.unmark(["m"], (type_id, 0, 1))
    assert fenced.value.shards == {(type_id, 0)}
    assert await marks(journal, type_id, 0) == ["m", "n", "o"]
    await journal.unmark(["m", "o", "p", "never"], (type_id, 0, 2))
    assert await marks(journal, type_id) == ["n", "p"]
    await journal.unmark(["m"], (type_id, 0, 2))
    await take(journal, type_id, 3, foreign("m", type_id, epoch=2), epoch=2)


async def test_marks_are_read_in_pages_of_some_shards(world: World) -> None:
    type_id = await homed(world, {0: 1, 1: 1, 2: 1})
    journal = world.journal()
    for seq, name in enumerate(["c", "a", "d", "b", "e"], 1):
        shard = seq % 3
        await take(journal, type_id, seq, foreign(name, type_id, shard=shard), shard=shard)
    assert await marks(journal, type_id, 0, 1, 2) == ["a", "b", "c", "d", "e"]
    assert await marks(journal, type_id, 0, 2) == ["a", "d", "e"]
    two = [(type_id, 0), (type_id, 2)]
    assert [each.id for each in await journal.marks(two, "", 2)] == ["a", "d"]
    assert [each.id for each in await journal.marks(two, "d", 2)] == ["e"]
    assert await journal.marks([], "", 2) == []


async def test_rows_are_seen_as_they_stand(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    later = message(type_id, "later", key="k", delay=600.0)
    await journal.stage([message(type_id, "due"), later, message(type_id, "parked")])
    await journal.park("parked", "no answer", (type_id, 0, 1))
    for secured in (False, True):
        found = await journal.standing(["due", "later", "parked", "gone"], secured=secured)
        assert found.keys() == {"due", "later", "parked"}
        assert found["due"] == Standing(False, 0.0)
        assert found["parked"] == Standing(True, 0.0)
        assert not found["later"].parked
        assert 590.0 < found["later"].seconds <= 600.0


async def test_the_marks_of_an_erased_entity_stay(world: World) -> None:
    """A message of its former life may be delivered once more: its row is still there."""
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await take(journal, type_id, 1, foreign("m", type_id))
    erased = await journal.erase(type_id, 0, 1, "a", at_most=100, before=Erasure(), by="an operator")
    assert erased.whole
    assert (await refused(journal, type_id, 1, foreign("m", type_id))).marked == {"m": False}
