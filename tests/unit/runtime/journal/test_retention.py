"""Events that a type need not keep go, also of entities that nothing calls; the others stay."""

from typing import Any

import pytest

from sharding_app import ShardingSettings
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.errors import DeclarationError
from sharding_app.ports.journal import JournalUnavailable, RowRefused, Trimmable
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.journal import retention
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Cart
from tests.unit.runtime.two_journals import SECOND, SHARDS, TwoJournals, some
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio

WINDOW, INTERVAL = 20.0, 10.0
AGE = 90.0
KEPT = "entities.KeptCart"


class Kept(Cart, name="entities.KeptCart"):
    settings = ShardingSettings(
        snapshot_every=5, keep_snapshots=1, delete_events=True, keep_events_days=1, keep_events=3
    )


@pytest.fixture(autouse=True)
def short_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "DAY_SECONDS", AGE)


def config(**fields: Any) -> NodeConfig:
    return NodeConfig(command_window_seconds=WINDOW, retention_interval_seconds=INTERVAL, **fields)


def numbers(cluster: MemoryCluster, entity: str) -> list[int]:
    return list(cluster._rows(Kept, entity))


def counted(cluster: MemoryCluster) -> list[tuple[int, bool]]:
    """Events that each node has deleted, and whether it has gone the whole way."""
    found = [each.hosts["entities.KeptCart"].execution.retention.counters for each in cluster.nodes.values()]
    return sorted((each["events_trimmed"], each["retention_rounds"] > 0) for each in found)


async def filled(cluster: MemoryCluster, *entities: str) -> None:
    """Give each entity seven events and a snapshot of five."""
    for entity in entities:
        for _ in range(7):
            await Kept.ref(entity).add("book")
    await until(lambda: all(cluster.snapshots(Kept, each) for each in entities))


async def test_old_events_of_entities_that_nothing_calls_go_and_one_node_sees_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "PAGE_SNAPSHOTS", 2)
    monkeypatch.setattr(retention, "TURN_EVENTS", 3)
    async with MemoryCluster([Kept], nodes=2, config=config()) as cluster:
        with cluster.in_use():
            ids = [f"cart-{number}" for number in range(5)]
            await filled(cluster, *ids)
            await travel(AGE - INTERVAL)
            assert {len(numbers(cluster, each)) for each in ids} == {7}, "they are young"
            await travel(4 * INTERVAL)
            assert {each: numbers(cluster, each) for each in ids} == {each: [5, 6, 7] for each in ids}
            assert counted(cluster) == [(0, False), (5 * 4, True)]
            cluster.forget()
            assert [await Kept.ref(each).total() for each in ids] == [7] * 5


async def test_copies_of_entities_that_lie_in_another_journal_stay_as_they_are() -> None:
    """A move compares them with their source."""
    async with TwoJournals([Kept], config=config(number_of_shards=SHARDS)) as cluster:
        with cluster.in_use():
            here, there = (some(journal, 1, KEPT)[0] for journal in ("", SECOND))
            for entity in (here, there):
                for _ in range(7):
                    await Kept.ref(entity).add("book")
            type_id = cluster.server.cluster.type_ids[KEPT]
            rows, copies = cluster.server.journal, cluster.second.journal
            await until(
                lambda: rows.snapshots.get((type_id, here)) and copies.snapshots.get((type_id, there))
            )
            copies.events[type_id, here] = dict(rows.events[type_id, here])
            copies.snapshots[type_id, here] = dict(rows.snapshots[type_id, here])
            await travel(AGE + 3 * INTERVAL)
            assert sorted(rows.events[type_id, here]) == [5, 6, 7]
            assert sorted(copies.events[type_id, there]) == [5, 6, 7]
            assert sorted(copies.events[type_id, here]) == list(range(1, 8))


async def test_a_server_that_is_away_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    async def away(self: MemoryJournal, *_: object) -> Trimmable:
        looks.append(self)
        raise JournalUnavailable("the server is away")

    async with MemoryCluster([Kept], config=config()) as cluster:
        with cluster.in_use():
            await filled(cluster, "a")
            with monkeypatch.context() as patched:
                patched.setattr(MemoryJournal, "trimmable", away)
                await travel(AGE + 3 * INTERVAL)
            assert 2 <= len(looks) <= (AGE + 4 * INTERVAL) / INTERVAL, "each after a pause"
            assert numbers(cluster, "a") == list(range(1, 8))
            await travel(2 * INTERVAL)
            assert numbers(cluster, "a") == [5, 6, 7]


@pytest.mark.parametrize(
    "error",
    [
        RowRefused("violates foreign key constraint (23503)"),
        JournalUnavailable("held by a trigger (P0001)", answered=True),
    ],
)
async def test_events_that_the_server_does_not_give_up_hold_up_no_others(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of the user's refers to them, or a trigger of the user's holds them."""
    real = MemoryJournal.trim

    async def trim(self: MemoryJournal, type_id: int, entity: str, *given: Any, **more: Any) -> int:
        if entity == "held":
            raise error
        return await real(self, type_id, entity, *given, **more)

    monkeypatch.setattr(MemoryJournal, "trim", trim)
    async with MemoryCluster([Kept], config=config()) as cluster:
        with cluster.in_use():
            nodes = list(cluster.nodes.values())
            incarnations = [each.incarnation for each in nodes]
            await filled(cluster, "held", "z")
            await travel(AGE + 4 * INTERVAL)
            assert numbers(cluster, "z") == [5, 6, 7]
            assert numbers(cluster, "held") == list(range(1, 8))
            assert [each.incarnation for each in cluster.nodes.values()] == incarnations
            assert await Kept.ref("held").total() == 7


@pytest.mark.parametrize(
    "settings",
    [
        {"keep_events": 0},
        {"keep_events": True},
        {"keep_events": 2**63},
        {"keep_events_days": -1},
        {"keep_events_days": "90"},
        {"keep_events_days": 365_001},
    ],
)
async def test_what_is_kept_has_to_be_a_number(settings: dict[str, object]) -> None:
    with pytest.raises(DeclarationError, match=f"{next(iter(settings))} must be an int"):
        ShardingSettings(delete_events=True, **settings)  # type: ignore[arg-type]
