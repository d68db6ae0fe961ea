-- The marks of these entities: what an entity has stored now, in short. Any event, snapshot or start after it gives another
-- mark, and so does another life. Empty: nothing is stored. `archive_remove` makes the same mark.
SELECT wanted.entity, CASE WHEN events.count + snapshots.count = 0 THEN '' ELSE format('%%s %%s-%%s %%s, %%s %%s, %%s',
    events.count, events.first, events.last, to_char(events.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    snapshots.count, snapshots.last, remembered.count) END
FROM unnest(%(entities)s::text[], %(shards)s::integer[]) AS wanted (entity, shard)
CROSS JOIN LATERAL (
    SELECT count(*), min(e.seq) AS first, max(e.seq) AS last, max(e.at) AS at
    FROM sharding_event e WHERE e.type_id = %(type_id)s AND e.entity = wanted.entity) events
CROSS JOIN LATERAL (
    SELECT count(*), max(s.seq) AS last
    FROM sharding_snapshot s WHERE s.type_id = %(type_id)s AND s.entity = wanted.entity) snapshots
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM sharding_remembered r
    WHERE r.type_id = %(type_id)s AND r.shard = wanted.shard AND r.entity = wanted.entity) remembered;
