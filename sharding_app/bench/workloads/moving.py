"""`failover` and `rebalance`: the absence of a shard when its node dies or freezes, or when another
one joins.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from sharding_app.bench.cluster import BenchCluster, NodeFailed, NodeProcess, bench_cluster, until
from sharding_app.bench.driving import FixedRate, at_once
from sharding_app.bench.entities import BenchMoving, BenchSpread, name_of
from sharding_app.bench.result import Result
from sharding_app.bench.run import Run
from sharding_app.bench.workloads.keeping import placed
from sharding_app.protocol.ids import shard_of

NODES = 3
KILLS = 5
PER_SECOND = 2000
ENTITIES = 10_000
SETTLE_SECONDS = 0.5
BACK_SECONDS = 20.0
BALANCED_SECONDS = 60.0
LOOK_SECONDS = 0.05

WAYS: dict[str, tuple[str, Callable[[NodeProcess], float]]] = {
    "kill": ("kill -9", lambda node: node.signal(signal.SIGKILL)),
    "freeze": ("SIGSTOP", lambda node: node.signal(signal.SIGSTOP)),
    "cable": ("a pulled cable", NodeProcess.unplug),
}
"""The ways to take a node away. The kernel closes the connections of a killed one; those of the
others just fall silent."""


def _moving(number: int) -> Awaitable[int]:
    return BenchMoving.ref(f"f{number % ENTITIES}").increase()


class Absences:
    """Notes when each shard of a lost home answers again. Only calls due after the loss count."""

    def __init__(self, number_of_shards: int) -> None:
        self.seconds: list[float] = []
        self.waiting: set[int] = set()
        self._since = 0.0
        self._shards = number_of_shards

    def begin(self, shards: set[int], since: float) -> None:
        self.waiting, self._since = set(shards), since

    def answered(self, number: int, due: float, ended: float) -> None:
        if self.waiting and due >= self._since:
            shard = shard_of(f"f{number % ENTITIES}", self._shards)
            if shard in self.waiting:
                self.waiting.discard(shard)
                self.seconds.append(ended - self._since)


async def failover(run: Run) -> AsyncIterator[Result]:
    """Take nodes away several times, every second time the coordinator; a new one takes the place
    of each.
    """
    how, strike = WAYS[run.how]
    kills, entities = run.kills or KILLS, run.entities or ENTITIES
    name = name_of(BenchMoving)
    async with bench_cluster(run.nodes or NODES, run.options, proxied=run.how == "cable") as cluster:
        run.progress(f"failover, waking {entities} entities")
        shards = await placed(cluster, name)
        await at_once(_moving, 200, count=entities)
        absences = Absences(shards)
        load = FixedRate(_moving, PER_SECOND, absences.answered)
        try:
            for turn in range(kills):
                await asyncio.sleep(SETTLE_SECONDS)
                victim, lost = await _victim(cluster, name, coordinates=turn % 2 == 1)
                run.progress(f"failover, {how} {turn + 1} of {kills}: {len(lost)} shards")
                absences.begin(lost, strike(victim))
                await until(lambda: not absences.waiting, BACK_SECONDS, "every shard answers again")
                victim.signal(signal.SIGKILL)
                await cluster.drop(victim)
                await cluster.add()
        finally:
            await load.stop()
        yield Result(
            workload="failover", nodes=len(cluster.nodes), entities=entities, count=len(absences.seconds),
            failed=sum(load.failures.values()),
            note=f"{kills} x {how}, {kills // 2} of them the coordinator, {PER_SECOND}/s"
            + "".join(f", {count} {kind}" for kind, count in load.failures.items()),
        ).timed(absences.seconds)  # fmt: skip


async def rebalance(run: Run) -> AsyncIterator[Result]:
    """Add a node under load: measure how long calls to a moved shard wait, and when the nodes are
    even.
    """
    moving, spread = name_of(BenchMoving), name_of(BenchSpread)
    async with bench_cluster(run.nodes or NODES - 1, run.options) as cluster:
        await placed(cluster, moving)
        shards = await placed(cluster, spread)
        await at_once(_moving, 200, count=ENTITIES)
        waits: dict[int, float] = {}
        number_of_shards = cluster.process.configs[moving].number_of_shards

        def answered(number: int, due: float, ended: float) -> None:
            shard = shard_of(f"f{number % ENTITIES}", number_of_shards)
            waits[shard] = max(waits.get(shard, 0.0), ended - due)

        before = await cluster.homes(moving)
        spread_before = await cluster.homes(spread)
        load = FixedRate(_moving, PER_SECOND, answered)
        try:
            await asyncio.sleep(SETTLE_SECONDS)
            run.progress(f"rebalance, a node joins: {shards} shards")
            await cluster.add()
            begun, first = time.perf_counter(), 0.0
            while True:
                homes = await cluster.homes(spread)
                if not first and homes != spread_before:
                    first = time.perf_counter()
                if _even(cluster, homes) and _even(cluster, await cluster.homes(moving)):
                    break
                if time.perf_counter() - begun > BALANCED_SECONDS:
                    raise NodeFailed(f"not balanced within {BALANCED_SECONDS:g} s")
                await asyncio.sleep(LOOK_SECONDS)
            balanced = time.perf_counter()
        finally:
            await load.stop()
        after = await cluster.homes(moving)
        moved = [shard for shard in after if after[shard] != before[shard]]
        yield Result(
            workload="rebalance", nodes=len(cluster.nodes), count=len(moved), balanced_s=balanced - begun,
            failed=sum(load.failures.values()),
            note=f"{shards} shards, {balanced - first:.1f} s of it moving; the longest wait of each moved shard",
        ).timed([waits.get(shard, 0.0) for shard in moved])  # fmt: skip


async def _victim(cluster: BenchCluster, name: str, *, coordinates: bool) -> tuple[NodeProcess, set[int]]:
    """Choose the coordinator, or of the other nodes the one with most shards.

    Without a coordinator a shard's new home waits for an election, so the share of both is fixed:
    left to chance, two runs would compare two mixtures.
    """
    homes = await cluster.homes(name)
    counts = Counter(homes.values())
    nodes = [
        node
        for node in cluster.nodes.values()
        if bool((await node.figures()).get("coordinator")) is coordinates
    ]
    if not nodes:
        raise NodeFailed("no node coordinates now" if coordinates else "no node but the coordinator is there")
    victim = max(nodes, key=lambda node: counts[node.incarnation])
    return victim, {shard for shard, home in homes.items() if home == victim.incarnation}


def _even(cluster: BenchCluster, homes: dict[int, str]) -> bool:
    counts = Counter({node.incarnation: 0 for node in cluster.nodes.values()})
    counts.update(homes.values())
    return max(counts.values()) - min(counts.values()) <= 1
