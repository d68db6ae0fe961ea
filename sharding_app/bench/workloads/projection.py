"""`projection`: the events that a projection handles each second, through a handler of many and
through one that updates a row for each; the time from a commit to its row; and appends of a type
that is followed, in turns with one that is not.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

from sharding_app.adapters.django import projections as control
from sharding_app.bench.cluster import BenchCluster, NodeFailed, bench_cluster
from sharding_app.bench.driving import at_once, paced
from sharding_app.bench.entities import BenchAccount, BenchBulk, BenchSingle, name_of
from sharding_app.bench.projections import DROPPED, PROJECTS, TABLES
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run, measured, warm
from sharding_app.bench.workloads.keeping import placed
from sharding_app.entities.base import Entity
from sharding_app.protocol.ids import shard_of

EVENTS = {"bulk": 60_000, "single": 12_000}
AT_A_TIME = 200
"""Events of one append that waits for a projection."""
IN_FLIGHT = 64
SECONDS = 4.0
LIVE_PER_SECOND = 100.0
HANDLED_SECONDS = 180.0
LOOK_SECONDS = 0.1
KINDS: dict[str, tuple[type[Entity], str, str]] = {
    "bulk": (BenchBulk, "sharding.BenchBulkRows", "sharding_bench_event"),
    "single": (BenchSingle, "sharding.BenchSingleRows", "sharding_bench_total"),
}
APPEND = """
INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)
SELECT s.type_id, e.entity, e.seq, s.shard, s.epoch, 'Increased', 1, '{"by": 1}'
FROM unnest(%s::text[], %s::bigint[], %s::integer[]) AS e (entity, seq, shard)
JOIN sharding_shard s ON s.shard = e.shard AND s.type_id = (SELECT t.id FROM sharding_type t WHERE t.name = %s)
"""
LATENCY = """
SELECT extract(epoch FROM b.shown - e.at)::float8
FROM sharding_bench_event b
JOIN sharding_event e ON e.type_id = (SELECT t.id FROM sharding_type t WHERE t.name = %s)
    AND e.entity = b.entity AND e.seq = b.number
