"""`scale`: the cost of one command and one decision, in all processes together, for more and more
nodes.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable

from sharding_app.bench.cluster import BenchCluster, bench_cluster
from sharding_app.bench.database import Database
from sharding_app.bench.driving import at_once
from sharding_app.bench.entities import BenchAccount, BenchCounter, BenchSpread
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run, measured, warm
from sharding_app.protocol.ids import shard_of

NODES = 4
IN_FLIGHT = 64
SECONDS = 3.0
SHARDS = 1000
"""Number of shards of `BenchSpread`."""
STATISTICS_SECONDS = 1.2


async def scale(run: Run) -> AsyncIterator[Result]:
    """Let the callers grow with the nodes, equally many per node; the number of shards to place
    stays the same.
    """
    first: Result | None = None
    first_decision: Result | None = None
    for nodes in range(1, (run.nodes or NODES) + 1):
        # Shards of earlier clusters would get homes as soon as a node is there, though no caller
        # asks for them.
        await run.database.arun(run.database.clean)
        async with bench_cluster(nodes, run.options) as cluster:
            decided = await _decisions(run, cluster)
            first_decision = first_decision or decided
            decided.ratio = _to(first_decision, decided)
            yield decided
            entities = ENTITIES * nodes

            def call(number: int, entities: int = entities) -> Awaitable[int]:
                return BenchAccount.ref(f"s{number % entities}").increase()

            run.progress(f"scale, {nodes} nodes")
            await warm(call, entities)
            for each in run.in_flight or (IN_FLIGHT,):
                driving = at_once(call, each * nodes, seconds=run.seconds or SECONDS)
                result = await measured(cluster, "scale", each * nodes, driving)
                result.entities = entities
                first = first or result
                result.ratio = _to(first, result)
                yield result


async def _decisions(run: Run, cluster: BenchCluster) -> Result:
    """Give each of a thousand shards its first home. The query that asks for it, and finds nothing,
    is counted in.
    """
    shards = SHARDS if not run.entities else min(run.entities, SHARDS)
    entities: dict[int, str] = {}
    for number in itertools.count():
        entities.setdefault(shard_of(f"d{number}", SHARDS), f"d{number}")
        if len(entities) == SHARDS:
            break
    chosen = [entities[shard] for shard in range(shards)]
    run.progress(f"scale, {len(cluster.nodes)} nodes: {shards:,} decisions")
    # Both sides have connected before; sessions report their statistics within a second.
    await BenchCounter.ref("first").increase()
    await asyncio.sleep(STATISTICS_SECONDS)
    commits, rows = (
        await run.database.arun(run.database.commits),
        await run.database.arun(_written, run.database),
    )
    result = await measured(
        cluster, "scale", shards, at_once(lambda n: BenchSpread.ref(chosen[n]).total(), shards, count=shards)
    )
    await asyncio.sleep(STATISTICS_SECONDS)
    written = await run.database.arun(_written, run.database) - rows
    ended = await run.database.arun(run.database.commits) - commits
    result.rows_per_op, result.commits_per_op = written / shards, ended / shards
    result.note = "decisions: the first home of each shard"
    return result


def _written(database: Database) -> int:
    """Return how many rows have been written to the table of the shards so far."""
    return int(
        database.value(
            "SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'sharding_shard'"
        )
    )


def _to(first: Result, other: Result) -> dict[str, float]:
    """Return the ratio of each cost to that of one node."""
    names = (
        "client_cpu_us",
        "node_cpu_us",
        "messages_per_op",
        "frames_per_op",
        "rows_per_op",
        "commits_per_op",
    )
    return {name: getattr(other, name) / getattr(first, name) for name in names if getattr(first, name)}
