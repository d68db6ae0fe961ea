"""The work of allocating and rebalancing 2,000 shards on 100 regions, counted in calls.

A call is one of Python's or of C's, so the machine and its load do not matter. One more loop over
all regions for each shard would be 100 or 200 calls more a shard, one over all shards 2,000.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from sharding_app.protocol.allocation.consistent_hashing import ConsistentHashAllocation
from sharding_app.protocol.allocation.external import ExternalAllocation
from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.allocation.strategy import ShardAllocationStrategy
from sharding_app.protocol.allocation.threshold import ThresholdAllocation
from sharding_app.protocol.coordinator.effects import Decide, Tell, TellAll
from sharding_app.protocol.coordinator.machine import Coordinator
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.messages import BeginHandOff, HandOff, HostShard, RegisterAck
from sharding_app.protocol.records import HomeChange, Member, ShardRow
from tests.unit.protocol.allocation.regions import region_name, regions, view
from tests.unit.protocol.coordinator.coordination import TYPE, node

SHARDS, REGIONS = 2_000, 100


def calls_of(work: Callable[[], None]) -> int:
    """Count the calls of Python and of C while the work runs."""
    made = 0

    def see(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal made
        made += event.endswith("call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made


@pytest.mark.parametrize(
    "strategy",
    [
        LeastShardAllocation(1000, 1.0),
        ThresholdAllocation(10, 1000),
        ConsistentHashAllocation(),
        ExternalAllocation(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_strategy_keeps_up(strategy: ShardAllocationStrategy) -> None:
    names = [region_name(number) for number in range(REGIONS)]
    wishes = {shard: f"node-{names[shard % REGIONS].lower()}" for shard in range(SHARDS)}
    seen = view(names, locations=wishes)

    def work() -> None:
        given: dict[str, dict[int, None]] = {name: {} for name in names}
        for shard in range(SHARDS):
            given[strategy.allocate(names[0], shard, given, seen)][shard] = None
        assert sum(map(len, given.values())) == SHARDS
        crowded = regions(*[2 * SHARDS // REGIONS] * (REGIONS // 2), *[0] * (REGIONS // 2))
        assert strategy.rebalance(crowded, set(), seen)

    assert calls_of(work) < 300 * SHARDS


class Echo:
    """A store and 100 nodes that do at once what they are told, at next to no cost of their own."""

    def __init__(self, members: list[Member]) -> None:
        self.rows: dict[tuple[str, int], ShardRow] = {}
        settings = CoordinatorSettings(max_concurrent_hand_offs=1000)
        strategy = LeastShardAllocation(1000, 1.0)
        self.machine = Coordinator(members[0].incarnation, 1, settings, lambda _: strategy)
        self.machine.loaded([], members, 0.0)
        self.now = 0.0
        self.bodies = 0
        "Words for many that were written."
        self.play()

    def play(self) -> None:
        machine = self.machine
        while machine.outbox.effects:
            effects = machine.outbox.take()
            changes = [change for each in effects if isinstance(each, Decide) for change in each.changes]
            if changes:
                machine.decided(changes, [self._row(change) for change in changes], self.now)
            for effect in effects:
                if isinstance(effect, Tell):
                    self._react(effect)
                elif isinstance(effect, TellAll):
                    self.bodies += 1
                    for to in effect.to:
                        self._react(Tell(to, effect.word))

    def _row(self, change: HomeChange) -> ShardRow:
        row = ShardRow(change.type, change.shard, change.epoch, change.home, change.step)
        self.rows[change.type, change.shard] = row
        return row

    def _react(self, tell: Tell) -> None:
        message = tell.message
        match message:
            case RegisterAck() if not message.heard:
                self.machine.registered(tell.to, message.term, self.now)
            case HostShard():
                self.machine.shard_started(tell.to, TYPE, message.shards, message.epochs, 0.0)
            case BeginHandOff():
                self.machine.handoffs.acknowledged(tell.to, TYPE, message.shards, self.now)
            case HandOff():
                # As the nodes do: one word for each shard.
                for shard, epoch in zip(message.shards, message.epochs, strict=True):
                    self.machine.handoffs.stopped(tell.to, TYPE, [shard], [epoch], self.now)

    def sizes(self) -> list[int]:
        count: dict[str | None, int] = {}
        for row in self.rows.values():
            count[row.home] = count.get(row.home, 0) + 1
        return list(count.values())


def test_the_coordinator_keeps_up() -> None:
    """All are asked for by a hundred regions, then a node dies and another one joins."""
    names = [f"n{number}" for number in range(REGIONS)]
    members = [node(name, age) for age, name in enumerate(names, 1)]

    def work() -> None:
        echo = Echo(members)
        for place, name in enumerate(names):
            echo.machine.get_shard_home(name, TYPE, range(place, SHARDS, REGIONS), 0.0)
            echo.play()
        assert set(echo.sizes()) == {SHARDS // REGIONS}
        echo.machine.members_read(members[1:], [], [], 0.0)
        echo.play()
        assert sum(echo.sizes()) == SHARDS
        echo.machine.members_read([*members[1:], node("late", 101)], [], [], 0.0)
        echo.now = 11.0
        echo.machine.tick(11.0)
        echo.play()
        assert max(echo.sizes()) - min(echo.sizes()) <= 1

    assert calls_of(work) < 200 * SHARDS


def test_half_of_all_shards_move_to_as_many_nodes_that_join() -> None:
    names = [f"n{number}" for number in range(REGIONS)]
    members = [node(name, age) for age, name in enumerate(names, 1)]

    def work() -> None:
        echo = Echo(members[: REGIONS // 2])
        echo.machine.get_shard_home(names[0], TYPE, range(SHARDS), 0.0)
        echo.play()
        echo.machine.members_read(members, [], [], 0.0)
        echo.now = 11.0
        while len(echo.sizes()) < REGIONS or max(echo.sizes()) > SHARDS // REGIONS:
            echo.machine.tick(echo.now)
            echo.play()
            echo.now += 0.05
        assert min(echo.sizes()) == SHARDS // REGIONS

    assert calls_of(work) < 750 * SHARDS


def test_a_death_costs_messages_by_processes_not_by_their_product_with_homes_and_types() -> None:
    """100 nodes and 400 clients with 50 types: it was one message for each type, new home and
    process.
    """
    nodes, clients = 100, 400
    types = tuple(f"shop.Type{number}" for number in range(50))
    members = [node(f"n{number}", number + 1, types=types) for number in range(nodes)]
    rows = [
        ShardRow(name, shard, 1, f"n{(place + shard) % nodes}", "home")
        for place, name in enumerate(types)
        for shard in range(nodes)
    ]
    machine = Coordinator("n0", 1, CoordinatorSettings(), lambda _: LeastShardAllocation())
    machine.loaded(rows, members, 0.0)
    for number in range(clients):
        machine.proxy_registered(f"p-{number}", types, 0.0)
    machine.tables.starting.clear()
    machine.outbox.take()
    machine.members_read([*members[:7], *members[8:]], [], [], 1.0)
    changes = [
        change for each in machine.outbox.effects if isinstance(each, Decide) for change in each.changes
    ]
    assert len(changes) == len(types)
    machine.outbox.take()
    machine.decided(changes, [ShardRow(each.type, each.shard, 2, each.home, "home") for each in changes], 1.0)
    machine.outbox.take()
    bodies = recipients = 0
    for number, change in enumerate(changes):
        now = 1.0 + number / 1000
        machine.shard_started(str(change.home), change.type, [change.shard], [2], now)
        machine.tick(now)
        groups = {each.to for each in machine.outbox.effects if isinstance(each, TellAll)}
        assert not [each for each in machine.outbox.effects if isinstance(each, Tell)]
        bodies += len(groups)
        recipients += sum(map(len, groups))
        machine.outbox.take()
    # Fifty milliseconds in steps of twenty, to each process once.
    assert bodies <= 3
    assert recipients <= 3 * (nodes + clients)
    assert machine.busy
    machine.tick(2.0)
    (last,) = {each.to for each in machine.outbox.effects if isinstance(each, TellAll)}
    assert len(last) == nodes - 1 + clients
