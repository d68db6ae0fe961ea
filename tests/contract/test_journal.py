"""What every journal does (`ports.journal`)."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sharding_app.ports.journal import (
    Archival,
    Bounds,
    Erasure,
    Former,
    History,
    JournalUnavailable,
    Mark,
    Outcome,
    RowRefused,
    ShardsFenced,
    Snapshot,
    StoredEvent,
    Wanted,
)
from sharding_app.protocol.records import HomeChange, Lineage
from tests.contract.factories import World
from tests.support.given import CART, event_row, homed, with_type

pytestmark = pytest.mark.asyncio

WINDOW_MS = 60_000


def stored(seq: int, payload: bytes = b'{"sku": "book"}') -> StoredEvent:
    return StoredEvent(seq, "shop.ItemAdded", 1, payload)


async def test_what_was_appended_is_read_back_in_order(world: World) -> None:
    number = await homed(world, {0: 1, 1: 7})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1), event_row(number, "b", 1, shard=1, epoch=7)])
    await journal.append([event_row(number, "a", seq) for seq in (2, 3)])
    assert await journal.read(number, ["b", "a", "nobody"]) == {
        "b": History(None, [stored(1)]),
        "a": History(None, [stored(1), stored(2), stored(3)]),
        "nobody": History(None, []),
    }


async def test_an_empty_append_changes_nothing(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([])
    assert await journal.read(number, []) == {}
    assert await journal.read(number, ["a"]) == {"a": History(None, [])}


async def test_an_id_asked_for_twice_is_read_once(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1)])
    assert await journal.read(number, ["a", "a"]) == {"a": History(None, [stored(1)])}


async def test_types_do_not_see_each_others_entities(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1)])
    assert await journal.read(number + 1, ["a"]) == {"a": History(None, [])}


async def test_ids_are_listed_in_the_order_of_their_bytes(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    ids = ["a", "a-1", "a-2", "a-2x", "ab", "aé", "a\U0001f600", "b", "z"]
    await journal.append([event_row(number, each, seq) for each in reversed(ids) for seq in (1, 2, 3)])
    assert await journal.ids(number, "", "", 100) == ids
    assert await journal.ids(number, "a-", "", 100) == ["a-1", "a-2", "a-2x"]
    assert await journal.ids(number, "a-", "a-1", 1) == ["a-2"]
    assert await journal.ids(number, "a-", "a-2x", 100) == []
    assert await journal.ids(number, "", "a\U0001f600", 1) == ["b"]
    assert await journal.ids(number, "b", "a", 100) == ["b"], "the prefix lies behind the id"
    assert await journal.ids(number, "a", "b", 100) == []
    assert await journal.ids(number, "c", "", 100) == []
    assert await journal.ids(number + 1, "", "", 100) == []
    for hostile in ("\0", "\ud800", "x" * 513):
        assert await journal.ids(number, hostile, "", 100) == []


@pytest.mark.parametrize(
    "payload",
    [
        b'{"big": 123456789012345678901234567890123456789}',
        b'{"float": 1.10, "exponent": 1E400, "b": 1, "a": 2, "a": 3}',
        b"  [ 1 ,  2 ]  ",
        '{"text": "größer ☃ \U0001f600"}'.encode(),
        rb'"\u0000 \ud800"',
        b"null",
    ],
)
async def test_a_payload_is_stored_exactly(world: World, payload: bytes) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1, payload=payload)])
    assert (await journal.read(number, ["a"]))["a"].events == [stored(1, payload)]


@pytest.mark.parametrize("entity", ["x" * 512, "é" * 256, "a\nb", "\u202e", "a\tb\\", "%s'\"", " "])
async def test_an_id_is_stored_exactly(world: World, entity: str) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, entity, 1)])
    assert (await journal.read(number, [entity]))[entity].events == [stored(1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": b"{"},
        {"payload": b"NaN"},
        {"payload": b'"\xff"'},
        {"entity": "a\0b"},
        {"entity": "\ud800"},
        {"entity": ""},
        {"entity": "x" * 513},
        {"name": "N\0"},
        {"command_id": "\udfff"},
        {"seq": 2**63},
        {"seq": 0},
    ],
)
async def test_a_row_that_cannot_be_stored_fails_its_batch_and_is_named(
    world: World, changes: dict[str, Any]
) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    good = [event_row(number, entity, 1) for entity in ("a", "b", "c")]
    bad = event_row(number, "bad", 1)._replace(**changes)
    with pytest.raises(RowRefused) as refused:
        await journal.append([*good[:2], bad, *good[2:]])
    assert refused.value.index == 2
    assert refused.value.reason
    assert not await journal.settle(good)
    await journal.append(good)
    assert await journal.settle(good)


async def test_a_number_is_given_once(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1)])
    with pytest.raises(RowRefused) as refused:
        await journal.append([event_row(number, "b", 1), event_row(number, "a", 1, payload=b"2")])
    assert refused.value.index == 1
    assert await journal.read(number, ["a", "b"]) == {"a": History(None, [stored(1)]), "b": History(None, [])}


async def test_what_no_table_takes_is_told_before_a_number_that_is_taken(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1)])
    with pytest.raises(RowRefused) as refused:
        await journal.append([event_row(number, "a", 1), event_row(number, "b", 0)])
    assert refused.value.index == 1


async def test_a_number_that_the_next_home_has_taken_is_fenced(world: World) -> None:
    number = await homed(world, {0: 1, 1: 1}, home="former")
    store, former, present = world.store(), world.journal("former"), world.journal("present")
    term = (await store.coordinator()).term
    await store.decide(term, [HomeChange(CART.name, 0, 1, 2, "present", "home")])
    await present.append([event_row(number, "a", 1, epoch=2)])
    with pytest.raises(ShardsFenced) as fenced:
        await former.append([event_row(number, "b", 1, shard=1), event_row(number, "a", 1)])
    assert fenced.value.shards == {(number, 0)}


async def test_a_stale_epoch_fails_the_batch_and_names_all_stale_shards(world: World) -> None:
    number = await homed(world, {0: 2, 1: 1, 2: 5})
    journal = world.journal()
    rows = [
        event_row(number, "a", 1, shard=0, epoch=1),
        event_row(number, "b", 1, shard=1, epoch=1),
        event_row(number, "c", 1, shard=2, epoch=4),
        event_row(number, "d", 1, shard=3, epoch=1),
    ]
    with pytest.raises(ShardsFenced) as fenced:
        await journal.append(rows)
    assert fenced.value.shards == {(number, 0), (number, 2), (number, 3)}
    assert not await journal.settle(rows)
    await journal.append(rows[1:2])


async def test_an_epoch_from_the_future_is_stale_too(world: World) -> None:
    number = await homed(world, {0: 1})
    with pytest.raises(ShardsFenced):
        await world.journal().append([event_row(number, "a", 1, epoch=2)])


async def test_the_former_home_is_fenced_by_a_decision(world: World) -> None:
    number = await homed(world, {0: 1}, home="former")
    store, former, present = world.store(), world.journal("former"), world.journal("present")
    await former.append([event_row(number, "a", 1)])
    term = (await store.coordinator()).term
    await store.decide(term, [HomeChange(CART.name, 0, 1, 2, "present", "home")])
    with pytest.raises(ShardsFenced):
        await former.append([event_row(number, "a", 2)])
    await present.append([event_row(number, "a", 2, epoch=2)])
    assert [event.seq for event in (await present.read_from(number, "a", 0)).events] == [1, 2]


async def test_settle_does_not_take_the_next_homes_event_for_ones_own(world: World) -> None:
    number = await homed(world, {0: 2})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1, epoch=2)])
    assert await journal.settle([event_row(number, "a", 1, epoch=2)])
    assert not await journal.settle([event_row(number, "a", 1, epoch=1)])


async def test_settle_does_not_take_the_event_of_a_former_life_for_ones_own(world: World) -> None:
    """A failover may lose an erasure, and with it the events of the next life: those of the former
    one have their numbers and their epoch.
    """
    number = await homed(world, {0: 2})
    journal = world.journal()
    former = event_row(number, "a", 1, epoch=2, payload=b'{"sku":  "k\xc3\xa4se \\u00e4"}', command_id="one")
    await journal.append([former])
    assert await journal.settle([former])
    assert await journal.settle([former._replace(payload=b"")]), "it is not known here as it is stored"
    for changes in (
        {"command_id": "two"},
        {"command_id": None},
        {"payload": b"{}"},
        {"name": "shop.ItemRemoved"},
    ):
        assert not await journal.settle([former._replace(**changes)])


async def test_a_journal_has_as_many_connections_for_appends_as_it_was_given(world: World) -> None:
    assert world.journal().connections == 1
    assert world.journal(connections=3).connections == 3


async def test_an_append_that_waits_holds_up_none_on_another_connection(world: World) -> None:
    number = await homed(world, {0: 1, 1: 1})
    journal = world.journal(connections=2, lock_seconds=60)
    await journal.connect()
    async with world.holding(number, 0):
        waits = asyncio.ensure_future(journal.append([event_row(number, "a", 1)], on=0))
        await asyncio.sleep(0)
        await journal.append([event_row(number, "b", 1, shard=1)], on=1)
        assert await journal.settle([event_row(number, "b", 1, shard=1)], on=1)
        assert not waits.done()
    await waits
    assert [await journal.last_seq(number, each) for each in "ab"] == [1, 1]


async def test_appends_on_several_connections_are_fenced_alike(world: World) -> None:
    number = await homed(world, {0: 2, 1: 1})
    journal = world.journal(connections=2)
    for on in (0, 1):
        with pytest.raises(ShardsFenced):
            await journal.append([event_row(number, "a", 1)], on=on)
        await journal.append([event_row(number, f"b{on}", 1, shard=1)], on=on)


async def test_followers_read_what_comes_after_a_number(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", seq, payload=b"%d" % seq) for seq in range(1, 6)])
    await journal.append([event_row(number, "b", 1)])
    wanted = [
        Wanted(number, "a", 0, 10), Wanted(number, "a", 2, 2), Wanted(number, "a", 5, 10),
        Wanted(number, "b", 7, 10), Wanted(number, "c", 0, 10), Wanted(number, "b", -1, 0),
    ]  # fmt: skip
    found = await journal.follow(wanted, 10_000)
    assert [each.last for each in found] == [5, 5, 5, 1, 0, 1]
    assert [[event.seq for event in each.events] for each in found] == [
        [1, 2, 3, 4, 5],
        [3, 4],
        [],
        [],
        [],
        [],
    ]
    assert [each.known is None for each in found] == [True, False, False, True, True, True]
    newest = found[0].events[-1].at
    assert [each.newest for each in found[:3]] == [newest] * 3
    assert [each.newest == 0 for each in found] == [False, False, False, False, True, False]
    first = found[0].events[0]
    assert (first.name, first.version, first.payload) == ("shop.ItemAdded", 1, b"1")
    assert found[2].known == found[0].events[4].at == first.at, "the time of its transaction"
    assert abs(first.at / 1e6 - datetime.now(UTC).timestamp()) < 3600


async def test_a_page_for_a_follower_is_bounded_in_bytes(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    text = b'"' + b"x" * 1000 + b'"'
    await journal.append([event_row(number, "a", seq, payload=text) for seq in range(1, 6)])
    found = await journal.follow([Wanted(number, "a", 0, 10), Wanted(number, "a", 1, 10)], 2500)
    assert [[event.seq for event in each.events] for each in found] == [[1, 2, 3], [2, 3, 4]]
    (one,) = await journal.follow([Wanted(number, "a", 1, 10)], 1)
    assert [event.seq for event in one.events] == [2], "one always comes"


async def test_read_from_gives_the_events_after_a_number(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", seq) for seq in range(1, 6)])
    assert await journal.read_from(number, "a", 3) == History(None, [stored(4), stored(5)])
    assert await journal.read_from(number, "a", 5) == History(None, [])
    assert await journal.read_from(number, "b", 0) == History(None, [])


async def test_a_read_brings_so_many_events_of_each_entity_and_says_that_there_are_more(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, entity, seq) for entity in ("a", "b") for seq in range(1, 6)])
    await journal.append([event_row(number, "c", 1)])
    found = await journal.read(number, ["a", "nobody", "b", "c"], Bounds(events=3))
    assert {entity: len(history.events) for entity, history in found.items()} == {
        "a": 3, "nobody": 0, "b": 3, "c": 1
    }  # fmt: skip
    assert [history.more for history in found.values()] == [True, False, True, False]
    page = await journal.read_from(number, "a", 3, Bounds(events=1))
    assert page == History(None, [stored(4)], more=True)
    page = await journal.read_from(number, "a", 4, Bounds(events=3))
    assert page == History(None, [stored(5)])


async def test_what_a_read_has_not_reached_is_not_in_its_answer(world: World) -> None:
    """An entity that was not reached is no entity without a history."""
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, entity, seq) for entity in ("a", "b") for seq in range(1, 5)])
    found = await journal.read(number, ["a", "b", "nobody"], Bounds(rows=6))
    assert list(found) == ["a", "b"]
    assert found["a"] == History(None, [stored(seq) for seq in range(1, 5)])
    assert found["b"] == History(None, [stored(1), stored(2)], more=True)
    found = await journal.read(number, ["nobody", "b"], Bounds(rows=1))
    assert list(found) == ["nobody"]


@pytest.mark.parametrize(
    "letters", [b"x" * 50_000, b"".join(b"%x" % (n * 7919) for n in range(9000))[:50_000]]
)
async def test_a_read_is_bounded_in_bytes_however_well_they_compress(world: World, letters: bytes) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    large = b'"%s"' % letters
    await journal.append(
        [event_row(number, entity, seq, payload=large) for entity in ("a", "b") for seq in (1, 2, 3)]
    )
    await journal.save_snapshots([snapshot(number, "c", 1, state=large)])
    bounds = Bounds(bytes=200_000)
    found = await journal.read(number, ["a", "b", "c"], bounds)
    assert list(found) == ["a", "b"]
    assert len(found["a"].events) == 3
    assert found["b"].more
    assert 1 <= len(found["b"].events) <= 2
    page = await journal.read_from(number, "a", 0, Bounds(bytes=60_000))
    assert len(page.events) == 2
    assert page.more
    assert len((await journal.read_from(number, "a", 0, Bounds(bytes=1))).events) == 1, "one always comes"
    assert (await journal.read(number, ["c", "a"], Bounds(bytes=1)))["c"].snapshot is not None
    last = await journal.read_last(number, ["nobody", "a", "b", "c"], Bounds(bytes=10_000))
    assert last == {"nobody": None, "a": stored(3, large)}


async def test_the_number_of_the_last_event(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", seq) for seq in (1, 2)])
    assert await journal.last_seq(number, "a") == 2
    assert await journal.last_seq(number, "nobody") == 0


async def test_the_home_of_a_shard_is_looked_up_by_its_epoch(world: World) -> None:
    number = await homed(world, {0: 2})
    journal = world.journal()
    assert await journal.is_home(number, 0, 2, "home")
    for other in (
        (number, 0, 1, "home"),
        (number, 0, 2, "n-other"),
        (number, 1, 2, "home"),
        (number + 1, 0, 2, "home"),
    ):
        assert not await journal.is_home(*other)


def snapshot(number: int, entity: str, seq: int, **changes: object) -> Snapshot:
    fields: dict[str, object] = {"shard": 0, "epoch": 1, "state": b'{"n": %d}' % seq} | changes
    return Snapshot(number, entity, seq, **fields)  # type: ignore[arg-type] # made up by the tests


async def test_recovery_starts_from_the_newest_snapshot(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, entity, seq) for seq in range(1, 6) for entity in ("a", "b")])
    await journal.save_snapshots([snapshot(number, "a", 2), snapshot(number, "a", 4)])
    histories = await journal.read(number, ["a", "b"])
    assert histories["a"] == History(snapshot(number, "a", 4), [stored(5)])
    assert await journal.read_snapshot(number, "a", 4) == snapshot(number, "a", 2)
    assert await journal.read_snapshot(number, "a", 2) is None
    assert await journal.read_snapshot(number, "b", 4) is None
    assert [event.seq for event in histories["b"].events] == [1, 2, 3, 4, 5]


async def test_a_snapshot_of_the_same_number_replaces_the_former(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.save_snapshots([snapshot(number, "a", 2)])
    newer = snapshot(number, "a", 2, state=b'{"again": true}')
    await journal.save_snapshots([newer])
    assert (await journal.read(number, ["a"]))["a"].snapshot == newer
    await journal.save_snapshots([])


async def test_snapshots_are_fenced_as_events_are(world: World) -> None:
    number = await homed(world, {0: 2})
    journal = world.journal()
    with pytest.raises(ShardsFenced) as fenced:
        await journal.save_snapshots([snapshot(number, "a", 1, epoch=2), snapshot(number, "b", 1, epoch=1)])
    assert fenced.value.shards == {(number, 0)}
    await journal.save_snapshots([snapshot(number, "a", 1, epoch=2)])
    with pytest.raises(ShardsFenced):
        await journal.save_snapshots([snapshot(number, "a", 1, epoch=1)])
    assert (await journal.read(number, ["a", "b"]))["b"].snapshot is None


async def test_a_snapshot_that_is_not_json_is_refused(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    with pytest.raises(RowRefused):
        await journal.save_snapshots([snapshot(number, "a", 1, state=b"{")])
    with pytest.raises(RowRefused):
        await journal.save_snapshots([snapshot(number, "a", 1, state=b"\xff")])
    assert (await journal.read(number, ["a"]))["a"].snapshot is None


async def test_an_outcome_is_found_by_the_commands_id(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append(
        [
            event_row(number, "a", 1),
            event_row(number, "a", 2, command_id="one", command="add", reply=b"\x91\x02"),
            event_row(number, "a", 3, command_id="two", command="pay", partial=True),
            event_row(number, "b", 1, command_id="three", command="add", reply=b""),
        ]
    )
    assert await journal.outcome(number, "a", "one", WINDOW_MS) == Outcome(2, "add", b"\x91\x02", False)
    assert await journal.outcome(number, "a", "two", WINDOW_MS) == Outcome(3, "pay", None, True)
    assert await journal.outcome(number, "b", "three", WINDOW_MS) == Outcome(1, "add", b"", False)
    assert await journal.outcome(number, "a", "three", WINDOW_MS) is None
    assert await journal.outcome(number, "nobody", "one", WINDOW_MS) is None


async def test_outcomes_that_are_asked_for_together_are_each_ones_own(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append(
        [event_row(number, f"e{each}", 1, command_id="id", command=f"c{each}") for each in range(1200)]
    )
    asked = [
        journal.outcome(number, f"e{each}", "id" if each % 2 else "i\0d", WINDOW_MS) for each in range(1200)
    ]
    answers = await asyncio.gather(*asked)
    assert answers == [Outcome(1, f"c{each}", None, False) if each % 2 else None for each in range(1200)]


async def test_the_last_commit_of_a_command_counts(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1, command_id="one", command="pay", partial=True)])
    await journal.append([event_row(number, "a", 2, command_id="one", command="pay", reply=b"\x01")])
    assert await journal.outcome(number, "a", "one", WINDOW_MS) == Outcome(2, "pay", b"\x01", False)


async def test_an_outcome_older_than_asked_for_is_none(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1, command_id="one", command="add")])
    assert await journal.outcome(number, "a", "one", -60_000) is None
    assert await journal.outcome(number, "a", "one", WINDOW_MS) is not None


async def test_trim_forgets_what_a_kept_snapshot_covers(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, entity, seq) for seq in range(1, 8) for entity in ("a", "b")])
    await journal.save_snapshots([snapshot(number, "a", seq) for seq in (2, 4, 6)])
    await journal.trim(number, "a", 5, 2, -1)
    assert (await journal.read_snapshot(number, "a", 99)) == snapshot(number, "a", 6)
    assert (await journal.read_snapshot(number, "a", 6)) == snapshot(number, "a", 4)
    assert (await journal.read_snapshot(number, "a", 4)) is None
    assert [event.seq for event in (await journal.read_from(number, "a", 0)).events] == [5, 6, 7]
    assert [event.seq for event in (await journal.read_from(number, "b", 0)).events] == [1, 2, 3, 4, 5, 6, 7]


async def test_trim_keeps_what_no_kept_snapshot_covers(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", seq) for seq in range(1, 6)])
    await journal.trim(number, "a", 6, 2, -1)
    assert len((await journal.read_from(number, "a", 0)).events) == 5
    await journal.save_snapshots([snapshot(number, "a", 2)])
    await journal.trim(number, "a", 6, 2, -1)
    assert [event.seq for event in (await journal.read_from(number, "a", 0)).events] == [3, 4, 5]


async def test_trim_keeps_what_the_retry_window_needs(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", seq) for seq in range(1, 6)])
    await journal.save_snapshots([snapshot(number, "a", 4)])
    await journal.trim(number, "a", 5, 1, 3600)
    assert len((await journal.read_from(number, "a", 0)).events) == 5


async def test_trim_leaves_the_highest_number(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", seq) for seq in range(1, 4)])
    await journal.save_snapshots([snapshot(number, "a", 3)])
    await journal.trim(number, "a", 4, 1, -1)
    assert [event.seq for event in (await journal.read_from(number, "a", 0)).events] == [3]


async def test_trim_keeps_the_newest_events(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", seq) for seq in range(1, 9)])
    await journal.save_snapshots([snapshot(number, "a", 7)])
    assert await journal.trim(number, "a", 8, 1, -1, keep_events=9) == 0
    assert await journal.trim(number, "a", 8, 1, -1, keep_events=5) == 3
    assert [event.seq for event in (await journal.read_from(number, "a", 0)).events] == [4, 5, 6, 7, 8]


async def test_pages_of_snapshots_name_the_entities_whose_first_event_may_go(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    rows = [event_row(number, each, seq) for each in ("a", "b", "c", "d") for seq in range(1, 5)]
    await journal.append([*rows, event_row(number, "e", 1)])
    await journal.save_snapshots(
        [snapshot(number, each, seq) for each in ("a", "c", "d") for seq in (2, 3)]
        + [snapshot(number, "e", 1)]
    )

    async def page(after: str, window: float = -1, keep: int = 1, limit: int = 100) -> tuple[object, ...]:
        return tuple(await journal.trimmable(number, after, window, keep, limit))

    assert await page("") == (["a", "c", "d"], ""), "of 'e' there is only the last event, 'b' has no snapshot"
    assert await page("", limit=3) == (["a", "c"], "c")
    assert await page("c", limit=3) == (["d"], "e")
    assert await page("e", limit=3) == ([], "")
    assert await page("", keep=3) == (["a", "c", "d"], "")
    assert await page("", keep=4) == ([], "")
    assert await page("", window=3600.0) == ([], "")
    await journal.trim(number, "c", 9, 2, -1)
    assert await page("") == (["a", "d"], "")


async def values(world: World, number: int, entity: str) -> list[tuple[int, bytes]]:
    history = await world.journal().read_from(number, entity, 0)
    return [(event.seq, event.payload) for event in history.events]


async def test_a_former_value_keeps_what_a_retry_needs_and_nothing_else(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append(
        [
            event_row(
                number, entity, seq, payload=b"[%d]" % seq, command_id=f"c{seq}", command="set", reply=b"1"
            )
            for entity in ("a", "b")
            for seq in range(1, 5)
        ]
    )
    await journal.forget_states(number, [Former("a", 0, 1, 2, 99)], 3600.0)
    assert await values(world, number, "a") == [(1, b"[1]"), (2, b"null"), (3, b"null"), (4, b"[4]")]
    assert await values(world, number, "b") == [(seq, b"[%d]" % seq) for seq in range(1, 5)]
    assert await journal.outcome(number, "a", "c2", WINDOW_MS) == Outcome(2, "set", b"1", False)
    await journal.forget_states(number, [Former("b", 0, 1, 0, 3), Former("nobody", 0, 1, 0, 9)], 3600.0)
    assert await values(world, number, "b") == [(1, b"null"), (2, b"null"), (3, b"[3]"), (4, b"[4]")]
    await journal.forget_states(number, [Former("a", 0, 1, 0, 99), Former("b", 0, 1, 0, 3)], -1.0)
    assert await values(world, number, "a") == [(4, b"[4]")]
    assert await values(world, number, "b") == [(3, b"[3]"), (4, b"[4]")]


async def test_former_values_are_put_away_by_their_home_alone(world: World) -> None:
    """The next home's look at a number must not be misled by a changed epoch, nor the former
    one's.
    """
    number = await homed(world, {0: 1}, home="former")
    store, former, present = world.store(), world.journal("former"), world.journal("present")
    await former.append([event_row(number, "a", seq) for seq in (1, 2)])
    term = (await store.coordinator()).term
    await store.decide(term, [HomeChange(CART.name, 0, 1, 2, "present", "home")])
    with pytest.raises(ShardsFenced) as fenced:
        await former.forget_states(number, [Former("a", 0, 1, 0, 99)], 3600.0)
    assert fenced.value.shards == {(number, 0)}
    await present.append([event_row(number, "a", seq, epoch=2) for seq in (3, 4)])
    await present.forget_states(number, [Former("a", 0, 2, 0, 99)], 3600.0)
    assert [payload for _, payload in await values(world, number, "a")] == [
        *[b'{"sku": "book"}'] * 2, b"null", b'{"sku": "book"}',
    ]  # fmt: skip
    assert await former.settle([event_row(number, "a", 2)])


async def test_rows_that_are_there_are_judged_before_those_that_are_new(world: World) -> None:
    """A statement that updates the one kind and inserts the other has a fence for each: a stale row
    of the first kind is told alone.
    """
    number = await homed(world, {0: 1, 1: 1, 2: 1})
    store, journal = world.store(), world.journal("former")
    there, new = Mark(number, 1, 1, "b", True), Mark(number, 0, 1, "a", True)
    await journal.remember([there])
    await journal.save_snapshots([Snapshot(number, "b", 1, 1, 1, b"1")])
    term = (await store.coordinator()).term
    await store.decide(term, [HomeChange(CART.name, shard, 1, 2, "present", "home") for shard in (0, 1)])
    fenced: list[frozenset[tuple[int, int]]] = []
    for marks in ([new, there], [new, Mark(number, 2, 1, "c", True)]):
        with pytest.raises(ShardsFenced) as refused:
            await journal.remember(marks)
        fenced.append(refused.value.shards)
    for entities in ("ab", "a"):
        with pytest.raises(ShardsFenced) as refused:
            await journal.save_snapshots(
                [Snapshot(number, each, 1, "ab".index(each), 1, b"2") for each in entities]
            )
        fenced.append(refused.value.shards)
    assert fenced == [{(number, 1)}, {(number, 0)}] * 2


async def test_trim_goes_on_where_a_piece_has_ended(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", seq) for seq in range(1, 8)])
    await journal.save_snapshots([snapshot(number, "a", 7)])
    left = []
    while await journal.trim(number, "a", 7, 1, -1, limit=2):
        left.append([event.seq for event in (await journal.read_from(number, "a", 0)).events])
    assert left == [[3, 4, 5, 6, 7], [5, 6, 7], [7]]


async def test_a_journal_opens_again_after_close(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1)])
    await journal.close()
    await journal.append([event_row(number, "a", 2)])
    assert len((await journal.read_from(number, "a", 0)).events) == 2


async def test_homes_of_another_type_do_not_open_the_fence(world: World) -> None:
    number = await homed(world, {0: 1})
    other = await with_type(world.store(), msgspec.structs.replace(CART, name="shop.Other"))
    assert other != number
    with pytest.raises(ShardsFenced) as fenced:
        await world.journal().append([event_row(other, "a", 1), event_row(number, "a", 1)])
    assert fenced.value.shards == {(other, 0)}


async def test_an_id_that_cannot_be_stored_has_no_history(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1)])
    strange = ["\ud800", "b\0", ""]
    histories = await journal.read(number, [*strange, "a"])
    assert histories["a"] == History(None, [stored(1)])
    assert all(histories[entity] == History(None, []) for entity in strange)
    assert await journal.read_last(number, [*strange, "a"]) == {"a": stored(1)} | dict.fromkeys(strange)
    for entity in strange:
        assert await journal.read_from(number, entity, 0) == History(None, [])
        await journal.forget_states(number, [Former(entity, 0, 1, 0, 5)], 1.0)
        await journal.trim(number, entity, 5, 1, 1.0)


async def test_an_entity_is_erased_in_pieces_from_its_end(world: World) -> None:
    """Between two pieces there is a history without a gap; snapshot and remembered id go with the
    first event.
    """
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", seq) for seq in range(1, 6)])
    await journal.save_snapshots([Snapshot(number, "a", 1, 0, 1, b"{}")])
    await journal.remember([Mark(number, 0, 1, "a", True)])
    sums, left = [], []
    erased = Erasure(whole=False)
    while not erased.whole:
        erased += await journal.erase(number, 0, 1, "a", at_most=2, before=erased, by="x")
        sums.append((erased.events, erased.snapshots, erased.remembered))
        left.append([each.seq for each in (await journal.read_from(number, "a", 0)).events])
    assert sums == [(2, 0, 0), (4, 0, 0), (5, 1, 1)]
    assert left == [[1, 2, 3], [1], []]


async def test_an_erased_entity_leaves_nothing_and_others_all(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, entity, seq) for entity in ("a", "b") for seq in (1, 2)])
    await journal.save_snapshots([Snapshot(number, "a", 2, 0, 1, b"{}")])
    await journal.remember([Mark(number, 0, 1, "a", True), Mark(number, 0, 1, "b", True)])
    with pytest.raises(ShardsFenced) as fenced:
        await journal.erase(number, 0, 2, "a", at_most=9, before=Erasure(), by="an operator")
    assert fenced.value.shards == {(number, 0)}
    for expected in (Erasure(events=2, snapshots=1, remembered=1), Erasure()):
        assert await journal.erase(number, 0, 1, "a", at_most=9, before=Erasure(), by="x") == expected
    assert await journal.read(number, ["a", "b"]) == {
        "a": History(None, []),
        "b": History(None, [stored(1), stored(2)]),
    }
    assert await journal.recall(number, [0]) == {0: ["b"]}


async def test_an_entity_that_is_not_as_its_archive_has_it_stays(world: World) -> None:
    number = await homed(world, {0: 1})
    journal = world.journal()
    await journal.append([event_row(number, "a", 1)])
    assert await journal.archive(number, 0, 1, "a", mark="as it was") == Archival(left="changed")
    assert await journal.archive(number, 0, 1, "b", mark="as it was") == Archival(left="gone")
    with pytest.raises(ShardsFenced) as fenced:
        await journal.archive(number, 0, 2, "a", mark="as it was")
    assert fenced.value.shards == {(number, 0)}
    assert await journal.read(number, ["a"]) == {"a": History(None, [stored(1)])}


async def test_nothing_is_done_on_a_server_of_another_lineage(world: World) -> None:
    type_id = await homed(world, {0: 1})
    server, _ = await world.store().members()
    journal = world.journal()
    await journal.append([event_row(type_id, "a", 1)])
    journal.live_in(Lineage(server.system, server.timeline + 1))
    for _ in range(2):
        with pytest.raises(JournalUnavailable):
            await journal.append([event_row(type_id, "a", 2)])
        with pytest.raises(JournalUnavailable):
            await journal.read(type_id, ["a"])
        with pytest.raises(JournalUnavailable):
            await journal.is_home(type_id, 0, 1, "home")
    journal.live_in(server.lineage)
    await journal.append([event_row(type_id, "a", 2)])
    assert [each.seq for each in (await journal.read(type_id, ["a"]))["a"].events] == [1, 2]
