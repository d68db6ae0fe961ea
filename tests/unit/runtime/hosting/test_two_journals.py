"""Shards in two journals: each promise of a shard is kept within its own, and one that is down
stops its own shards only.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio

from sharding_app import AskTimeout, Entity, ShardingSettings, command
from sharding_app.adapters.memory import MemoryJournal, MemoryServer
from sharding_app.errors import Unavailable
from sharding_app.ports.journal import (
    EventRow,
    JournalOfAnother,
    JournalUnavailable,
    Owned,
    ShardsFenced,
    Taken,
)
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.messages import HostShard
from sharding_app.protocol.records import Lineage
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.base.shared_round import Rounds
from sharding_app.runtime.hosting.journal_part import JournalPart, JournalWatch
from sharding_app.runtime.hosting.shard_leases import ShardGate
from sharding_app.runtime.hosting.shards import ShardLife
from sharding_app.runtime.hosting.starting import Starting
from tests.support.slack import SLACK
from tests.unit.runtime.two_journals import SECOND, SHARDS, Purse, TwoJournals, some
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio


class Lantern(Entity, name="journals.Lantern"):
    settings = ShardingSettings(remember_entities=True)

    def __init__(self) -> None:
        self.times = 0

    @command
    def light(self) -> int:
        self.times += 1
        return self.times


HERE, THERE = some("", 5), some(SECOND, 5)
CONFIG = NodeConfig(number_of_shards=SHARDS, ask_timeout_seconds=4.0, step_aside_after_seconds=3.0)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[TwoJournals]:
    async with TwoJournals([Purse], nodes=2, config=CONFIG) as made:
        with made.in_use():
            yield made


def stored(server: MemoryServer) -> Counter[str]:
    return Counter({entity: len(rows) for (_, entity), rows in server.journal.events.items()})


async def pay_all(cents: int = 1) -> dict[str, int]:
    ids = [*HERE, *THERE]
    return dict(zip(ids, await asyncio.gather(*(Purse.ref(each).pay(cents) for each in ids)), strict=True))


async def test_events_lie_in_the_journal_of_their_shard(cluster: TwoJournals) -> None:
    await pay_all()
    await pay_all()
    assert stored(cluster.server) == Counter(dict.fromkeys(HERE, 2))
    assert stored(cluster.second) == Counter(dict.fromkeys(THERE, 2))


def part_of(name: str, done: list[str], clusters: JournalPart | None = None) -> JournalPart:
    """A part of a node, with a journal that notes what is done."""

    async def secure() -> None:
        if f"{name} is down" in done:
            raise JournalUnavailable("it is down")
        done.append(f"{name} secured")

    async def take(*_: object) -> Taken:
        done.append(f"{name} taken")
        return Taken(frozenset({3}), uses_messages=False)

    journal: Any = SimpleNamespace(take=take)
    nothing: Any = None
    part = JournalPart(name, journal, nothing, nothing, nothing, nothing, Rounds(secure))
    part.clusters, part.trouble = clusters, ""
    return part


async def test_the_row_that_says_where_a_shard_lies_is_secured_before_the_shard_is_taken_there() -> None:
    """A failover of DATABASE would lose the row, and leave there what its home has acknowledged."""
    done: list[str] = []
    clusters = part_of("", done)
    second = part_of(SECOND, done, clusters)
    assert await second.take("journals.Purse", 1, "n1", {3: 5}, None) == (frozenset({3}), False)
    assert done == [" secured", f"{SECOND} taken", f"{SECOND} secured"]
    done[:] = [" is down"]
    with pytest.raises(JournalUnavailable):
        await second.take("journals.Purse", 1, "n1", {3: 5}, None)
    assert done == [" is down"]


async def test_the_clusters_own_journal_is_secured_once() -> None:
    done: list[str] = []
    await part_of("", done).take("journals.Purse", 1, "n1", {3: 5}, None)
    assert done == [" secured"]


async def test_a_shard_that_moves_reads_its_events_from_its_journal(cluster: TwoJournals) -> None:
    await pay_all()
    await cluster.add_node("late")
    await cluster.stop_node("node1")
    assert set((await pay_all()).values()) == {2}
    await cluster.kill_node("node2")
    assert set((await pay_all()).values()) == {3}


async def test_a_home_takes_its_shards_before_it_reads_them(cluster: TwoJournals) -> None:
    """A former home that is frozen writes nothing once the next one has begun."""
    await pay_all()
    type_id = cluster.server.cluster.type_ids["journals.Purse"]
    before = dict(cluster.second.cluster.epochs)
    frozen = MemoryJournal(cluster.second, "n-frozen")
    await cluster.stop_node("node1")
    await cluster.stop_node("node2")
    await cluster.add_node("next")
    await pay_all()
    (entity, *_), after = THERE, cluster.second.cluster.epochs
    assert all(after[key] > epoch for key, epoch in before.items())
    shard = shard_of(entity, SHARDS)
    late = EventRow(type_id, entity, 3, shard, before[type_id, shard], "Paid", 1, b"{}", None, None, None)
    with pytest.raises(ShardsFenced):
        await frozen.append([late])


async def test_an_epoch_that_a_journal_has_refused_begins_no_more(
    cluster: TwoJournals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator hears that it is over, and has asked again before: the second take is right,
    by the numbers of a resize, say.
    """
    refused: set[tuple[int, int]] = set()
    begun: set[tuple[int, int]] = set()
    take, start = JournalPart.take, ShardLife.start

    async def takes(self: JournalPart, type_name: str, type_id: int, me: str, told: Any, numbers: Any) -> Any:
        new = {*told.items()} - refused
        if self.name != SECOND or len(refused) >= len(THERE) or not new:
            return await take(self, type_name, type_id, me, told, numbers)
        refused.update(new)
        node = next(each for each in cluster.nodes.values() if each.incarnation == me)
        again = HostShard(node.locator.term, type_name, [*told], [*told.values()])
        await node.hosting.start(str(node.locator.coordinator), again)
        return frozenset(), False

    def starts(self: ShardLife, number: int, epoch: int, *, uses_messages: bool) -> None:
        if self._host.type.name == "journals.Purse":
            begun.add((number, epoch))
        start(self, number, epoch, uses_messages=uses_messages)

    monkeypatch.setattr(JournalPart, "take", takes)
    monkeypatch.setattr(ShardLife, "start", starts)
    assert set((await pay_all()).values()) == {1}
    assert len(refused) >= len(THERE)
    assert not refused & begun


