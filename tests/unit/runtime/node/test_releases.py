"""Releases N-1 and N run mixed; a node further away is kept out, told why, and shown."""

import asyncio
import dataclasses
import datetime as dt
import logging

import pytest

from sharding_app.entities.registry import registry
from sharding_app.operations.snapshot import ClusterSnapshot, NodeAnswers, TypeRow
from sharding_app.operations.status import report
from sharding_app.protocol.builtin_commands import START
from sharding_app.protocol.call import Call
from sharding_app.protocol.versions import WIRE, Wire, kept_out
from sharding_app.runtime.node.node import Node
from sharding_app.runtime.node.process import Process, WireRefused
from tests.support.shard_groups import groups_of
from tests.support.slack import SLACK
from tests.unit.protocol.coordinator.coordination import Play, node
from tests.unit.runtime.counter_cluster import CONFIG, until
from tests.unit.runtime.counters import Counter, Get, Increment, counters, to
from tests.unit.runtime.node.mixed_releases import (
    FAR,
    FORMER,
    NEXT,
    PRESENT,
    MixedCluster,
    with_fields_from_the_future,
    without_the_newest_fields,
)

pytestmark = pytest.mark.asyncio

IDS = [str(number) for number in range(60)]


def mixed(nodes: int = 0) -> MixedCluster:
    made = MixedCluster([registry.get("protocol.Counter")], nodes=nodes, config=CONFIG)
    made.transports = []
    return made


async def test_f7_two_neighbouring_releases_serve_in_one_cluster() -> None:
    """Each gets from the other what it does not know, or lacks what is new; shards move between
    them.
    """
    async with mixed() as cluster:
        old = await cluster.add_release("old", FORMER, without_the_newest_fields)
        async with asyncio.timeout(20 * SLACK):
            new = await cluster.add_release("new", PRESENT, with_fields_from_the_future)
        await until(lambda: _states(old) == ["up", "up"])
        with cluster.in_use():
            await asyncio.gather(*(counters.ask(to(each, Increment())) for each in IDS))
            assert {cluster.home_of(Counter, each) for each in IDS} == {"old", "new"}
            assert await asyncio.gather(*(counters.ask(Get(each)) for each in IDS)) == [1] * len(IDS)
            for each in (old, new):
                assert await asyncio.gather(*(_is_there(each, other) for other in IDS)) == [True] * len(IDS)
            await cluster.add_release("older", FORMER, without_the_newest_fields)
            new.leave_region("protocol.Counter")
            await until(lambda: not new.hosts["protocol.Counter"].shards)
            answers = await asyncio.gather(*(counters.ask(Get(each)) for each in IDS))
            assert set(answers) == {0, 1}, "who moved began anew, its count was in memory"
            await cluster.kill_node("old")
            await until(lambda: new.coordinator is not None)
            answers = await asyncio.gather(
                *(counters.ask(Get(each), timeout=10, command_id="again") for each in IDS)
            )
            assert len(answers) == len(IDS)
        assert sum(each.written for each in cluster.transports) > 100, "their messages were translated"
        for each in cluster.nodes.values():
            counts = each.links.statistics().counters
            assert not any("unreadable" in name or "wire" in name for name in counts), counts


async def test_f7_a_release_that_is_too_far_away_stays_outside_until_the_others_are_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, "sharding.node")
    async with mixed() as cluster:
        await cluster.add_release("first", FORMER)
        joining = asyncio.ensure_future(cluster.add_release("far", NEXT))
        await until(lambda: "is refused" in caplog.text)
        assert (
            "node far is refused: it writes wire version 2 and reads 1 to 2, node first writes wire version 1"
            in caplog.text
        )
        with cluster.in_use():
            await asyncio.gather(*(counters.ask(to(each, Increment())) for each in IDS))
        assert {cluster.home_of(Counter, each) for each in IDS} == {"first"}
        assert not joining.done()
        found = report(await snapshot(cluster), NodeAnswers(regions={}))
        assert any("Node far is refused: it writes wire version 2" in each.what for each in found.problems)
        assert not found.healthy
        second = await cluster.client.ports.store.members()
        assert [each.state for each in second[1]] == ["up", "joining"]
        await cluster.client.ports.store.leave("nobody")
        await cluster.stop_node("first")
        await joining
        assert cluster.nodes["far"].state == "up", "there is no node left that it would not understand"


async def test_f7_a_process_that_only_asks_is_told_too() -> None:
    async with mixed() as cluster:
        await cluster.add_release("first", FORMER)
        config = dataclasses.replace(CONFIG, wire=FAR)
        ports, types = cluster._ports("p-web"), [registry.get("protocol.Counter")]
        web = Process("p-web", config, ports, types, cluster.server.cluster_id)
        with pytest.raises(
            WireRefused, match="this process is refused: it writes wire version 3 and reads 2 to 3"
        ):
            await web.start()
        await web.close()


async def test_frames_of_another_wire_are_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """One that slipped in between: it asked before there was any node to compare with."""
    async with mixed() as cluster:
        config = dataclasses.replace(CONFIG, wire=FAR)
        ports, types = cluster._ports("p-web"), [registry.get("protocol.Counter")]
        web = Process("p-web", config, ports, types, cluster.server.cluster_id)
        await web.start()
        first = await cluster.add_release("first", FORMER)
        asking = asyncio.ensure_future(web.ask(Call("protocol.Counter", "1", START, b"")))
        await until(lambda: first.links.statistics().counters.get("frames_of_another_wire", 0) > 0)
        assert "p-web writes wire version 3" in caplog.text
        asking.cancel()
        await web.close()


def _states(coordinating: Node) -> list[str]:
    if coordinating.coordinator is None:
        return []
    return [each.state for each in coordinating.coordinator.machine.members.values()]


async def _is_there(asking: Process, entity: str) -> bool:
    return await asking.ask(Call("protocol.Counter", entity, START, b"")) is not None


async def snapshot(cluster: MixedCluster) -> ClusterSnapshot:
    store = cluster.client.ports.store
    _, members = await store.members()
    now = dt.datetime.now(dt.UTC)
    types = [TypeRow(number, each, now) for number, each in enumerate(await store.types(), 1)]
    return ClusterSnapshot(
        now=now, cluster_id=cluster.server.cluster_id, members=members,
        coordinator=await store.coordinator(), types=types, shards=groups_of(await store.shards()),
        joined={}, elected=None, events=0,
    )  # fmt: skip


async def test_who_understands_whom() -> None:
    assert FORMER.understands(PRESENT)
    assert PRESENT.understands(NEXT)
    assert not FORMER.understands(NEXT)
    assert not FAR.understands(PRESENT)
    assert WIRE.understands(FORMER), "this release and the first"
    assert str(Wire(1, 1, 1)) == "writes wire version 1 and reads 1"
    old, new = node("a", 1, wire=FORMER), node("b", 2, wire=NEXT, state="joining")
    assert list(kept_out([old, new])) == ["b"]
    both = [node("a", 1, wire=FORMER, state="joining"), new]
    assert list(kept_out(both)) == ["b"], "of two that join together the older one counts"
    assert kept_out([node("a", 1, wire=FORMER, locks=0), new]) == {}, "the dead keep no node out"


async def test_one_that_is_kept_out_holds_up_no_move() -> None:
    play = Play([node("a", 1)])
    play.ask("a", *range(12))
    play.join(node("b", 2, wire=NEXT, state="joining"), node("c", 3))
    play.wait(25.0)
    assert len(play.shards_of("c")) == 6
    assert play.shards_of("b") == []
