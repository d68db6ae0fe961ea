"""`scale`: what one command costs, all processes together, when the nodes become more."""

from collections.abc import AsyncIterator, Awaitable

from sharding_app.bench.cluster import bench_cluster
from sharding_app.bench.driving import at_once
from sharding_app.bench.entities import BenchAccount
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run, measured, warm

NODES = 4
IN_FLIGHT = 64
SECONDS = 3.0


async def scale(run: Run) -> AsyncIterator[Result]:
    """The callers grow with the nodes, so that each node has equally many."""
    first: Result | None = None
    for nodes in range(1, (run.nodes or NODES) + 1):
        async with bench_cluster(nodes, run.options) as cluster:
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


def _to(first: Result, other: Result) -> dict[str, float]:
    """Each cost of a command, as a ratio to one node's."""
    names = (
        "client_cpu_us",
        "node_cpu_us",
        "messages_per_op",
        "frames_per_op",
        "rows_per_op",
        "commits_per_op",
    )
    return {name: getattr(other, name) / getattr(first, name) for name in names if getattr(first, name)}
