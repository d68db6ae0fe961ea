"""One bad input, from a caller, a peer, a strategy or the store, stops nothing for others."""

from collections.abc import AsyncIterator, Mapping, Sequence, Set
from typing import Any

import pytest
import pytest_asyncio

from sharding_app import DeclarationError, Entity, InvalidCall, ShardingSettings, command
from sharding_app.adapters.memory.cluster_writes import ClusterWrites
from sharding_app.adapters.memory.steps import Steps
from sharding_app.entities.extractors import MessageExtractor
from sharding_app.entities.registry import registry
from sharding_app.ports.store import StoreRefused, StoreUnavailable
from sharding_app.protocol.allocation.strategy import Allocations, ClusterView
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.ids import Term
from sharding_app.protocol.messages import AnyMessage, GetShardHome, OperatorRequest, Register, Suspect
from sharding_app.protocol.records import HomeChange, ShardRow
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until

pytestmark = pytest.mark.asyncio

SHARDS = 16
WRONG: dict[str, Any] = {
    "too large": 3_000_000_000, "negative": -7, "beyond": SHARDS, "text": "5", "float": 1.5, "bool": True, "none": None,
}  # fmt: skip


class WildExtractor(MessageExtractor):
    """A subclass, as docs/messages.md recommends, with a mistake in it for some ids."""

    def shard_id(self, entity_id: str) -> int:
        if entity_id == "raises":
            raise LookupError("no such tenant")
        if entity_id in WRONG:
            return WRONG[entity_id]  # type: ignore[no-any-return]
        return int(entity_id) % self.number_of_shards


class Wild(Entity, name="input.Wild"):
    settings = ShardingSettings(number_of_shards=SHARDS)

    @command
    def add(self) -> int:
        return 1


registry.get("input.Wild").extractor = WildExtractor(SHARDS)


class Failing:
    """A user's strategy with a mistake in both of its methods."""

    def allocate(self, requester: str | None, shard: int, allocations: Allocations, view: ClusterView) -> str:
        raise LookupError("no such rack")

    def rebalance(
        self, allocations: Mapping[str, Sequence[int]], in_progress: Set[int], view: ClusterView
    ) -> list[int]:
        raise LookupError("no such rack")


class Misplaced(Entity, name="input.Misplaced"):
    settings = ShardingSettings(number_of_shards=SHARDS, allocation=Failing())

    @command
    def add(self) -> int:
        return 1


class Calm(Entity, name="input.Calm"):
    """Another type, whose users have made no mistake."""

    settings = ShardingSettings(number_of_shards=SHARDS)
    count: int = 0

    @command
    def add(self) -> int:
        self.count += 1
        return self.count


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    config = NodeConfig(coordinator=CoordinatorSettings(rebalance_interval_seconds=0.05))
    async with MemoryCluster([Wild, Calm, Misplaced], nodes=2, config=config) as made:
        with made.in_use():
            await until(lambda: known_hosts(made) == 2)
            yield made


def known_hosts(cluster: MemoryCluster) -> int:
    """How many nodes the coordinator, if there is one, would give a shard to."""
    shells = [each.coordinator for each in cluster.nodes.values() if each.coordinator is not None]
    return max((len(each.machine.placement.hosts_of("input.Calm")) for each in shells), default=0)


def terms(cluster: MemoryCluster) -> int:
    return cluster.server.cluster.coordinator.term


async def all_answer(entity: Any, first: int = 0, count: int = 60) -> None:
    for number in range(first, first + count):
        # With an id, since some are called just after their node died: they store nothing, and
        # would not be sent again.
        assert await entity.ref(str(number), command_id="again").add() >= 1


@pytest.mark.parametrize("entity_id", [*WRONG, "raises"])
async def test_a_callers_wrong_shard_id_is_the_callers_error(cluster: MemoryCluster, entity_id: str) -> None:
    with pytest.raises(
        InvalidCall, match=r"the shard of .* (must be an int from 0 to 15|cannot be computed)"
    ):
        await Wild.ref(entity_id).add()
    await all_answer(Calm)
    await all_answer(Wild)


async def test_a_peers_wrong_shard_id_is_refused_and_others_get_homes(cluster: MemoryCluster) -> None:
    await all_answer(Calm, count=1)
    node = cluster.nodes["node2"]
    for shard in WRONG.values():
        if type(shard) is int:
            node.try_send(str(node.locator.coordinator), GetShardHome("input.Calm", [shard, 3]))
    await all_answer(Calm)
    assert {row.shard for row in cluster.server.cluster.shards.values()} <= set(range(SHARDS))