WHERE b.entity LIKE 'live%%'
"""


async def projection(run: Run) -> AsyncIterator[Result]:
    """Measure projections on one node beside the load."""
    with _projecting():
        for statement in (DROPPED, *TABLES):
            await run.database.arun(run.database.execute, statement)
        try:
            async with bench_cluster(run.nodes or 1, run.options) as cluster:
                for cls in (BenchAccount, BenchBulk, BenchSingle):
                    await placed(cluster, name_of(cls))
                await _filled(run)
                for kind in KINDS:
                    yield await _drained(run, cluster, kind)
                yield await _live(run, cluster)
                async for result in _appends(run, cluster):
                    yield result
        finally:
            await run.database.arun(run.database.execute, DROPPED)


@contextmanager
def _projecting() -> Iterator[None]:
    """Let the nodes that are started inside run the projections."""
    os.environ[PROJECTS] = "yes"
    try:
        yield
    finally:
        del os.environ[PROJECTS]


async def _filled(run: Run) -> None:
    """Wait until the first fills, of empty types, are through."""
    await _until(
        run, lambda: len(control.status()) == len(KINDS) and all(_is_idle(each) for each in control.status())
    )


def _is_idle(status: control.ProjectionStatus) -> bool:
    return all(not part.is_filling and not part.behind_events for part in status.parts)


async def _until(run: Run, is_so: Callable[[], bool]) -> None:
    began = time.perf_counter()
    while not await run.database.arun(is_so):
        if time.perf_counter() - began > HANDLED_SECONDS:
            raise NodeFailed(f"a projection did not handle all events within {HANDLED_SECONDS:g} s")
        await asyncio.sleep(LOOK_SECONDS)


async def _drained(run: Run, cluster: BenchCluster, kind: str) -> Result:
    """Let events wait for a paused projection; measure from its first row to its last.

    Where the first look sees all rows, it is measured from the end of the pause.
    """
    cls, name, table = KINDS[kind]
    run.progress(f"projection, {kind}")
    count = run.entities or EVENTS[kind]
    await run.database.arun(control.pause, name, 1)
    await run.database.arun(_append, run, cls, count)
    begun = await cluster.figures()
    await run.database.arun(control.resume, name, 1)
    resumed = time.perf_counter()
    total = "count(*)" if kind == "bulk" else "coalesce(sum(total), 0)::bigint"
    began = ended = 0.0
    handled = first = 0
    while handled < count:
        handled = await run.database.arun(run.database.value, f"SELECT {total} FROM {table}")  # noqa: S608
        ended = time.perf_counter()
        if handled and not began:
            began, first = (ended, handled) if handled < count else (resumed, 0)
        if began and ended - began > HANDLED_SECONDS:
            raise NodeFailed(f"a projection did not handle {count} events within {HANDLED_SECONDS:g} s")
        await asyncio.sleep(0.005)
    after = await cluster.figures()
    seconds = max(ended - began, 1e-9)
    return Result(
        workload=f"projection-{kind}", nodes=len(cluster.nodes), count=count,
        ops_per_s=(count - first) / seconds,
        node_cpu_us=(after["cpu_seconds"] - begun["cpu_seconds"]) / count * 1e6,
        note="events that waited, from the first row to the last",
    )  # fmt: skip


def _append(run: Run, cls: type[Entity], count: int) -> None:
    """Append events of entities that are in no memory, by statements of `AT_A_TIME`."""
    shards = int(
        run.database.value("SELECT number_of_shards FROM sharding_type WHERE name = %s", name_of(cls))
    )
    for begin in range(0, count, AT_A_TIME):
        numbers = range(begin, min(begin + AT_A_TIME, count))
        ids = [f"f{number % ENTITIES}" for number in numbers]
        params = [
            ids,
            [number // ENTITIES + 1 for number in numbers],
            [shard_of(each, shards) for each in ids],
        ]
        run.database.execute(APPEND, *params, name_of(cls))  # type: ignore[arg-type]


async def _live(run: Run, cluster: BenchCluster) -> Result:
    """Commit at a quiet rate, and compare the times of the rows with those of the events."""
    run.progress("projection, from the commit to the row")

    def call(number: int) -> Awaitable[object]:
        return BenchBulk.ref(f"live{number % 50}").increase()

    seconds = run.seconds or SECONDS
    await paced(call, LIVE_PER_SECOND, 20, seconds=1.0)
    driven = await measured(cluster, "projection-live", 20, paced(call, LIVE_PER_SECOND, 20, seconds=seconds))
    await _until(run, lambda: all(_is_idle(each) for each in control.status("sharding.BenchBulkRows")))
    found = await run.database.arun(run.database.rows, LATENCY, name_of(BenchBulk))
    driven.timed([seconds for (seconds,) in found])
    driven.note = f"from the begin of the append to the write of the row, at {LIVE_PER_SECOND:g} commits/s"
    return driven


async def _appends(run: Run, cluster: BenchCluster) -> AsyncIterator[Result]:
    """Ask entities of a followed type, in turns with others. The projection is paused, so that the
    appends alone are compared.
    """

    def followed(number: int) -> Awaitable[object]:
        return BenchBulk.ref(f"c{number % ENTITIES}").increase()

    def plain(number: int) -> Awaitable[object]:
        return BenchAccount.ref(f"c{number % ENTITIES}").increase()

    await run.database.arun(control.pause, "sharding.BenchBulkRows", 1)
    await warm(plain)
    await warm(followed)
    in_flight = run.in_flight[0] if run.in_flight else IN_FLIGHT
    seconds = run.seconds or SECONDS
    rates: dict[str, list[Result]] = {"plain": [], "followed": []}
    for _ in range(max(2, run.rounds)):
        for name, call in (("plain", plain), ("followed", followed)):
            run.progress(f"projection, appends of a type: {name}")
            driving = at_once(call, in_flight, seconds=seconds)
            rates[name].append(await measured(cluster, f"projection-appends-{name}", in_flight, driving))
    best = max(rates["followed"], key=_rate)
    best.ratio = {"plain": sum(map(_rate, rates["followed"])) / sum(map(_rate, rates["plain"]))}
    best.note = (
        f"the fastest turn; not followed beside it: {max(map(_rate, rates['plain'])):,.0f}/s; "
        "the ratio is that of all turns"
    )
    yield best


def _rate(result: Result) -> float:
    return result.ops_per_s or 0.0
