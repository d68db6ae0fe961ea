"""One run of the command: its options, its database, and the parts that every workload needs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from sharding_app.bench.cluster import BenchCluster
from sharding_app.bench.database import Database
from sharding_app.bench.driving import Call, Driven, at_once
from sharding_app.bench.result import Result

ENTITIES = 1000
WARM_SECONDS = 1.0


@dataclass(kw_only=True)
class Run:
    """The options of the command line; 0 or empty: the workload's own default."""

    database: Database
    in_flight: tuple[int, ...] = ()
    nodes: int = 0
    seconds: float = 0.0
    entities: int = 0
    minutes: float = 0.0
    "Duration of `soak`."
    journal: int = 0
    "Number of older events of other entities in the journal of `soak` and `large`."
    types: int = 0
    shards: int = 0
    "Of each type of `large`."
    payload_bytes: int = 0
    "Of each event of `large`."
    partitions: bool = False
    "Fill `large` with a partition for each type."
    kills: int = 0
    how: str = "kill"
    "How `failover` takes a node away: kill, freeze or cable."
    server: str = ""
    "The web server of `live`."
    over: str = "websocket"
    "How browsers of `live` listen: websocket or events."
    probe: bool = False
    "Measure the floor in turns, and give ours as a ratio to it."
    rounds: int = 1
    "Repetitions of each measurement."
    options: tuple[str, ...] = ()
    "Options of manage.py that are passed on to the nodes."
    progress: Callable[[str], None] = field(default=lambda _: None)


Workload = Callable[[Run], AsyncIterator[Result]]


async def warm(call: Call, entities: int = ENTITIES) -> None:
    """Give every shard a home and have every entity in memory, then run for a moment."""
    await at_once(call, min(200, entities), count=entities)
    await at_once(call, 64, seconds=WARM_SECONDS)


async def measured(cluster: BenchCluster, name: str, in_flight: int, driving: Awaitable[Driven]) -> Result:
    """Drive the cluster; return the result, with its cost in all processes."""
    before = await cluster.figures()
    driven = await driving
    after = await cluster.figures()
    count = len(driven.seconds)
    return Result(
        workload=name,
        in_flight=in_flight,
        nodes=len(cluster.nodes),
        ops_per_s=count / driven.elapsed,
        count=count,
        client_cpu_us=driven.cpu_seconds / count * 1e6,
        node_cpu_us=(after["cpu_seconds"] - before["cpu_seconds"]) / count * 1e6,
        rows_per_op=(after["rows"] - before["rows"]) / count,
        commits_per_op=(after["commits"] - before["commits"]) / count,
        messages_per_op=(after["messages"] - before["messages"]) / count,
        frames_per_op=(after["frames"] - before["frames"]) / count,
    ).timed(driven.seconds)
