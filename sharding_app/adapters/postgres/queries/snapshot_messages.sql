-- Messages and timers by type: how many are overdue, failing and parked, each up to a limit, and for how many
-- seconds the oldest one has been due. One look at each shard that has any, along the index; none for types without any.
-- The order of the counted rows keeps PostgreSQL to the index, also where vacuum is far behind.
-- Of a shard of which this journal has a copy alone, only messages from outside count: the index does not tell them.
WITH copied AS MATERIALIZED (
    SELECT copied.* FROM unnest(%(copied_types)s::integer[], %(copied_shards)s::integer[]) AS copied (type_id, shard)
)
SELECT t.name, overdue.many, extract(epoch FROM now() - overdue.oldest)::float8, failing.many, overdue.parked
FROM sharding_type t
CROSS JOIN LATERAL (
    WITH RECURSIVE place AS (
        (SELECT m.shard FROM sharding_message m WHERE m.type_id = t.id ORDER BY m.shard LIMIT 1)
        UNION ALL
        SELECT further.shard
        FROM place
        CROSS JOIN LATERAL (
            SELECT m.shard FROM sharding_message m
            WHERE m.type_id = t.id AND m.shard > place.shard
            ORDER BY m.shard LIMIT 1
        ) further
    ), here AS MATERIALIZED (
        SELECT place.shard,
            NOT EXISTS (SELECT FROM copied WHERE copied.type_id = t.id AND copied.shard = place.shard) AS lies
        FROM place
    ), first AS MATERIALIZED (
        SELECT here.shard, here.lies, CASE WHEN here.lies THEN (
            SELECT m.due FROM sharding_message m
            WHERE m.type_id = t.id AND m.shard = here.shard AND NOT m.parked
            ORDER BY m.due LIMIT 1
        ) ELSE (
            SELECT m.due FROM sharding_message m
            WHERE m.type_id = t.id AND m.shard = here.shard AND NOT m.parked AND m.epoch IS NULL
            ORDER BY m.due LIMIT 1
        ) END AS due
        FROM here
    )
    SELECT
        (SELECT min(first.due) FROM first WHERE first.due <= now() - %(late)s * interval '1 second') AS oldest,
        (SELECT count(*) FROM (
            SELECT FROM first
            CROSS JOIN LATERAL (
                SELECT FROM sharding_message m
                WHERE m.type_id = t.id AND m.shard = first.shard AND NOT m.parked
                    AND m.due <= now() - %(late)s * interval '1 second'
                ORDER BY m.due LIMIT %(limit)s
            ) m
            WHERE first.lies AND first.due <= now() - %(late)s * interval '1 second'
            UNION ALL
            SELECT FROM first
            CROSS JOIN LATERAL (
                SELECT FROM sharding_message m
                WHERE m.type_id = t.id AND m.shard = first.shard AND NOT m.parked
                    AND m.due <= now() - %(late)s * interval '1 second' AND m.epoch IS NULL
                ORDER BY m.due LIMIT %(limit)s
            ) m
            WHERE NOT first.lies AND first.due <= now() - %(late)s * interval '1 second'
            LIMIT %(limit)s
        ) few) AS many,
        (SELECT count(*) FROM (
            SELECT FROM first
            CROSS JOIN LATERAL (
                SELECT FROM sharding_message m
                WHERE m.type_id = t.id AND m.shard = first.shard AND m.parked
                ORDER BY m.due LIMIT %(limit)s
            ) m
            WHERE first.lies
            UNION ALL
            SELECT FROM first
            CROSS JOIN LATERAL (
                SELECT FROM sharding_message m
                WHERE m.type_id = t.id AND m.shard = first.shard AND m.parked AND m.epoch IS NULL
                ORDER BY m.due LIMIT %(limit)s
            ) m
            WHERE NOT first.lies
            LIMIT %(limit)s
        ) few) AS parked
) overdue
CROSS JOIN LATERAL (
    SELECT count(*) AS many FROM (
        SELECT FROM sharding_message m
        WHERE m.type_id = t.id AND m.error <> '' AND NOT m.parked
            AND (m.epoch IS NULL
                OR NOT EXISTS (SELECT FROM copied WHERE copied.type_id = m.type_id AND copied.shard = m.shard))
        LIMIT %(limit)s
    ) few
) failing
WHERE t.uses_messages
ORDER BY t.name;
