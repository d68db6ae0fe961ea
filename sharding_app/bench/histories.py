"""Histories that are in the journal before a measurement begins, written with SQL in the form that
the fence requires.
"""

from typing import Any

from sharding_app.bench.cluster import NodeFailed
from sharding_app.bench.database import Database
from sharding_app.protocol.ids import shard_of

_WRITE = """
WITH written AS (
    INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)
    SELECT t.id, wanted.entity, number, wanted.shard, s.epoch, 'Increased', 1, '{"by":1}'
    FROM sharding_type t
    CROSS JOIN unnest(%s::text[], %s::integer[]) AS wanted (entity, shard)
    JOIN sharding_shard s ON s.type_id = t.id AND s.shard = wanted.shard
    CROSS JOIN generate_series(1, %s) AS number
    WHERE t.name = %s
    RETURNING 1
)
SELECT count(*) FROM written
"""


def write_histories(
    database: Database, type_name: str, entities: list[str], shards: int, events: int
) -> None:
    """Write N events for each entity, on the database's thread. The shards need homes. Raises
    NodeFailed.
    """
    numbers: Any = [shard_of(entity, shards) for entity in entities]
    wanted: Any = entities
    written = database.value(_WRITE, wanted, numbers, events, type_name)
    if written != len(entities) * events:
        raise NodeFailed(f"{written} of {len(entities) * events} events were written")
