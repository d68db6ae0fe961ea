"""`django`: the same durable command as a view would do it, with `select_for_update` in a
transaction of the ORM.

One locked row, one UPDATE and one INSERT, over the same ids and with the same payload. Each thread
keeps its connection. The tables are made for the run and dropped.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

from django.apps.registry import Apps
from django.db import connections, models, transaction

from sharding_app.bench.driving import NothingMeasured
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run

THREADS = (8, 64)
SECONDS = 5.0
PAYLOAD = {"by": 1}
_own_apps = Apps()
"""A registry of their own keeps these models out of migrations, admin and content types."""


class BenchRow(models.Model):
    id = models.TextField(primary_key=True)
    count = models.IntegerField(default=0)

    class Meta:
        apps = _own_apps
        app_label = "sharding_bench"
        db_table = "sharding_bench_row"

    def __str__(self) -> str:
        return self.id


class BenchEvent(models.Model):
    row_id = models.TextField()
    seq = models.BigIntegerField()
    name = models.TextField()
    payload = models.JSONField()

    class Meta:
        apps = _own_apps
        app_label = "sharding_bench"
        db_table = "sharding_bench_event"
        constraints = (models.UniqueConstraint(fields=("row_id", "seq"), name="sharding_bench_event_seq"),)

    def __str__(self) -> str:
        return f"{self.row_id} {self.seq}"


def increase(alias: str, row_id: str) -> int:
    """Run the command as a view would."""
    with transaction.atomic(using=alias):
        row: Any = BenchRow._default_manager.using(alias).select_for_update().get(pk=row_id)
        row.count += 1
        row.save(using=alias, update_fields=["count"])
        event = BenchEvent(row_id=row_id, seq=row.count, name="Increased", payload=PAYLOAD)
        event.save(using=alias, force_insert=True)
    return int(row.count)


async def django(run: Run) -> AsyncIterator[Result]:
    """Measure a few and many threads, and yield the better result."""
    database = run.database
    await database.arun(_make, database.alias)
    try:
        results = []
        for threads in THREADS:
            run.progress(f"django, {threads} threads")
            seconds = run.seconds or SECONDS
            results.append(await asyncio.to_thread(_measure, database.alias, threads, seconds))
    finally:
        await database.arun(_drop, database.alias)
    best = max(results, key=lambda result: result.ops_per_s or 0.0)
    best.note = "; ".join(f"{each.in_flight} threads: {each.ops_per_s:.0f}/s" for each in results)
    yield best


def _measure(alias: str, threads: int, seconds: float) -> Result:
    ready = threading.Barrier(threads + 1)
    until = [0.0]
    taken: list[list[float]] = [[] for _ in range(threads)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        connection = connections[alias]
        try:
            connection.ensure_connection()
            ready.wait()
            place = number
            while (begun := time.perf_counter()) < until[0]:
                increase(alias, f"c{place % ENTITIES}")
                taken[number].append(time.perf_counter() - begun)
                place += threads
        except BaseException as error:  # noqa: BLE001  (the caller raises a thread's error)
            failures.append(error)
            ready.abort()
        finally:
            connection.close()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    until[0] = float("inf")
    for worker in workers:
        worker.start()
    ready.wait()
    begun, cpu = time.perf_counter(), time.process_time()
    until[0] = begun + seconds
    for worker in workers:
        worker.join()
    elapsed = time.perf_counter() - begun
    if failures:
        raise failures[0]
    done = [each for those in taken for each in those]
    if not done:
        raise NothingMeasured
    return Result(
        workload="django", in_flight=threads, entities=ENTITIES, ops_per_s=len(done) / elapsed, count=len(done),
        client_cpu_us=(time.process_time() - cpu) / len(done) * 1e6,
    ).timed(done)  # fmt: skip


def _make(alias: str) -> None:
    _drop(alias)
    with connections[alias].schema_editor() as editor:
        editor.create_model(BenchRow)
        editor.create_model(BenchEvent)
    BenchRow._default_manager.using(alias).bulk_create(BenchRow(id=f"c{n}") for n in range(ENTITIES))


def _drop(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS sharding_bench_row, sharding_bench_event")
