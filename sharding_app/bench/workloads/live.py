"""`live`: from a commit to the browsers that watch its entity, through one web process."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from statistics import median

from sharding_app.bench.browsers import WAYS_TO_BROWSERS
from sharding_app.bench.cluster import bench_cluster
from sharding_app.bench.entities import BenchLive
from sharding_app.bench.helper import helper_process
from sharding_app.bench.result import Result
from sharding_app.bench.run import Run

BROWSERS = (1, 100, 10_000)
DELIVERIES = 20_000
"""In each measurement, within the limits of values."""
FEWEST, MOST = 10, 200
"""Values in each measurement."""
OPEN_SECONDS = 300.0
SEEN_SECONDS = 150.0
WORDS = ("up", "figures", "opened", "seen")


async def live(run: Run) -> AsyncIterator[Result]:
    """Change one entity again and again. Each change waits until all browsers have the last one."""
    server = [f"--server={run.server}"] if run.server else []
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench_cluster(run.nodes or 1, run.options))
        await BenchLive.ref("one").raise_one()
        site = await stack.enter_async_context(
            helper_process("the web process", WORDS, "--as-site", *server, *run.options)
        )
        address = await site.word("up")
        browsers = await stack.enter_async_context(
            helper_process(
                "the browsers' process", WORDS, f"--as-browsers={address}", f"--over={run.over}", *run.options
            )
        )
        await browsers.word("up")

        async def cpu_seconds() -> float:
            site.say("figures")
            return float(json.loads(await site.word("figures"))["cpu_seconds"])

        for count in run.in_flight or BROWSERS:
            run.progress(f"live, {count} browsers are opened")
            browsers.say(f"open {count}")
            await browsers.word("opened", OPEN_SECONDS)
            values = max(FEWEST, min(MOST, DELIVERIES // count))
            run.progress(f"live, {count} browsers, {values} values")
            before, found = await cpu_seconds(), []
            for _ in range(values):
                value, committed = await BenchLive.ref("one").raise_one()
                browsers.say(f"await {value} {committed!r}")
                found.append(json.loads(await browsers.word("seen", SEEN_SECONDS)))
            used = await cpu_seconds() - before
            result = Result(
                workload="live",
                nodes=len(cluster.nodes),
                browsers=count,
                count=values * count,
                first_ms=median(each["first"] for each in found),
                last_ms=median(each["last"] for each in found),
                web_cpu_us=used / (values * count) * 1e6,
                note=f"{json.loads(address)['server']}, {WAYS_TO_BROWSERS[run.over]}; {values} values",
            )
            result.p50_ms = median(each["median"] for each in found)
            result.p99_ms = median(each["p99"] for each in found)
            result.max_ms = max(each["last"] for each in found)
            yield result