async def test_a_strategy_that_raises_ends_no_node(cluster: MemoryCluster) -> None:
    nodes, term = dict(cluster.nodes), terms(cluster)
    await all_answer(Calm)
    await all_answer(Misplaced)
    coordinator = next(each.coordinator for each in nodes.values() if each.coordinator is not None)
    failures = coordinator.machine.placement.strategies.failures
    so_far = failures["input.Misplaced"]
    await until(lambda: failures["input.Misplaced"] > so_far + 2)
    assert terms(cluster) == term
    assert not any(each.ended.done() for each in nodes.values())
    said = [each for each in coordinator.decisions if each.action == "strategy_failed"]
    assert [each.subject for each in said] == ["input.Misplaced"] * 2


async def test_a_row_that_the_store_refuses_is_dropped_alone(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = cluster.server.cluster
    decide = ClusterWrites.decide

    def refuses(writes: ClusterWrites, term: Term, changes: Sequence[HomeChange]) -> Steps[list[ShardRow]]:
        if any(each.type == "input.Calm" and each.shard == 5 for each in changes):
            raise StoreRefused("a check of the database says no")
        return decide(writes, term, changes)

    monkeypatch.setattr(ClusterWrites, "decide", refuses)
    node = cluster.nodes["node2"]
    node.region_client.find("input.Calm", list(range(SHARDS)))
    await until(lambda: len(rows.rows(["input.Calm"])) == SHARDS - 1)
    await all_answer(Wild)
    assert "the decision about shard input.Calm/5 is refused: a check of the database says no" in caplog.text


async def test_a_row_that_is_locked_holds_up_the_homes_of_no_other_shard(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forgotten transaction holds the row of one shard of a node that dies: the others move
    without it.
    """
    rows = cluster.server.cluster
    await all_answer(Wild)
    decide = ClusterWrites.decide
    dead = cluster.nodes["node2"].incarnation
    left = [row.shard for row in rows.rows(["input.Wild"]) if row.home == dead]
    assert len(left) > 2
    freed, asked = False, 0

    def locked(writes: ClusterWrites, term: Term, changes: Sequence[HomeChange]) -> Steps[list[ShardRow]]:
        nonlocal asked
        if not freed and any(each.type == "input.Wild" and each.shard == left[0] for each in changes):
            asked += 1
            raise StoreUnavailable("canceling statement due to lock timeout (55P03)", answered=True)
        return decide(writes, term, changes)

    monkeypatch.setattr(ClusterWrites, "decide", locked)
    await cluster.kill_node("node2")
    await until(lambda: [row.shard for row in rows.rows(["input.Wild"]) if row.home == dead] == left[:1])
    assert 0 < asked < 20
    freed = True
    await until(lambda: all(row.home != dead for row in rows.rows(["input.Wild"])))
    await all_answer(Wild)


async def test_rows_deleted_under_a_running_cluster_are_made_anew(cluster: MemoryCluster) -> None:
    await all_answer(Calm)
    rows = cluster.server.cluster
    before = {key: row.epoch for key, row in rows.shards.items()}
    homes = {row.home for row in rows.shards.values()}
    rows.shards.clear()
    rows.epochs.clear()
    victim = next(name for name, node in cluster.nodes.items() if node.coordinator is None)
    assert cluster.nodes[victim].incarnation in homes
    await cluster.kill_node(victim)
    await all_answer(Calm)
    lost = {key for key, row in rows.shards.items() if key in before}
    assert lost
    assert all(rows.shards[key].epoch > before[key] for key in lost)


async def test_one_message_that_raises_costs_no_other_of_its_frame(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await all_answer(Calm)
    node = next(each for each in cluster.nodes.values() if each.coordinator is not None)
    shell = node.coordinator
    assert shell is not None
    seen: list[AnyMessage] = []

    def take(source: str, message: AnyMessage) -> bool:
        seen.append(message)
        if isinstance(message, OperatorRequest):
            raise RuntimeError("a bug")
        return True

    monkeypatch.setattr(shell, "receive", take)
    node._deliver("n-x", [Suspect(["n-y"]), OperatorRequest(1, "move"), Register("n-x")])
    assert [type(each) for each in seen] == [Suspect, OperatorRequest, Register]
    assert node.links.statistics().counters["deliver_errors"] == 1


@pytest.mark.parametrize(
    "said",
    [
        {"app_version": "1" * 10_000_000},
        {"name": "a\0b"},
        {"name": "a\nb"},
        {"host": "\ud800"},
        {"roles": ("backend", "x" * 300)},
    ],
)
async def test_a_node_whose_row_would_burden_all_is_refused_where_it_starts(said: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="of a node is printable and has at most 255 characters"):
        NodeConfig(**said)
    NodeConfig(name="h\u00f4te-1", app_version="1.2.3+build.7", roles=("backend",))
