"""`large`: the same work on an empty database, and beside millions of events of many types."""

import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from django.test import RequestFactory
from django.urls import NoReverseMatch, resolve, reverse

from sharding_app.bench.cluster import bench_cluster
from sharding_app.bench.driving import at_once
from sharding_app.bench.entities import BenchAccount, name_of
from sharding_app.bench.histories import write_histories
from sharding_app.bench.large_journal import PARTS, Shape, fill, refuse_partitions
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run, measured, warm
from sharding_app.bench.workloads.keeping import placed
from sharding_app.models import EntityType
from sharding_app.operations.snapshot import read_snapshot

IN_FLIGHT = 64
SECONDS = 4.0
RECOVERED = 20_000
"""Entities that are woken: fewer are over in a fifth of a second. A small database has fewer."""
EVENTS = 10
LOOKS = 9
PAGES = 90


async def large(run: Run) -> AsyncIterator[Result]:
    """Measure, fill the database, and measure again: the second results carry the ratios."""
    given = {
        "types": run.types, "shards": run.shards, "entities": run.entities, "events": run.journal,
        "payload_bytes": run.payload_bytes,
    }  # fmt: skip
    sizes: dict[str, int] = {name: number for name, number in given.items() if number}
    shape = Shape(**sizes, divided=name_of(BenchAccount) if run.partitions else "")
    if shape.divided:
        await run.database.arun(refuse_partitions, run.database)
    recovered = min(RECOVERED, max(1000, shape.entities // 10))
    before = [each async for each in _measured(run, "empty", recovered)]
    for each in before:
        yield each
    began = time.perf_counter()
    at_rest = await run.database.arun(fill, run.database, shape, run.progress)
    seconds = time.perf_counter() - began
    size = await run.database.arun(run.database.journal_bytes)
    yield Result(
        workload="large", entities=shape.entities, count=shape.events, ops_per_s=shape.events / seconds,
        note=f"filled: {shape.types} types of {shape.shards} shards; {size / 1e6:.0f} MB of events{_layout(shape)}"
        + ("" if at_rest else ", of which the server still writes some"),
    )  # fmt: skip
    found = [each async for each in _measured(run, "filled", recovered)]
    for each, earlier in zip(found, before, strict=True):
        if each.ops_per_s and earlier.ops_per_s:
            each.ratio = {"of empty": each.ops_per_s / earlier.ops_per_s}
        elif each.p50_ms and earlier.p50_ms:
            each.ratio = {"of empty": each.p50_ms / earlier.p50_ms}
        yield each


async def _measured(run: Run, state: str, recovered: int) -> AsyncIterator[Result]:
    in_flight = max(run.in_flight, default=IN_FLIGHT)
    async with bench_cluster(run.nodes or 1, run.options) as cluster:
        name = name_of(BenchAccount)
        shards = await placed(cluster, name)
        run.progress(f"large, {state}: durable")
        await warm(_durable)
        durable = at_once(_durable, in_flight, seconds=run.seconds or SECONDS)
        result = await measured(cluster, "large", in_flight, durable)
        result.note = f"{state}: durable"
        yield result
        run.progress(f"large, {state}: recover")
        entities = [f"{state}-{number}" for number in range(recovered)]
        await run.database.arun(write_histories, run.database, name, entities, shards, EVENTS)
        waking = at_once(
            lambda number: BenchAccount.ref(entities[number]).total(), in_flight, count=recovered
        )
        result = await measured(cluster, "large", in_flight, waking)
        result.note = f"{state}: recover, {EVENTS} events each"
        yield result
        yield await run.database.arun(_looks, state)
        yield await run.database.arun(_pages, state, name)


def _layout(shape: Shape) -> str:
    return f" in partitions by type, two of them in {PARTS} parts" if shape.divided else ""


def _durable(number: int) -> Awaitable[int]:
    return BenchAccount.ref(f"c{number % ENTITIES}").increase()


def _looks(state: str) -> Result:
    """Time a look at the rows of the cluster, as the dashboard and a scrape take it."""
    seconds = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        read_snapshot()
        seconds.append(time.perf_counter() - began)
    return Result(workload="large", count=LOOKS, note=f"{state}: a look at the rows").timed(seconds)


def _pages(state: str, name: str) -> Result:
    """Time full pages of the admin's list of events of a type, as a browser gets them."""
    try:
        address = reverse("admin:sharding_event_changelist")
    except NoReverseMatch:
        return Result(workload="large", note=f"{state}: a page of events, left out: there is no admin")
    view = resolve(address).func
    number = EntityType.objects.values_list("id", flat=True).get(name=name)
    reader: Any = Reader()
    seconds = []
    shown = 0
    for beginning in range(10, 10 + PAGES):
        request = RequestFactory().get(address, {"type": number, "q": f"{state}-{beginning}"})
        request.user = reader
        began = time.perf_counter()
        response = view(request).render()
        seconds.append(time.perf_counter() - began)
        shown += len(response.context_data["cl"].result_list)
    return Result(workload="large", count=shown, note=f"{state}: a page of events").timed(seconds)


class Reader:
    """A user without a row who may look at all."""

    pk = None
    is_active = is_staff = is_superuser = is_authenticated = True
    is_anonymous = False

    def has_perm(self, permission: str, of: Any = None) -> bool:
        return True

    def has_module_perms(self, module: str) -> bool:
        return True

    def has_usable_password(self) -> bool:
        return False

    def get_username(self) -> str:
        return "sharding_bench"

    get_short_name = get_full_name = get_username
