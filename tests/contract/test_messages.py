"""Messages and timers: stored, taken and cancelled with events or not at all, on PostgreSQL and on
the virtual server.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from sharding_app.ports.deliveries import (
    ASIDE_PAIRS,
    MessageChanges,
    MessageRow,
    MessagesGone,
    Page,
    Pending,
    Taking,
)
from sharding_app.ports.journal import Erasure, Journal, JournalUnavailable, RowRefused, ShardsFenced
from sharding_app.protocol.coordinator.terms import lowest_epoch, next_term
from sharding_app.protocol.records import HomeChange
from tests.contract.factories import World
from tests.support.given import CART, event_row, homed, message
from tests.unit.runtime.delivery.test_pages import Pages, deliverer_of

pytestmark = pytest.mark.asyncio

HORIZON = 3600.0
LONG_AGO = datetime(2001, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
NEXT_YEAR = timedelta(days=365)


def timer(type_id: int, name: str, key: str, delay: float = 0.0, **fields: Any) -> MessageRow:
    return message(type_id, name, key=key, delay=delay, target="a", command="close", **fields)


async def page(journal: Journal, type_id: int, *, limit: int = 100, held: Sequence[str] = ()) -> Page:
    return await journal.due([(type_id, 0), (type_id, 1)], HORIZON, limit, held)


async def waiting(journal: Journal, type_id: int) -> list[str]:
    return [each.id for each in (await page(journal, type_id)).messages]


async def events(journal: Journal, type_id: int, entity: str = "a") -> list[int]:
    return [each.seq for each in (await journal.read_from(type_id, entity, 0)).events]


async def test_a_message_is_stored_with_the_events_and_taken_with_those_of_its_target(world: World) -> None:
    type_id = await homed(world, {0: 1, 1: 1})
    journal = world.journal()
    sent = message(type_id, "one", reply_to="paid", on_failure="refused", args=b"\x00\xff", seq=7, position=3)
    at = await journal.append([event_row(type_id, "a", 1)], MessageChanges([sent]))
    assert at is not None
    found = await page(journal, type_id)
    assert found.messages == [
        Pending(
            "one", type_id, 0, "a", 7, 3, CART.name, "target", "outbid", b"\x00\xff", at, None, None, "paid", "refused", 0,
            None, False,
        )
    ]  # fmt: skip
    assert (found.more, found.next_due) == (frozenset(), {})
    assert at <= found.now
    taken = [event_row(type_id, "target", 1, shard=1), event_row(type_id, "target", 2, shard=1)]
    await journal.append(taken, MessageChanges(takes=[Taking("one")]))
    assert await waiting(journal, type_id) == []
    assert await events(journal, type_id, "target") == [1, 2]


async def test_an_append_without_messages_says_no_time(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    assert await journal.append([event_row(type_id, "a", 1)]) is None
    assert await journal.append([event_row(type_id, "a", 2)], MessageChanges()) is None
    rows = await world.store().homes(CART.name, [0])
    assert not rows[0].uses_messages


async def test_a_row_is_taken_once(world: World) -> None:
    """Whatever else is in the append that takes it again: nothing of that is written."""
    type_id = await homed(world, {0: 1, 1: 1})
    journal = world.journal()
    sends = [message(type_id, name) for name in ("one", "two")]
    await journal.append([event_row(type_id, "a", 1)], MessageChanges(sends))
    await journal.append([event_row(type_id, "b", 1, shard=1)], MessageChanges(takes=[Taking("one")]))
    again = MessageChanges([message(type_id, "three")], takes=[Taking("two"), Taking("one"), Taking("never")])
    with pytest.raises(MessagesGone) as refused:
        await journal.append([event_row(type_id, "a", 2), event_row(type_id, "b", 2, shard=1)], again)
    assert refused.value.gone == {"one", "never"}
    assert not refused.value.early
    assert await waiting(journal, type_id) == ["two"]
    assert await events(journal, type_id, "a") == await events(journal, type_id, "b") == [1]


async def test_a_row_that_is_not_due_yet_is_there_but_cannot_be_taken(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    soon = [timer(type_id, "soon", "k", 600.0), timer(type_id, "later", "l", 7200.0)]
    at = await journal.append([event_row(type_id, "a", 1)], MessageChanges(soon))
    assert at is not None
    with pytest.raises(MessagesGone) as refused:
        await journal.append(
            [event_row(type_id, "a", 2)], MessageChanges(takes=[Taking("soon"), Taking("x")])
        )
    assert refused.value.gone == {"x"}
    assert 0.0 < refused.value.early["soon"] <= 600.0
    found = await page(journal, type_id)
    assert [(each.id, each.due) for each in found.messages] == [("soon", at + timedelta(seconds=600))]
    assert found.next_due == {(type_id, 0): at + timedelta(seconds=7200)}


async def test_a_given_time_is_kept_to_the_microsecond(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    row = timer(type_id, "one", "k", due=LONG_AGO, every='{"seconds": 5}')
    await journal.append([event_row(type_id, "a", 1)], MessageChanges([row]))
    found = (await page(journal, type_id)).messages[0]
    assert (found.due, found.key, found.every) == (LONG_AGO, "k", '{"seconds": 5}')


@pytest.mark.parametrize(
    "due",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=12))),
    ],
    ids=["year 10000", "before year 1"],
)
async def test_a_time_that_python_cannot_show_keeps_no_other_row_from_its_home(
    world: World, due: datetime
) -> None:
    type_id = await homed(world, {0: 1, 1: 1})
    journal = world.journal()
    await journal.stage([timer(type_id, "far", "k", due=due), message(type_id, "other", shard=1)])
    assert "other" in await waiting(journal, type_id)


async def test_a_timer_replaces_the_one_of_its_key(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    first = [timer(type_id, "1", "k"), timer(type_id, "2", "l"), timer(type_id, "3", "k", entity="b")]
    await journal.append([event_row(type_id, "a", 1)], MessageChanges(first))
    await journal.append([event_row(type_id, "a", 2)], MessageChanges([timer(type_id, "4", "k", 1.0)]))
    assert sorted(await waiting(journal, type_id)) == ["2", "3", "4"]
    with pytest.raises(MessagesGone) as refused:
        await journal.append([event_row(type_id, "a", 3)], MessageChanges(takes=[Taking("1")]))
    assert refused.value.gone == {"1"}


async def test_a_timer_is_cancelled_with_the_events_or_not_at_all(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    both = [timer(type_id, "1", "k"), timer(type_id, "2", "k", entity="b")]
    await journal.append([event_row(type_id, "a", 1)], MessageChanges(both))
    cancel = MessageChanges(cancels=[(type_id, "a", "k"), (type_id, "a", "unknown")])
    with pytest.raises(RowRefused):
        await journal.append([event_row(type_id, "a", 1)], cancel)
    assert sorted(await waiting(journal, type_id)) == ["1", "2"]
    await journal.append([event_row(type_id, "a", 2)], cancel)
    assert await waiting(journal, type_id) == ["2"]


async def test_a_timer_that_fires_may_be_scheduled_anew_or_cancelled_in_the_same_append(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append(
        [event_row(type_id, "a", 1)],
        MessageChanges([timer(type_id, "1", "k"), timer(type_id, "2", "l", every="e")]),
    )
    changes = MessageChanges(
        [timer(type_id, "3", "k")],
        [(type_id, "a", "l")],
        [Taking("1", (type_id, "a", "k")), Taking("2", (type_id, "a", "l"), again=("4", LONG_AGO))],
    )
    await journal.append([event_row(type_id, "a", 2)], changes)
    assert await waiting(journal, type_id) == ["3"]


async def test_a_repeating_timer_goes_on_under_a_new_id(world: World) -> None:
    """The same occasion cannot be taken twice, and the next one only when it is due."""
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(type_id, "a", 1)], MessageChanges([timer(type_id, "1", "k", every="e")]))
    now = (await page(journal, type_id)).now
    await journal.append(
        [event_row(type_id, "a", 2)], MessageChanges(takes=[Taking("1", again=("2", now + NEXT_YEAR))])
    )
    for name in ("1", "2"):
        with pytest.raises(MessagesGone) as refused:
            await journal.append([event_row(type_id, "a", 3)], MessageChanges(takes=[Taking(name)]))
        assert refused.value.ids == {name}
        assert (name in refused.value.gone) is (name == "1")
    found = await page(journal, type_id)
    assert (found.messages, found.next_due) == ([], {(type_id, 0): now + NEXT_YEAR})
    await journal.append([event_row(type_id, "a", 3)], MessageChanges([timer(type_id, "3", "k")]))
    assert await waiting(journal, type_id) == ["3"]


async def test_a_commit_in_the_middle_parks_the_row_for_its_own_handler(world: World) -> None:
    type_id = await homed(world, {0: 1, 1: 1})
    journal = world.journal()
    await journal.append([event_row(type_id, "a", 1)], MessageChanges([message(type_id, "1")]))
    await journal.append(
        [event_row(type_id, "b", 1, shard=1)], MessageChanges(takes=[Taking("1", park=True)])
    )
    assert await waiting(journal, type_id) == []
    with pytest.raises(MessagesGone) as refused:
        await journal.append([event_row(type_id, "b", 2, shard=1)], MessageChanges(takes=[Taking("1")]))
    assert refused.value.gone == {"1"}
    middle = MessageChanges(takes=[Taking("1", park=True, resumed=True)])
    await journal.append([event_row(type_id, "b", 2, shard=1)], middle)
    await journal.append(
        [event_row(type_id, "b", 3, shard=1)], MessageChanges(takes=[Taking("1", resumed=True)])
    )
    with pytest.raises(MessagesGone):
        await journal.append([event_row(type_id, "b", 4, shard=1)], middle)


async def test_messages_are_fenced_as_events_are(world: World) -> None:
    type_id = await homed(world, {0: 1, 1: 1})
    store, journal = world.store(), world.journal()
    await journal.append([event_row(type_id, "a", 1)], MessageChanges([message(type_id, "1")]))
    await store.decide(1, [HomeChange(CART.name, 0, 1, 2, "n2", "home")])
    stale = MessageChanges([message(type_id, "2")])
    with pytest.raises(ShardsFenced) as fenced:
        await journal.append([event_row(type_id, "a", 2)], stale)
    assert fenced.value.shards == {(type_id, 0)}
    with pytest.raises(ShardsFenced) as fenced:
        await journal.append([event_row(type_id, "b", 1, shard=1)], stale)
    assert fenced.value.shards == {(type_id, 0)}
    with pytest.raises(ShardsFenced):
        await journal.stage(stale.sends)
    claim = (type_id, 0, 1)
    for decision in (
        journal.set_aside("1", 1, 5.0, "no answer", claim),
        journal.park("1", "no answer", claim),
        journal.turn("1", "2", "refused", b"", claim),
        journal.park("unknown", "no answer", claim),
    ):
        with pytest.raises(ShardsFenced):
            await decision
    assert await waiting(journal, type_id) == ["1"]


async def test_a_message_from_outside_has_no_epoch_and_passes_the_fence(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.stage([message(type_id, "1", epoch=None), message(type_id, "2", epoch=None, shard=1)])
    assert sorted(await waiting(journal, type_id)) == ["1", "2"]


async def test_a_type_that_has_stored_a_message_is_known_by_its_rows(world: World) -> None:
    type_id = await homed(world, {0: 1})
    store, journal = world.store(), world.journal()
    assert [row.uses_messages for row in await store.shards()] == [False]
    await journal.stage([message(type_id, "1")])
    assert [row.uses_messages for row in await store.shards()] == [True]
    await journal.append([event_row(type_id, "b", 1)], MessageChanges(takes=[Taking("1")]))
    assert [row.uses_messages for row in await store.homes(CART.name, [0])] == [True]


async def test_staging_may_be_repeated(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    rows = [message(type_id, "1"), timer(type_id, "2", "k", 5.0)]
    first = await journal.stage(rows)
    assert await journal.stage([*rows, message(type_id, "3", position=1)]) >= first
    found = {each.id: each.due for each in (await page(journal, type_id)).messages}
    assert found.keys() == {"1", "2", "3"}
    assert found["2"] == first + timedelta(seconds=5)
    await journal.stage([timer(type_id, "4", "k")], [(type_id, "a", "never")])
    assert sorted(await waiting(journal, type_id)) == ["1", "3", "4"]
    await journal.stage([], [(type_id, "a", "k")])
    assert sorted(await waiting(journal, type_id)) == ["1", "3"]


async def test_messages_of_an_entity_without_events_are_stored_after_a_failover(world: World) -> None:
    """The epoch is a large number then, and their places are made of it."""
    epoch = lowest_epoch(next_term(7, same_lineage=False, now_seconds=4_102_444_800, timeline=15)) + 9
    type_id = await homed(world, {0: epoch})
    journal = world.journal()
    deliverer = deliverer_of(Pages({}), lambda job: job.close())
    rows = []
    for name in ("one", "two"):
        seq, position = deliverer.new_place(epoch, 1)
        rows.append(message(type_id, name, epoch=epoch, seq=seq, position=position))
    await journal.stage(rows[1:])
    await journal.stage(rows[:1])
    assert [(each.seq, each.position) for each in (await page(journal, type_id)).messages] == [
        (each.seq, each.position) for each in reversed(rows)
    ], "in the order of their times"


async def test_an_append_stores_no_id_twice(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(type_id, "a", 1)], MessageChanges([message(type_id, "1")]))
    with pytest.raises(RowRefused):
        await journal.append([event_row(type_id, "a", 2)], MessageChanges([message(type_id, "1")]))
    assert await events(journal, type_id) == [1]


async def test_rows_are_discarded_with_their_reply_and_a_second_time_nothing_happens(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    sends = [
        message(type_id, "1", reply_to="paid"),
        timer(type_id, "2", "k", every="e"),
        timer(type_id, "3", "l", 60.0),
        message(type_id, "4"),
    ]
    await journal.stage(sends)
    reply = message(type_id, "r", "target", target="a", command="paid")
    takes = [
        Taking("1", reply=reply),
        Taking("2", again=("5", LONG_AGO)),
        Taking("3"),
        Taking("x", reply=message(type_id, "y")),
    ]
    assert sorted(await journal.discard(takes)) == ["1", "2"]
    assert sorted(await waiting(journal, type_id)) == ["3", "4", "5", "r"]
    assert await journal.discard(takes) == []
    assert sorted(await waiting(journal, type_id)) == ["3", "4", "5", "r"]
    assert await journal.discard([]) == []


async def test_a_page_is_in_order_and_leaves_out_what_is_held(world: World) -> None:
    type_id = await homed(world, {0: 1, 1: 1})
    journal = world.journal()
    rows = [
        message(type_id, "late", due=LONG_AGO + timedelta(seconds=2), seq=1),
        message(type_id, "second", due=LONG_AGO, seq=2, position=1, shard=1, entity="b"),
        message(type_id, "first", due=LONG_AGO, seq=2, position=0, target="other"),
        timer(type_id, "timer", "k", due=LONG_AGO + timedelta(seconds=1)),
    ]
    await journal.stage(rows)
    assert await waiting(journal, type_id) == ["first", "second", "timer", "late"]
    found = await page(journal, type_id, limit=2)
    assert ([each.id for each in found.messages], found.more) == (
        ["first", "second"],
        frozenset({(type_id, 0)}),
    )
    found = await page(journal, type_id, limit=2, held=["first", "second"])
    assert ([each.id for each in found.messages], found.more) == (["timer", "late"], frozenset())
    assert (await journal.due([], HORIZON, 10)).messages == []


async def test_a_page_holds_at_least_one_row_and_not_too_many_bytes(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    large = b"\x00" * (5 << 20)
    await journal.stage([message(type_id, name, args=large, due=LONG_AGO, seq=int(name)) for name in "123"])
    found = await page(journal, type_id)
    assert ([each.id for each in found.messages], found.more) == (["1"], frozenset({(type_id, 0)}))
    found = await page(journal, type_id, held=["1", "2"])
    assert ([each.id for each in found.messages], found.more) == (["3"], frozenset())


async def test_messages_wait_behind_one_that_was_set_aside(world: World) -> None:
    """Those of the same owner to the same target, in the order in which they were staged."""
    type_id = await homed(world, {0: 1})
    journal, claim = world.journal(), (type_id, 0, 1)
    rows = [
        message(type_id, "before", seq=1),
        message(type_id, "failing", seq=2),
        message(type_id, "behind", seq=2, position=1),
        message(type_id, "elsewhere", seq=3, target="other"),
        message(type_id, "by another", seq=3, entity="b"),
        timer(type_id, "timer", "k", seq=3),
    ]
    await journal.stage(rows)
    assert await journal.set_aside("failing", 3, 2 * HORIZON, "no answer", claim)
    found = await page(journal, type_id)
    assert sorted(each.id for each in found.messages) == ["before", "by another", "elsewhere", "timer"]
    assert not found.more
    assert found.next_due[type_id, 0] > found.now + timedelta(seconds=HORIZON)
    assert await journal.set_aside("failing", 4, 60.0, "no answer", claim)
    found = await page(journal, type_id)
    assert found.more
    assert [(each.id, each.failures) for each in found.messages][-1] == ("failing", 4)
    assert "behind" not in {each.id for each in found.messages}
    held = [each.id for each in found.messages]
    found = await page(journal, type_id, held=held)
    assert ([each.id for each in found.messages], found.more) == (["behind"], frozenset())


async def test_messages_due_later_than_one_that_was_set_aside_wait_as_those_due_before(world: World) -> None:
    """Else they went out before those between, which come with the next page."""
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.stage([message(type_id, "failing", seq=1), message(type_id, "between", seq=2)])
    assert await journal.set_aside("failing", 1, 0.0, "no answer", (type_id, 0, 1))
    now = (await page(journal, type_id)).now
    await journal.stage([message(type_id, "last", seq=3, due=now + timedelta(seconds=HORIZON / 2))])
    found = await page(journal, type_id)
    assert ([each.id for each in found.messages], found.more) == (["failing"], frozenset({(type_id, 0)}))
    found = await page(journal, type_id, held=["failing"])
    assert ([each.id for each in found.messages], found.more) == (["between", "last"], frozenset())


async def test_the_timers_of_an_entity_are_read_by_their_keys(world: World) -> None:
    """However many other rows wait in its shard."""
    type_id = await homed(world, {0: 1})
    journal, claim = world.journal(), (type_id, 0, 1)
    assert (await journal.timers(type_id, "a", "?every:"))[1] == {}
    rows = [
        timer(type_id, "1", "?every:close", 9999.0, every="e"),
        timer(type_id, "2", "?every:open"),
        timer(type_id, "3", "?every", every="e"),
        timer(type_id, "4", "?every:close", entity="b", every="e"),
        timer(type_id, "5", "?every:parked", every="e"),
        message(type_id, "6"),
    ]
    at = await journal.stage(rows)
    assert await journal.park("5", "out of order", claim)
    now, found = await journal.timers(type_id, "a", "?every:")
    assert found == {"?every:close": "e", "?every:open": None}
    assert now >= at


async def test_none_is_read_behind_a_message_that_is_held_alone(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    rows = [
        message(type_id, "1"),
        message(type_id, "2", position=1),
        message(type_id, "other", target="u"),
    ]
    await journal.stage(rows)
    assert await journal.set_aside("1", 0, 0.0, "no answer", (type_id, 0, 1))
    found = await journal.due([(type_id, 0)], HORIZON, 100, ["1"], ["1"])
    assert ([each.id for each in found.messages], found.aside) == (["other"], [])
    assert not found.more
    await journal.append([event_row(type_id, "a", 1)], MessageChanges(takes=[Taking("1")]))
    assert sorted(await waiting(journal, type_id)) == ["2", "other"]


async def test_messages_from_outside_and_those_of_the_entity_itself_do_not_wait_for_each_other(
    world: World,
) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    rows = [
        message(type_id, "own 1", target="a", seq=1),
        message(type_id, "outside 1", target="a", seq=2, epoch=None),
        message(type_id, "own 2", target="a", seq=3),
        message(type_id, "outside 2", target="a", seq=4, epoch=None),
    ]
    await journal.stage(rows)
    found = await page(journal, type_id)
    assert [each.id for each in found.messages if each.outside] == ["outside 1", "outside 2"]
    assert await journal.set_aside("outside 1", 1, 2 * HORIZON, "no answer", (type_id, 0, 1))
    found = await page(journal, type_id)
    assert [each.id for each in found.messages] == ["own 1", "own 2"]
    assert found.aside == [(type_id, 0, "", CART.name, "a")]
    assert await journal.set_aside("own 1", 1, 2 * HORIZON, "no answer", (type_id, 0, 1))
    found = await page(journal, type_id)
    assert found.messages == []
    assert found.aside == [(type_id, 0, "", CART.name, "a"), (type_id, 0, "a", CART.name, "a")]


async def test_a_page_names_the_pairs_that_wait_for_one_beyond_its_horizon(world: World) -> None:
    """A home that does not know them would send what is staged next past those that wait."""
    type_id = await homed(world, {0: 1, 1: 1})
    journal = world.journal()
    rows = [
        message(type_id, "1", "z", target="t"),
        message(type_id, "2", "z", target="t", position=1),
        message(type_id, "3", "b", shard=1, target="u"),
        message(type_id, "soon", "c"),
        timer(type_id, "timer", "k", seq=2),
    ]
    await journal.stage(rows)
    for name, shard, delay in (
        ("1", 0, 2.0), ("2", 0, 2.0), ("3", 1, 3.0), ("soon", 0, 0.1), ("timer", 0, 2.0)
    ):  # fmt: skip
        assert await journal.set_aside(name, 1, delay * HORIZON, "no answer", (type_id, shard, 1))
    found = await page(journal, type_id)
    assert found.aside == [(type_id, 0, "z", CART.name, "t"), (type_id, 1, "b", CART.name, "u")]
    assert [each.id for each in found.messages] == ["soon"]
    assert (await page(journal, type_id, held=["1", "2", "3"])).aside == []
    assert await journal.park("3", "no answer", (type_id, 1, 1))
    assert (await page(journal, type_id)).aside == [(type_id, 0, "z", CART.name, "t")]
    assert (await journal.due([(type_id, 1)], HORIZON, 10)).aside == []


async def test_a_page_does_not_name_more_pairs_than_it_may(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.stage([message(type_id, f"{each}", target=f"{each}") for each in range(ASIDE_PAIRS + 1)])
    for each in range(ASIDE_PAIRS + 1):
        if each == ASIDE_PAIRS:
            assert len((await page(journal, type_id)).aside or ()) == ASIDE_PAIRS
        assert await journal.set_aside(f"{each}", 1, 2 * HORIZON, "no answer", (type_id, 0, 1))
    assert (await page(journal, type_id)).aside is None


async def test_a_repeating_timer_that_is_set_aside_keeps_the_time_of_its_firing(world: World) -> None:
    """The next time counts from it: else a failure moved all later ones, and lost those in
    between.
    """
    type_id = await homed(world, {0: 1})
    journal, claim = world.journal(), (type_id, 0, 1)
    rows = [
        timer(type_id, "1", "k", due=LONG_AGO, every="e"),
        timer(type_id, "2", "l", due=LONG_AGO, every="e"),
        timer(type_id, "once", "m", due=LONG_AGO),
    ]
    await journal.stage(rows)
    for attempt in (1, 2):
        for name in ("1", "2", "once"):
            assert await journal.set_aside(name, attempt, 0.0, "out of order", claim)
    found = {each.id: each for each in (await page(journal, type_id)).messages}
    assert {name: each.occasion for name, each in found.items()} == {
        "1": LONG_AGO,
        "2": LONG_AGO,
        "once": None,
    }
    assert found["1"].due > LONG_AGO + NEXT_YEAR
    next_one = LONG_AGO + timedelta(hours=1)
    await journal.append(
        [event_row(type_id, "a", 1)], MessageChanges(takes=[Taking("1", again=("3", next_one))])
    )
    assert await journal.discard([Taking("2", again=("4", next_one))]) == ["2"]
    found = {each.id: each for each in (await page(journal, type_id)).messages}
    assert {name: (each.due, each.occasion) for name, each in found.items() if name != "once"} == {
        "3": (next_one, None),
        "4": (next_one, None),
    }


async def test_a_page_says_of_each_shard_if_there_is_more(world: World) -> None:
    """The homes of the others need not read again, and take in directly what is staged."""
    type_id = await homed(world, {0: 1, 1: 1, 2: 1})
    journal = world.journal()
    await journal.stage(
        [
            *(message(type_id, f"{number}", due=LONG_AGO, seq=number) for number in range(3)),
            message(type_id, "next shard", shard=1, due=LONG_AGO, seq=1),
            *(
                timer(type_id, f"timer {shard}", "k", 1e6 * (shard + 1), shard=shard, owner=f"{shard}")
                for shard in (1, 2)
            ),
        ]
    )
    shards = [(type_id, 0), (type_id, 1), (type_id, 2)]
    found = await journal.due(shards, HORIZON, 3)
    assert [each.id for each in found.messages] == ["0", "1", "next shard"]
    assert found.more == {(type_id, 0)}
    assert [*sorted(found.next_due)] == [(type_id, 1), (type_id, 2)]
    assert found.next_due[type_id, 1] < found.now + timedelta(seconds=2e6 + 9) < found.next_due[type_id, 2]
    found = await journal.due(shards, HORIZON, 1)
    assert ([each.id for each in found.messages], found.more) == (
        ["0"],
        frozenset({(type_id, 0), (type_id, 1)}),
    )


async def test_a_full_page_of_what_waits_behind_another_does_not_end_the_reading(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.stage([message(type_id, f"{number:02d}", seq=number) for number in range(20)])
    assert await journal.set_aside("00", 1, 60.0, "", (type_id, 0, 1))
    held: list[str] = []
    while True:
        found = await page(journal, type_id, limit=3, held=held)
        held += [each.id for each in found.messages]
        if not found.more:
            break
        assert found.messages
    assert held == [f"{number:02d}" for number in range(20)]


async def test_a_parked_row_is_for_operators_alone(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal, claim = world.journal(), (type_id, 0, 1)
    await journal.stage([message(type_id, "1"), message(type_id, "2", position=1)])
    assert await journal.set_aside("1", 1, 9999.0, "no answer", claim)
    assert await journal.park("1", "no answer", claim)
    assert await waiting(journal, type_id) == ["2"]
    assert (await page(journal, type_id)).next_due == {}
    assert not await journal.park("1", "again", claim)
    assert not await journal.set_aside("1", 1, 0.0, "", claim)
    assert not await journal.turn("1", "3", "refused", b"", claim)
    assert await journal.discard([Taking("1")]) == []


async def test_a_message_may_turn_back_to_its_owner(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal, claim = world.journal(), (type_id, 0, 1)
    sent = message(type_id, "1", seq=4, position=2, reply_to="paid", on_failure="refused")
    await journal.stage([sent])
    assert await journal.set_aside("1", 2, 9999.0, "no answer", claim)
    assert await journal.turn("1", "2", "refused", b"why", claim)
    found = await page(journal, type_id)
    at = found.messages[0].due
    assert at <= found.now
    assert found.messages == [
        Pending(
            "2", type_id, 0, "a", 4, 2, CART.name, "a", "refused", b"why", at, None, None, None, None, 0, None,
            False,
        )
    ]  # fmt: skip
    assert not await journal.turn("1", "3", "refused", b"", claim)


async def test_shards_with_overdue_rows_are_found_at_their_home(world: World) -> None:
    type_id = await homed(world, {0: 1, 1: 1, 2: 1})
    store, journal = world.store(), world.journal()
    home = next(row.home for row in await store.shards() if row.shard == 0)
    assert home is not None
    assert await journal.overdue(home, 0.0, 10) == []
    assert not (await store.news(home)).uses_messages
    rows = [message(type_id, str(shard), shard=shard, due=LONG_AGO) for shard in (0, 1)]
    await journal.stage([*rows, message(type_id, "2", shard=2)])
    assert (await store.news(home)).uses_messages
    assert [each.shard for each in await journal.overdue(home, 0.0, 10)] == [0, 1, 2]
    assert await journal.overdue(home, 3600.0, 10) == [(type_id, 0, 1), (type_id, 1, 1)]
    assert await journal.overdue(home, 3600.0, 1) == [(type_id, 0, 1)]
    assert await journal.overdue("another", 0.0, 10) == []
    assert await journal.park("0", "no answer", (type_id, 0, 1))
    assert [each.shard for each in await journal.overdue(home, 3600.0, 10)] == [1]
    outside = [message(type_id, f"out {shard}", shard=shard, epoch=None, due=LONG_AGO) for shard in (1, 5)]
    await journal.stage([*outside, message(type_id, "out 6", shard=6, epoch=None)])
    assert await journal.overdue(home, 3600.0, 10) == [(type_id, 1, 1), (type_id, 5, 0)]
    assert await journal.overdue("another", 3600.0, 10) == [(type_id, 5, 0)]


async def test_what_no_column_takes_is_refused_with_all_of_the_append(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    for bad in (
        message(type_id, "1", command="nul \0"),
        message(type_id, "1", target="surrogate \ud800"),
        message(type_id, "1", target=""),
        message(type_id, "1", entity="x" * 513),
        timer(type_id, "1", "k" * 513),
    ):
        with pytest.raises(RowRefused):
            await journal.append([event_row(type_id, "a", 1)], MessageChanges([message(type_id, "0"), bad]))
        with pytest.raises(RowRefused):
            await journal.stage([bad])
    assert await events(journal, type_id) == []
    assert await waiting(journal, type_id) == []


async def test_an_append_with_messages_settles_as_any_other(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    rows = [event_row(type_id, "a", 1)]
    assert not await journal.settle(rows)
    await journal.append(rows, MessageChanges([message(type_id, "1")]))
    assert await journal.settle(rows)


async def test_an_append_waits_in_vain_for_a_shard_and_takes_nothing(world: World) -> None:
    type_id = await homed(world, {0: 1, 1: 1})
    journal = world.journal()
    await journal.stage([message(type_id, "1")])
    async with world.holding(type_id, 1):
        with pytest.raises(JournalUnavailable) as locked:
            await journal.append([event_row(type_id, "b", 1, shard=1)], MessageChanges(takes=[Taking("1")]))
        assert locked.value.answered
    assert await waiting(journal, type_id) == ["1"]


async def test_an_erased_entity_leaves_no_message_and_no_timer(world: World) -> None:
    type_id = await homed(world, {0: 1, 1: 1})
    journal = world.journal()
    sends = [
        message(type_id, "1"),
        timer(type_id, "2", "k", 9999.0),
        message(type_id, "3", position=1),
        message(type_id, "kept", entity="b", target="a"),
    ]
    await journal.append([event_row(type_id, "a", 1), event_row(type_id, "a", 2)], MessageChanges(sends))
    assert await journal.park("3", "no answer", (type_id, 0, 1))
    first = await journal.erase(type_id, 0, 1, "a", at_most=1, before=Erasure(), by="operator")
    assert (first.events, first.messages, first.whole) == (1, 0, False)
    last = await journal.erase(type_id, 0, 1, "a", at_most=1, before=first, by="operator")
    assert (last.events, last.messages, last.whole) == (1, 3, True)
    found = await page(journal, type_id)
    assert ([each.id for each in found.messages], found.next_due) == (["kept"], {})


async def test_of_a_shard_that_lies_elsewhere_only_messages_from_outside_are_due(world: World) -> None:
    """A move has put the others here, and died before its switch: their rows lie elsewhere too."""
    type_id = await homed(world, {0: 1, 1: 1})
    journal = world.journal()
    late = timer(type_id, "late", "k", 2 * HORIZON)
    copies = MessageChanges([message(type_id, "copy"), late, message(type_id, "here", "b", shard=1)])
    await journal.append([event_row(type_id, "a", 1), event_row(type_id, "b", 1, shard=1)], copies)
    await journal.stage([message(type_id, "outside", epoch=None)])
    await world.lie(type_id, 0, "journal_b")
    found = await page(journal, type_id)
    assert sorted(each.id for each in found.messages) == ["here", "outside"]
    assert found.next_due == {}
    assert [each.shard for each in await journal.overdue("home", 0.0, 10)] == [0, 1]
    await journal.discard([Taking("outside"), Taking("here")])
    assert await journal.overdue("home", 0.0, 10) == []
    await world.lie(type_id, 0, "")
    found = await page(journal, type_id)
    assert [each.id for each in found.messages] == ["copy"]
    assert found.next_due.keys() == {(type_id, 0)}
    assert [each.shard for each in await journal.overdue("home", 0.0, 10)] == [0]


async def test_a_timer_that_repeats_waits_for_the_end_of_its_handler(world: World) -> None:
    """The first commit parks the row, under its id. The last one lets it go on."""
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append(
        [event_row(type_id, "a", 1)], MessageChanges([timer(type_id, "1", "k", every='{"seconds":60.0}')])
    )
    taking = Taking("1", timer=(type_id, "a", "k"), park=True, again=("2", datetime.now(UTC) + NEXT_YEAR))
    await journal.append([event_row(type_id, "a", 2)], MessageChanges(takes=[taking]))
    assert {each: at.parked for each, at in (await journal.standing(["1", "2"])).items()} == {"1": True}
    last = taking._replace(park=False, resumed=True)
    await journal.append([event_row(type_id, "a", 3)], MessageChanges(takes=[last]))
    assert {each: at.parked for each, at in (await journal.standing(["1", "2"])).items()} == {"2": False}


@pytest.mark.parametrize("anew", [True, False], ids=["set anew", "cancelled"])
async def test_a_timer_that_its_handler_ends_in_its_middle_stays_for_the_rest(
    world: World, anew: bool
) -> None:
    """Its row loses the key, and waits parked for the last commit. One set anew is another row."""
    type_id = await homed(world, {0: 1})
    journal = world.journal()
    key = type_id, "a", "k"
    await journal.append([event_row(type_id, "a", 1)], MessageChanges([timer(type_id, "1", "k")]))
    sends = [timer(type_id, "2", "k", delay=3600.0)] if anew else []
    middle = MessageChanges(sends, [] if anew else [key], [Taking("1", timer=key, park=True)])
    await journal.append([event_row(type_id, "a", 2)], middle)
    there = {"1": True} | ({"2": False} if anew else {})
    assert {each: at.parked for each, at in (await journal.standing(["1", "2"])).items()} == there
    _, timers = await journal.timers(type_id, "a", "")
    assert list(timers) == (["k"] if anew else [])
    last = MessageChanges(takes=[Taking("1", resumed=True)])
    await journal.append([event_row(type_id, "a", 3)], last)
    assert list(await journal.standing(["1", "2"])) == (["2"] if anew else [])


async def test_a_former_home_cancels_nothing(world: World) -> None:
    type_id = await homed(world, {0: 1})
    journal, store = world.journal(), world.store()
    await store.decide(1, [HomeChange(CART.name, 0, 1, 2, "next", "home")])
    await journal.stage([timer(type_id, "1", "k", delay=3600.0, epoch=2)], claim=(type_id, 0, 2))
    with pytest.raises(ShardsFenced) as fenced:
        await journal.stage([], [(type_id, "a", "k")], claim=(type_id, 0, 1))
    assert fenced.value.shards == {(type_id, 0)}
    assert await waiting(journal, type_id) == ["1"]
    await journal.stage([], [(type_id, "a", "k")], claim=(type_id, 0, 2))
    assert await waiting(journal, type_id) == []
