"""`soak`: 80 % of the limit, for minutes: memory and latency of each minute, with checkpoints and a
grown journal.
"""

import math
import time
from array import array
from collections.abc import AsyncIterator, Awaitable

from sharding_app.bench.cluster import BenchCluster, bench_cluster
from sharding_app.bench.driving import at_once, paced
from sharding_app.bench.entities import BenchAccount, name_of
from sharding_app.bench.histories import write_histories
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run, warm
from sharding_app.bench.watching import Watched
from sharding_app.bench.workloads.keeping import placed
from sharding_app.errors import ShardingError

PART = 0.8
LIMIT_SECONDS = 4.0
IN_FLIGHT = 64
CALLERS = 500
"""More callers than are ever busy at this rate, unless answers take long."""
MINUTES = 1 / 3
WINDOW_SECONDS = 60.0
OLD_EVENTS = 1000
"""Events of each older entity in the journal, with `--journal`."""
CHUNK = 500
GIGABYTE = 1e9


def _durable(number: int) -> Awaitable[int]:
    return BenchAccount.ref(f"c{number % ENTITIES}").increase()


async def soak(run: Run) -> AsyncIterator[Result]:
    """Yield one result for each minute, and one for the whole at the end."""
    in_flight = max(run.in_flight, default=IN_FLIGHT)
    seconds = (run.minutes or MINUTES) * 60
    async with bench_cluster(run.nodes or 1, run.options) as cluster:
        await _grow(cluster, run)
        run.progress("soak, warming up")
        await warm(_durable)
        run.progress(f"soak, the limit at {in_flight} in flight")
        driven = await at_once(_durable, in_flight, seconds=run.seconds or LIMIT_SECONDS)
        limit = len(driven.seconds) / driven.elapsed
        rate = max(1, int(limit * PART))
        took, failed, nodes = array("d"), 0, len(cluster.nodes)

        async def call(number: int) -> None:
            nonlocal failed
            try:
                await _durable(number)
            except ShardingError:
                failed += 1

        checkpoints = await run.database.arun(run.database.checkpoints)
        async with Watched(cluster) as watched:
            begun = time.perf_counter()
            for minute in range(math.ceil(seconds / WINDOW_SECONDS)):
                run.progress(f"soak, {rate:,}/s, {minute} of {seconds / WINDOW_SECONDS:.3g} minutes")
                lasts, before = min(WINDOW_SECONDS, seconds - minute * WINDOW_SECONDS), failed
                window = await paced(call, rate, CALLERS, seconds=lasts)
                took.extend(window.seconds)
                watched.look()
                if seconds > WINDOW_SECONDS:
                    result = Result(
                        workload="soak", nodes=nodes, ops_per_s=len(window.seconds) / window.elapsed,
                        count=len(window.seconds), failed=failed - before, note=f"minute {minute + 1}",
                    )  # fmt: skip
                    watched.note(result)
                    yield result.timed(window.seconds)
            elapsed = time.perf_counter() - begun
        checkpoints = await run.database.arun(run.database.checkpoints) - checkpoints
        size = await run.database.arun(run.database.journal_bytes)
        whole = Result(
            workload="soak", nodes=nodes, entities=ENTITIES, ops_per_s=len(took) / elapsed, count=len(took),
            failed=failed, ratio={"of the limit": len(took) / elapsed / limit},
            note=(
                f"all of {seconds / 60:.3g} minutes; the limit was {limit:,.0f}/s at {in_flight} in flight; "
                f"{checkpoints} checkpoints; {run.journal:,} older events in the journal, "
                f"{size / GIGABYTE:.1f} GB at the end"
            ),
        )  # fmt: skip
        watched.note(whole)
        yield whole.timed(took)


async def _grow(cluster: BenchCluster, run: Run) -> None:
    """Write the older journal: entities of a thousand events each."""
    shards = await placed(cluster, name_of(BenchAccount)) if run.journal else 0
    entities = [f"old{number}" for number in range(math.ceil(run.journal / OLD_EVENTS))]
    for first in range(0, len(entities), CHUNK):
        run.progress(f"soak, writing {run.journal:,} older events, {100 * first // len(entities)} %")
        chunk = entities[first : first + CHUNK]
        await run.database.arun(
            write_histories, run.database, name_of(BenchAccount), chunk, shards, OLD_EVENTS
        )
