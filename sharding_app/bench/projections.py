"""The benchmarks' projections: one inserts rows in bulk, the other updates one row for each event.

Importing this module registers nothing: they exist only inside `only_bench_types` of a process that
`PROJECTS` is set for. Their tables are made and dropped by the workload.
"""

import os
from collections.abc import Sequence

from django.db import connections

from sharding_app import Happened, Projection, on, on_batch
from sharding_app.adapters.django.database import journal_alias
from sharding_app.bench.entities import BenchBulk, BenchSingle, Increased
from sharding_app.entities.projections import projections
from sharding_app.runtime.projections.worker import declare_workers

PROJECTS = "SHARDING_BENCH_PROJECTS"
"""Set in the environment of processes that run the projections."""
PARTS = 2
TABLES = (
    "CREATE TABLE sharding_bench_event (entity text, number bigint, shown timestamptz DEFAULT clock_timestamp())",
    "CREATE TABLE sharding_bench_total (entity text PRIMARY KEY, number bigint, total bigint, shown timestamptz)"
    " WITH (fillfactor = 50)",
)
DROPPED = "DROP TABLE IF EXISTS sharding_bench_event, sharding_bench_total"
INSERT = "INSERT INTO sharding_bench_event (entity, number) SELECT * FROM unnest(%s::text[], %s::bigint[])"
ADD = """
INSERT INTO sharding_bench_total AS t VALUES (%s, %s, %s, clock_timestamp())
ON CONFLICT (entity) DO UPDATE SET number = EXCLUDED.number, total = t.total + EXCLUDED.total, shown = clock_timestamp()
"""


with projections.isolated():

    class BulkRows(Projection, name="sharding.BenchBulkRows"):
        """A row for each event, many in one statement."""

        source = BenchBulk
        parts = PARTS
        batch_size = 1000

        @on_batch(Increased)
        def increased(self, happened: Sequence[Happened[Increased]]) -> None:
            with connections[journal_alias()].cursor() as cursor:
                cursor.execute(
                    INSERT, [[each.entity_id for each in happened], [each.number for each in happened]]
                )

    class SingleRows(Projection, name="sharding.BenchSingleRows"):
        """A row for each entity, updated with each of its events."""

        source = BenchSingle
        parts = PARTS

        @on(Increased)
        def increased(self, happened: Happened[Increased]) -> None:
            with connections[journal_alias()].cursor() as cursor:
                cursor.execute(ADD, [happened.entity_id, happened.number, happened.event.by])


def declare() -> None:
    """Declare them, and the types of their workers, if this process is to run them."""
    if not os.environ.get(PROJECTS):
        return
    found = [each._sharding_projection for each in (BulkRows, SingleRows)]
    made = [each for each in found if each is not None]
    for each in made:
        projections.add(each)
    declare_workers(made)