async def test_a_copy_that_a_shard_has_left_behind_is_not_used(
    cluster: TwoJournals, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database of `DATABASE` has lost the move: calls wait, and the node says why, once. It
    asks again at the same epoch, so nodes and coordinator do not spin.
    """
    await pay_all()
    left, other = THERE[:2]
    type_id = cluster.server.cluster.type_ids["journals.Purse"]
    shard = shard_of(left, SHARDS)
    cluster.second.cluster.left[type_id, shard] = "third"
    asked: list[int] = []
    take = MemoryJournal.take

    async def takes(
        self: MemoryJournal, name: str, type_id: int, numbers: Any, shards: Any, me: Any
    ) -> Taken:
        asked.extend(epoch for each, epoch in shards.items() if each == shard)
        return await take(self, name, type_id, numbers, shards, me)

    monkeypatch.setattr(MemoryJournal, "take", takes)
    await cluster.add_node("late")
    for name in ("node1", "node2"):
        await cluster.stop_node(name)
    assert await Purse.ref(other).pay(1) == 2
    waiting = asyncio.ensure_future(Purse.ref(left).pay(1))
    with caplog.at_level("ERROR", "sharding.journal"):
        await until(lambda: "lies in the journal 'second'" in caplog.text)
        await until(lambda: len(asked) > 20)
    assert caplog.text.count("has moved to 'third'") == len(set(asked)) <= 2
    assert not waiting.done()
    del cluster.second.cluster.left[type_id, shard]
    assert await waiting == 2


async def test_a_journal_that_is_down_stops_its_own_shards_only(cluster: TwoJournals) -> None:
    await pay_all()
    cluster.second.stop()
    waiting = asyncio.ensure_future(Purse.ref(THERE[0]).pay(1))
    for _ in range(3):
        assert len(await asyncio.gather(*(Purse.ref(each).pay(1) for each in HERE))) == len(HERE)
    # A shard that has no home yet gets one, and waits; others are not held up by it.
    new = some(SECOND, 40)[-1]
    begun = asyncio.ensure_future(Purse.ref(new).pay(1))
    fresh = some("", 40)[-1]
    assert await Purse.ref(fresh).pay(1) == 1
    assert not waiting.done()
    assert not begun.done()
    cluster.second.start()
    assert await waiting == 2
    assert await begun == 1


async def test_ids_of_all_journals_are_listed_in_one_order(cluster: TwoJournals) -> None:
    await pay_all()
    assert [each.entity_id async for each in Purse.refs()] == sorted([*HERE, *THERE])
    cluster.second.stop()
    with pytest.raises((AskTimeout, Unavailable)):
        async for _ in Purse.refs():
            pass


async def test_ids_of_copies_are_not_listed(cluster: TwoJournals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard has left a copy behind, or is on its way: its ids count where it lies."""
    await pay_all()
    type_id = cluster.server.cluster.type_ids["journals.Purse"]
    ours, theirs = cluster.server.journal.events, cluster.second.journal.events
    *stored, gone = some("", 6)
    theirs[type_id, HERE[0]] = dict(ours[type_id, HERE[0]])
    theirs[type_id, gone] = dict(ours[type_id, HERE[0]])
    ours[type_id, THERE[0]] = dict(theirs[type_id, THERE[0]])
    assert [each.entity_id async for each in Purse.refs()] == sorted([*stored, *THERE])
    monkeypatch.setattr("sharding_app.protocol.listing.PAGE_IDS", 2)
    assert [each.entity_id async for each in Purse.refs()] == sorted([*stored, *THERE])


async def test_after_a_failover_the_shards_of_that_journal_are_read_again(cluster: TwoJournals) -> None:
    """Those of the other journal stay where they are, at their epochs."""
    await pay_all()
    epochs = dict(cluster.server.cluster.epochs)
    cluster.second.standby.part(asynchronous=True)
    assert set(await asyncio.gather(*(Purse.ref(each).pay(10) for each in THERE))) == {11}
    cluster.second.fail_over()
    await until(lambda: all(part.journal.lineage is None or part.journal.lineage.timeline == 2
                            for node in cluster.nodes.values() for part in node.hosting.parts[1:]))  # fmt: skip
    assert set(await asyncio.gather(*(Purse.ref(each).pay(1) for each in THERE))) == {2}
    assert set(await asyncio.gather(*(Purse.ref(each).pay(1) for each in HERE))) == {2}
    type_id = cluster.server.cluster.type_ids["journals.Purse"]
    there = {key for key in cluster.second.cluster.epochs if key[0] == type_id}
    assert {key for key in epochs if cluster.server.cluster.epochs[key] != epochs[key]} == there


async def test_objects_in_memory_stay_where_a_failover_loses_that_their_shards_were_taken() -> None:
    async with TwoJournals([Lantern], nodes=2, config=CONFIG) as cluster:
        with cluster.in_use():
            ids = some(SECOND, 5, "journals.Lantern")
            cluster.second.standby.part(asynchronous=True)
            assert await asyncio.gather(*(Lantern.ref(each).light() for each in ids)) == [1] * 5
            epochs = dict(cluster.server.cluster.epochs)
            cluster.second.fail_over()
            assert not cluster.second.journal.remembered
            await until(
                lambda: (
                    sorted(each for row in cluster.second.journal.remembered.values() for each in row)
                    == sorted(ids)
                )
            )
            assert await asyncio.gather(*(Lantern.ref(each).light() for each in ids)) == [2] * 5
            assert cluster.server.cluster.epochs == epochs


async def test_shards_are_given_up_once_for_a_lineage_however_often_the_taking_fails() -> None:
    """Each time it would start to store remembered entities and timers once more."""
    done: list[str] = []
    lineages = [Lineage("system", 1), *[Lineage("system", 2)] * 3]

    async def own(_: str) -> Owned:
        return Owned("here", lineages.pop(0), uses_messages=False)

    async def place(name: str, found: str) -> tuple[str, str]:
        return name, found

    async def take_again(_: JournalPart) -> None:
        done.append("taken")
        if len(done) < 4:
            raise StoreUnavailable("away")

    nothing: Any = None
    journal: Any = SimpleNamespace(
        own=own, live_in=lambda lineage: done.append(f"lives in {lineage.timeline}")
    )
    deliverer: Any = SimpleNamespace(told=lambda **_: None)
    store: Any = SimpleNamespace(journal_place=place)
    part = JournalPart(SECOND, journal, nothing, nothing, deliverer, nothing, nothing)
    watch = JournalWatch(part, "n-1", "one", store, lambda _: done.append("given up"), take_again)
    assert [await watch.look() for _ in range(4)] == ["", "away", "", ""]
    assert done == ["lives in 1", "given up", "taken", "taken", "lives in 2"]


async def test_a_home_that_may_not_store_timers_gives_its_shard_up() -> None:
    """Its next home stores them, and that may be the same node."""
    fenced: list[object] = []

    async def timers(*_: object) -> tuple[float, dict[str, str]]:
        raise ShardsFenced(frozenset({(7, 0)}))

    host: Any = SimpleNamespace(
        journal=SimpleNamespace(timers=timers),
        execution=SimpleNamespace(type_id=7),
        fenced_shard=fenced.append,
    )
    slot: Any = SimpleNamespace(id="the", is_gone=False, shard=SimpleNamespace(stopping=False))
    await Starting(host).keep_timers(slot)
    assert fenced == [slot.shard]


async def test_a_database_of_another_cluster_is_not_used(cluster: TwoJournals) -> None:
    with pytest.raises(JournalOfAnother, match=cluster.server.cluster_id):
        await MemoryJournal(cluster.second, "n-stranger").own("another")
    await pay_all()


async def test_an_alias_that_leads_to_another_database_is_noticed(cluster: TwoJournals) -> None:
    """Two nodes that write a shard's events in two databases would keep no promise."""
    await pay_all()
    elsewhere = MemoryServer(now=cluster.loop.time, steady=cluster.loop.time)
    elsewhere.system = "another"
    cluster.second = elsewhere
    with pytest.raises(StoreUnavailable, match="leads to another"):
        await cluster.add_node("misled")
    assert stored(elsewhere) == Counter()


async def test_a_database_that_the_cluster_has_left_while_it_was_away_is_not_used_again(
    cluster: TwoJournals,
) -> None:
    """An operator has adopted a copy of it, which has no event that the former one stores later."""
    await pay_all()
    nodes = list(cluster.nodes.values())
    cluster.second.stop()
    await until(lambda: all(part.trouble for node in nodes for part in node.hosting.parts[1:]))
    await until(lambda: not any(cluster.server.cluster.journals_of.values()))
    cluster.server.cluster.places[SECOND] = "the copy"
    cluster.second.start()
    await until(
        lambda: all(
            "the cluster knows the journal 'second' as the database the copy" in part.trouble
            for node in nodes
            for part in node.hosting.parts[1:]
        )
    )
    assert not any(cluster.server.cluster.journals_of.values())
    before = stored(cluster.second)
    with pytest.raises((AskTimeout, Unavailable)):
        await Purse.ref(THERE[0]).pay(1)
    assert await Purse.ref(HERE[0]).pay(1) == 2
    assert stored(cluster.second) == before


async def test_a_node_that_cannot_use_a_journal_which_others_use_gives_its_shards_up(
    cluster: TwoJournals,
) -> None:
    await pay_all()
    node = cluster.nodes["node1"]
    cluster.cut_off_from_second.add(node.incarnation)
    assert await asyncio.wait_for(node.ended, 30 * SLACK) == "cut off"
    await node.close()  # as its process does, before it begins anew
    del cluster.nodes["node1"]
    assert set((await pay_all()).values()) == {2}
    assert not cluster.nodes["node2"].ended.done()


async def test_a_journal_that_no_node_can_use_ends_none(cluster: TwoJournals) -> None:
    await pay_all()
    cluster.second.stop()
    nodes = list(cluster.nodes.values())
    await until(lambda: all(part.trouble for node in nodes for part in node.hosting.parts[1:]))
    await asyncio.sleep(2 * CONFIG.step_aside_after_seconds)
    assert not any(node.ended.done() for node in nodes)
    cluster.second.start()
    assert set((await pay_all()).values()) == {2}


async def test_a_node_does_not_come_up_while_it_cannot_use_a_journal_which_others_use(
    cluster: TwoJournals,
) -> None:
    await pay_all()
    cluster.cut_off_from_second.add("n-late-3")
    with pytest.raises(StoreUnavailable, match=r"cut off.*the journal second"):
        await cluster.add_node("late")


async def test_a_node_comes_up_where_no_node_can_use_a_journal(cluster: TwoJournals) -> None:
    cluster.second.stop()
    nodes = list(cluster.nodes.values())
    await until(lambda: all(part.trouble for node in nodes for part in node.hosting.parts[1:]))
    await cluster.add_node("late")
    assert len(await asyncio.gather(*(Purse.ref(each).pay(1) for each in HERE))) == len(HERE)


async def test_the_limit_of_entities_is_one_for_the_shards_of_all_journals(cluster: TwoJournals) -> None:
    """It bounds the node's memory: with a part for each journal it must not grow."""
    await cluster.stop_node("node2")
    node = cluster.nodes["node1"]
    for host in node.hosting.hosts_of("journals.Purse"):
        host.entity_life.set_limit(8)
    shards = [shard_of(each[0], SHARDS) for each in (HERE, THERE)]
    ids = [f"m{number}" for number in range(20_000)]
    of_both = [[each for each in ids if shard_of(each, SHARDS) == shard][:10] for shard in shards]
    for each in [each for group in of_both for each in group]:
        assert await Purse.ref(each).pay(1) == 1
    hosts = node.hosting.hosts_of("journals.Purse")
    assert [len(host.shards) for host in hosts] == [1, 1]
    await until(lambda: sum(host.entities for host in hosts) <= 8)
    assert all(host.entities for host in hosts)


async def test_a_shard_that_waits_for_its_lease_is_found_where_it_waits(cluster: TwoJournals) -> None:
    """A hand-off has to reach that host: else its wish for the lease would stay."""
    hosting = cluster.nodes["node1"].hosting
    _, there = hosting.hosts_of("journals.Purse")
    there.gate = cast(ShardGate, SimpleNamespace(wanted={7: 99}))
    assert hosting.host_at("journals.Purse", 7) is there
    assert hosting.host_at("journals.Purse", 8) is not there
    there.gate = None
