"""Durable-state entities: the last value instead of events, the same guarantees."""

import asyncio
from collections.abc import Sequence

import pytest

from sharding_app import EntityFailed, NotSerializable, PartiallyApplied, Rejected
from sharding_app.ports.journal import Former, JournalUnavailable, RowRefused
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.journal import snapshots
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Profile
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


def values(cluster: MemoryCluster, entity_id: str = "p") -> list[bytes]:
    return [data for _, _, data in cluster.events_raw(Profile, entity_id)]


async def test_each_change_is_stored_and_no_change_is_not(cluster: MemoryCluster) -> None:
    profile = Profile.ref("p")
    assert not await profile.exists()
    assert await profile.rename("joe") == ""
    assert await profile.rename("joe") == "joe"
    assert await profile.visit() == 1
    assert values(cluster) == [b'{"name":"joe","visits":0}', b'{"name":"joe","visits":1}']
    assert await profile.exists()


async def test_it_is_recovered_from_the_last_value(cluster: MemoryCluster) -> None:
    await Profile.ref("p").rename("joe")
    await Profile.ref("p").visit()
    cluster.forget()
    assert await Profile.ref("p").show() == ("joe", 1)
    assert await Profile.ref("p").visit() == 2
    assert await Profile.ref("q").show() == ("", 0)


async def test_the_answer_comes_after_the_commit(cluster: MemoryCluster) -> None:
    profile = Profile.ref("p")
    await profile.show()
    with cluster.writes_wait():
        visit = asyncio.ensure_future(profile.visit())
        show = asyncio.ensure_future(profile.show())
        await travel(0.2)
        assert not visit.done()
        assert not show.done()
    assert await visit == 1
    assert await show == ("", 1)


async def test_what_fails_is_put_back(cluster: MemoryCluster) -> None:
    profile = Profile.ref("p")
    await profile.visit()
    with pytest.raises(EntityFailed, match="after the change"):
        await profile.visit_then_raise()
    with pytest.raises(Rejected, match="changed my mind"):
        await profile.visit_then_reject()
    with pytest.raises(NotSerializable, match=r"Expected `int`, got `str` - at `\$.visits`"):
        await profile.break_state()
    assert await profile.show() == ("", 1)
    assert len(values(cluster)) == 1


async def test_a_refused_write_is_put_back(cluster: MemoryCluster) -> None:
    profile = Profile.ref("p")
    await profile.visit()
    cluster.fail_next_write(Profile, "p", reason="disk on fire")
    with pytest.raises(NotSerializable, match="disk on fire"):
        await profile.visit()
    assert await profile.visit() == 2


async def test_an_intermediate_persist(cluster: MemoryCluster) -> None:
    assert await Profile.ref("p").visit_in_two() == 11
    assert values(cluster) == [b'{"name":"","visits":1}', b'{"name":"","visits":11}']


async def test_it_moves_with_its_shard() -> None:
    async with MemoryCluster([Profile], nodes=2) as cluster:
        with cluster.in_use():
            await Profile.ref("p").rename("joe")
            first = cluster.home_of(Profile, "p")
            await cluster.stop_node(first)
            assert await Profile.ref("p").show() == ("joe", 0)
            assert cluster.home_of(Profile, "p") not in ("", first)


async def test_a_retry_takes_effect_once(cluster: MemoryCluster) -> None:
    first = Profile.ref("p", command_id="visit-1")
    assert await first.visit() == 1
    await Profile.ref("p").visit()
    assert await first.visit() == 1
    cluster.forget()
    assert await first.visit() == 1
    assert await Profile.ref("p").show() == ("", 2)


async def test_a_retry_of_what_was_partly_stored(cluster: MemoryCluster) -> None:
    profile = Profile.ref("p", command_id="two")
    with cluster.writes_wait():
        asyncio.ensure_future(profile.visit_in_two()).add_done_callback(lambda each: each.exception())
        await travel(0.2)
        cluster.fail_next_write(Profile, "p")
    await travel(0.2)
    assert await Profile.ref("p").show() == ("", 0)
    assert await profile.visit_in_two() == 11, "nothing was stored: it runs"

    other = Profile.ref("q", command_id="two")
    await Profile.ref("q").show()
    writes = 0

    def on_commit(rows: object) -> None:
        nonlocal writes
        writes += 1
        if writes == 1:
            cluster.fail_next_write(Profile, "q")

    cluster.server.journal.on_commit = on_commit
    with pytest.raises(PartiallyApplied):
        await other.visit_in_two()
    with pytest.raises(PartiallyApplied, match="had committed a part"):
        await other.visit_in_two()
    assert await other.show() == ("", 1)


