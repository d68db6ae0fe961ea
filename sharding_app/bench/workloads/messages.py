"""`messages`: durable messages between entities of two nodes, compared with `durable`.

A caller asks an entity, which stores an event and a message in one commit. The message goes to an
entity at home on another node, whose commit stores an event and deletes the message. The rate
counts from the first call until the last message has taken effect.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable

from sharding_app.bench.cluster import BenchCluster, NodeFailed, bench_cluster
from sharding_app.bench.driving import Driven, at_once
from sharding_app.bench.entities import BenchAccount, BenchSender, name_of
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run, measured, warm
from sharding_app.bench.workloads.keeping import placed
from sharding_app.protocol.ids import shard_of

IN_FLIGHT = (64, 1000)
SECONDS = 4.0
NODES = 2
TURNS = 2
DELIVERED_SECONDS = 120.0
LOOK_SECONDS = 0.02


async def messages(run: Run) -> AsyncIterator[Result]:
    """Send messages to entities of another node; in turns with `durable`, for the ratio."""
    async with bench_cluster(run.nodes or NODES, run.options) as cluster:
        run.progress("messages, warming up")
        targets = await _elsewhere(cluster)

        def send(number: int) -> Awaitable[object]:
            return BenchSender.ref(f"c{number % ENTITIES}").pass_on(targets[number % ENTITIES])

        def durable(number: int) -> Awaitable[object]:
            return BenchAccount.ref(f"c{number % ENTITIES}").increase()

        await warm(durable)
        await warm(send)
        for each in run.in_flight or IN_FLIGHT:
            seconds = run.seconds or SECONDS
            asked, sent = [], []
            for _ in range(TURNS):
                run.progress(f"messages, {each} in flight")
                asked.append(
                    await measured(cluster, "durable", each, at_once(durable, each, seconds=seconds))
                )
                driving = _all_taken(run, cluster, at_once(send, each, seconds=seconds))
                sent.append(await measured(cluster, "messages", each, driving))
            best = max(sent, key=_rate)
            best.ratio = {"durable": sum(map(_rate, sent)) / sum(map(_rate, asked))}
            best.note = f"durable beside it: {max(map(_rate, asked)):,.0f}/s"
            yield best


async def _elsewhere(cluster: BenchCluster) -> list[str]:
    """Return for each sender an account that is at home on another node, if there is one."""
    shards = await placed(cluster, name_of(BenchSender))
    await placed(cluster, name_of(BenchAccount))
    senders = await cluster.homes(name_of(BenchSender))
    accounts = await cluster.homes(name_of(BenchAccount))
    found = []
    for number in range(ENTITIES):
        home = senders[shard_of(f"c{number}", shards)]
        names = [f"t{number}-{again}" for again in range(20)]
        found.append(next((each for each in names if accounts[shard_of(each, shards)] != home), names[0]))
    return found


async def _all_taken(run: Run, cluster: BenchCluster, driving: Awaitable[Driven]) -> Driven:
    """Wait until all messages have taken effect; that counts as time of the callers."""
    driven = await driving
    began = time.perf_counter()
    while await _some_wait(run, cluster):
        if time.perf_counter() - began > DELIVERED_SECONDS:
            raise NodeFailed(f"some messages were not delivered within {DELIVERED_SECONDS:g} s")
        await asyncio.sleep(LOOK_SECONDS)
    driven.elapsed += time.perf_counter() - began
    return driven


async def _some_wait(run: Run, cluster: BenchCluster) -> bool:
    """Tell whether messages wait. The server is asked last: it would look past the rows of all
    messages that are gone, which takes it as long as dozens of deliveries.
    """
    figures = await cluster.figures()
    if figures["pending"] or figures["reading"]:
        return True
    return await run.database.arun(run.database.messages, name_of(BenchSender))


def _rate(result: Result) -> float:
    return result.ops_per_s or 0.0
