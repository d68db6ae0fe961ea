"""`python -m benchmarks.growth`: what the coordinator's and the regions' machines cost as a cluster
grows.

Beyond one machine nothing can be started, but the machines that decide are pure: here they play
against a store and nodes that answer at once and cost next to nothing. For each size four JSON
lines say what a decision and a question cost, and how many messages there were. `--nodes 1000
--shards 100000` is the largest by default.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from sharding_app.management.arguments import count
from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.call import Call
from sharding_app.protocol.coordinator.effects import Decide, Tell, TellAll
from sharding_app.protocol.coordinator.machine import Coordinator
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import AnyMessage, BeginHandOff, HandOff, HostShard, RegisterAck
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.records import HomeChange, Member, ShardRow
from sharding_app.protocol.region import RegionRoutes

TYPE = "growth.Entity"
PARTS = (100, 10, 3, 1)
"""The sizes: these parts of the largest."""
CALLS_PER_SHARD = 2
SHARDS_PER_NODE = 10
"""At least: with fewer, not each node gets one."""
TICK_SECONDS = 11.0


class World:
    """Every row, and all nodes: they do at once what they are told."""

    def __init__(self, nodes: int, shards: int) -> None:
        self.members = [member(number) for number in range(1, nodes + 1)]
        self.rows: dict[int, ShardRow] = {}
        self.told: Counter[str] = Counter()
        self.decisions = 0
        self.now = 0.0
        strategy = LeastShardAllocation(shards, 1.0)
        settings = CoordinatorSettings(max_concurrent_hand_offs=shards)
        self.machine = Coordinator(self.members[0].incarnation, 1, settings, lambda _: strategy)
        self.machine.loaded([], self.members, 0.0)

    def play(self) -> None:
        machine = self.machine
        while machine.outbox.effects:
            effects = machine.outbox.take()
            changes = [change for each in effects if isinstance(each, Decide) for change in each.changes]
            if changes:
                self.decisions += len(changes)
                machine.decided(changes, [self._written(change) for change in changes], self.now)
            for effect in effects:
                if isinstance(effect, Tell):
                    self._react(effect.to, effect.message)
                elif isinstance(effect, TellAll):
                    for name in effect.to:
                        self._react(name, effect.word)

    def _written(self, change: HomeChange) -> ShardRow:
        row = ShardRow(change.type, change.shard, change.epoch, change.home, change.step)
        self.rows[change.shard] = row
        return row

    def _react(self, name: Incarnation, message: AnyMessage) -> None:
        self.told[type(message).__name__] += 1
        match message:
            case HostShard():
                self.machine.shard_started(name, TYPE, message.shards, message.epochs, self.now)
            case RegisterAck() if not message.heard:
                self.machine.registered(name, message.term, self.now)
            case BeginHandOff():
                self.machine.handoffs.acknowledged(name, TYPE, message.shards, self.now)
            case HandOff():
                for shard, epoch in zip(message.shards, message.epochs, strict=True):
                    self.machine.handoffs.stopped(name, TYPE, [shard], [epoch], self.now)

    def at_home(self) -> Counter[Incarnation]:
        return Counter(row.home for row in self.rows.values() if row.home is not None)


def member(number: int) -> Member:
    return Member(
        incarnation=f"n{number}", name=f"node-{number}", host="here", pid=number, age=number, state="up",
        types=(TYPE,), locks=2,
    )  # fmt: skip


def measure(nodes: int, shards: int) -> list[dict[str, Any]]:
    """All shards get homes; a node dies; one joins, and all is evened out; a region finds all homes
    and sends.
    """
    world = World(nodes, shards)
    names = [each.incarnation for each in world.members]
    found = []

    def place() -> None:
        for place, name in enumerate(names):
            world.machine.get_shard_home(name, TYPE, range(place, shards, nodes), 0.0)
            world.play()

    found.append(_line("place", nodes, shards, world, place))
    _expect(len(world.rows) == shards)
    _expect(len(world.at_home()) == nodes)

    def lose() -> None:
        world.machine.members_read(world.members[:-1], [], [], 0.0)
        world.play()

    found.append(_line("a node dies", nodes, shards, world, lose))
    _expect(names[-1] not in world.at_home())

    def even() -> None:
        world.machine.members_read([*world.members[:-1], member(nodes + 1)], [], [], 0.0)
        world.play()
        for world.now in (TICK_SECONDS, TICK_SECONDS + 1.0):  # words for many are gathered for a moment
            world.machine.tick(world.now)
            world.play()

    found.append(_line("a node joins", nodes, shards, world, even))
    sizes = world.at_home().values()
    _expect(len(sizes) == nodes)
    _expect(max(sizes) - min(sizes) <= 1)
    found.append(_region(nodes, shards, world.rows.values()))
    return found


def _region(nodes: int, shards: int, rows: Iterable[ShardRow]) -> dict[str, Any]:
    """One region learns every home, sends to each, and gets its answers."""
    pending: dict[int, PendingCall] = {}
    region = RegionRoutes(TYPE, pending)
    began = time.process_time()
    region.find(range(shards), 0.0)
    for row in rows:
        region.home_told(row.shard, row.home or "", row.epoch, 0.0)
    region.out.clear()
    calls = 0
    for number in range(CALLS_PER_SHARD):
        for shard in range(shards):
            call = PendingCall(number * shards + shard, Call(TYPE, "", "", b""), shard, 1.0, 9.0)
            _expect(region.submit(call, 1.0))
            calls += 1
            region.resolved(pending.pop(call.request), 1.0)
    seconds = time.process_time() - began
    return {
        "workload": "growth", "step": "a region sends", "nodes": nodes, "shards": shards, "count": calls,
        "cpu_s": round(seconds, 4), "cpu_us_each": round(seconds / calls * 1e6, 3),
    }  # fmt: skip


def _expect(true: bool) -> None:
    """Figures of a world that did something else are worth nothing."""
    if not true:
        raise RuntimeError("the machines did not do what is measured")


def _line(step: str, nodes: int, shards: int, world: World, work: Callable[[], None]) -> dict[str, Any]:
    told, decisions, began = world.told.total(), world.decisions, time.process_time()
    work()
    seconds, count = time.process_time() - began, max(1, world.decisions - decisions)
    return {
        "workload": "growth", "step": step, "nodes": nodes, "shards": shards, "count": count,
        "cpu_s": round(seconds, 4), "cpu_us_each": round(seconds / count * 1e6, 3),
        "messages_each": round((world.told.total() - told) / count, 4),
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--nodes", type=count, default=1000)
    parser.add_argument("--shards", type=count, default=100_000)
    given = parser.parse_args(arguments)
    if given.shards < SHARDS_PER_NODE * given.nodes:
        parser.error(f"give at least {SHARDS_PER_NODE} shards for each node")
    for part in PARTS:
        for line in measure(max(2, given.nodes // part), max(10, given.shards // part)):
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
