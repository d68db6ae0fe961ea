"""`ask`, `durable`, `hot` and `wide`: commands from another process, N at once."""

from collections.abc import AsyncIterator, Awaitable

from sharding_app.bench.cluster import bench_cluster
from sharding_app.bench.driving import Call, at_once
from sharding_app.bench.entities import BenchAccount, BenchCounter, BenchHot
from sharding_app.bench.probe import compare, probe, wires
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run, measured, warm

IN_FLIGHT = (1, 64, 1000)
SECONDS = 4.0
WIDE_ENTITIES = 100_000
WIDE_IN_FLIGHT = 1000
TURNS = 2


def _ask(number: int) -> Awaitable[int]:
    return BenchCounter.ref(f"c{number % ENTITIES}").increase()


def _durable(number: int) -> Awaitable[int]:
    return BenchAccount.ref(f"c{number % ENTITIES}").increase()


def _hot(_: int) -> Awaitable[int]:
    return BenchHot.ref("one").increase()


def _wide(prefix: str) -> Call:
    return lambda number: BenchAccount.ref(f"{prefix}-{number}").increase()


def _rate(result: Result) -> float:
    return result.ops_per_s or 0.0


async def ask(run: Run) -> AsyncIterator[Result]:
    async for result in _several(run, "ask", _ask):
        yield result


async def durable(run: Run) -> AsyncIterator[Result]:
    async for result in _several(run, "durable", _durable):
        yield result


async def hot(run: Run) -> AsyncIterator[Result]:
    """Command one entity; in turns with many entities, for the ratio."""
    async with bench_cluster(run.nodes or 1, run.options) as cluster:
        await warm(_durable)
        await warm(_hot, 1)
        for each in run.in_flight or (64,):
            run.progress(f"hot, {each} in flight")
            seconds = (run.seconds or SECONDS) / 2
            many, one = [], []
            for _ in range(TURNS):
                many.append(
                    await measured(cluster, "durable", each, at_once(_durable, each, seconds=seconds))
                )
                one.append(await measured(cluster, "hot", each, at_once(_hot, each, seconds=seconds)))
            best = max(one, key=_rate)
            best.note = f"the faster of {TURNS} turns; the ratio is that of all"
            best.ratio = {"durable": sum(map(_rate, one)) / sum(map(_rate, many))}
            yield best


async def wide(run: Run) -> AsyncIterator[Result]:
    """Send one command each to entities that are not in memory, and have no history yet."""
    count = run.entities or WIDE_ENTITIES
    async with bench_cluster(run.nodes or 1, run.options) as cluster:
        # The shards' homes are found before: their number does not depend on the number of
        # entities.
        await at_once(lambda n: BenchAccount.ref(f"first-{n}").total(), 200, count=5000)
        for each in run.in_flight or (WIDE_IN_FLIGHT,):
            run.progress(f"wide, {count} entities, {each} in flight")
            call = _wide(f"w{each}")
            result = await measured(cluster, "wide", each, at_once(call, each, count=count))
            result.entities = count
            yield result


async def _several(run: Run, name: str, call: Call) -> AsyncIterator[Result]:
    async with bench_cluster(run.nodes or 1, run.options) as cluster:
        run.progress(f"{name}, warming up")
        await warm(call)
        for each in run.in_flight or IN_FLIGHT:
            for _ in range(run.rounds):
                run.progress(f"{name}, {each} in flight")
                seconds = run.seconds or SECONDS
                result = await measured(cluster, name, each, at_once(call, each, seconds=seconds))
                for wire, servers in (wires() if run.probe else {}).items():
                    run.progress(f"{name}, {each} in flight: the probe over {wire}")
                    compare(result, wire, await probe(wire, servers, name, each, seconds))
                yield result
