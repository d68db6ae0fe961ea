-- What each entity is rebuilt from: its snapshots, newest first, then the events after the newest one.
-- The lateral part is a union, which the planner cannot flatten: one index range for each entity, in its order.
SELECT wanted.place, found.is_snapshot, found.seq, found.shard, found.epoch, found.name, found.version, found.content
FROM unnest(%(entities)s::text[]) WITH ORDINALITY AS wanted (entity, place)
CROSS JOIN LATERAL (
    (SELECT true AS is_snapshot, s.seq, s.shard, s.epoch, NULL::text AS name, 0 AS version, s.state AS content
        FROM sharding_snapshot s
        WHERE s.type_id = %(type_id)s AND s.entity = wanted.entity
        ORDER BY s.seq DESC)
    UNION ALL
    (SELECT false, e.seq, NULL, NULL, e.name, e.version, e.payload
        FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity = wanted.entity AND e.seq > COALESCE(
            (SELECT max(s.seq) FROM sharding_snapshot s WHERE s.type_id = %(type_id)s AND s.entity = wanted.entity), 0)
        ORDER BY e.seq)
) AS found;