def kept_bytes(cluster: MemoryCluster, entity_id: str = "p") -> int:
    return sum(len(each) for each in values(cluster, entity_id) if each != b"null")


async def test_former_values_are_forgotten_after_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "FORGET_EVERY", 10)
    config = NodeConfig(command_window_seconds=60.0, passivate_after_seconds=0.0)
    async with MemoryCluster([Profile], config=config) as cluster:
        with cluster.in_use():
            for _ in range(9):
                await Profile.ref("p").visit()
            await travel(121.0)
            for _ in range(3):
                await Profile.ref("p").visit()
            await until(lambda: len(values(cluster)) == 3)
            cluster.forget()
            assert await Profile.ref("p").visit() == 13


@pytest.mark.parametrize("leaves", ["idle", "stops"])
async def test_an_entity_that_leaves_the_memory_leaves_one_value(leaves: str) -> None:
    """What a retry needs stays beside it; the next recovery finds that old, and forgets it."""
    async with MemoryCluster([Profile], config=NodeConfig(command_window_seconds=60.0)) as cluster:
        with cluster.in_use():
            for number in range(9):
                await Profile.ref("p", command_id=f"c{number}").visit()
            host = cluster.nodes["node1"].hosts["entities.Profile"]
            if leaves == "idle":
                await travel(0.01)
                host.entity_life.forget_idle()
            else:
                (slot,) = (each for shard in host.shards.values() for each in shard.slots.values())
                host.entity_life.passivate(slot)
            await until(lambda: values(cluster)[:8] == [b"null"] * 8)
            assert await Profile.ref("p", command_id="c3").visit() == 4, "a retry has its reply"
            assert await Profile.ref("p").show() == ("", 9)
            await travel(121.0)
            cluster.forget()
            assert await Profile.ref("p").show() == ("", 9)
            await until(lambda: len(values(cluster)) == 1)
            assert await Profile.ref("p").visit() == 10


async def test_large_former_values_go_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "FORGET_BYTES", 50_000)
    async with MemoryCluster([Profile]) as cluster:
        with cluster.in_use():
            for number in range(90):
                await Profile.ref("p").rename(f"{number}" + "x" * 10_000)
            await until(lambda: kept_bytes(cluster) <= 60_000)
            assert len(values(cluster)) == 90
            cluster.forget()
            assert await Profile.ref("p").show() == ("89" + "x" * 10_000, 0)


@pytest.mark.parametrize(
    "error",
    [
        JournalUnavailable("a trigger of the user's raises (P0001)", answered=True),
        RowRefused("a table of the user's refers to it (23503)"),
    ],
)
async def test_values_that_the_server_cannot_put_away_hold_up_no_others(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "FORGET_BYTES", 50_000)
    async with MemoryCluster([Profile]) as cluster:
        (node,) = cluster.nodes.values()
        journal = node.node_ports.journal
        forget = journal.forget_states

        async def picky(type_id: int, former: Sequence[Former], window_seconds: float) -> None:
            if any(each.entity == "bad" for each in former):
                raise error
            await forget(type_id, former, window_seconds)

        monkeypatch.setattr(journal, "forget_states", picky)
        with cluster.in_use():
            for number in range(90):
                await asyncio.gather(
                    *(Profile.ref(each).rename(f"{number}" + "x" * 10_000) for each in ("bad", "good"))
                )
            await until(lambda: kept_bytes(cluster, "good") <= 60_000)
            assert kept_bytes(cluster, "bad") > 800_000


async def test_a_state_too_large_fails_its_command_alone() -> None:
    async with MemoryCluster([Profile], config=NodeConfig(max_state_bytes=1024)) as cluster:
        with cluster.in_use():
            await Profile.ref("p").rename("joe")
            with pytest.raises(NotSerializable, match="more than the 1024 of MAX_STATE_BYTES") as caught:
                await Profile.ref("p").rename("j" * 2000)
            assert caught.value.code == "state_too_large"
            assert await Profile.ref("p").show() == ("joe", 0)


async def test_what_a_crash_has_left_is_forgotten_at_the_next_load() -> None:
    async with MemoryCluster([Profile], nodes=2, config=NodeConfig(command_window_seconds=60.0)) as cluster:
        with cluster.in_use():
            for _ in range(9):
                await Profile.ref("p").visit()
            await cluster.kill_node(cluster.home_of(Profile, "p"))
            await travel(121.0)
            assert len(values(cluster)) == 9
            assert await Profile.ref("p").show() == ("", 9)
            await until(lambda: len(values(cluster)) == 1)
