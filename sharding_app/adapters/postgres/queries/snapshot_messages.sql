-- Messages and timers by type: how many are overdue, failing and parked, each up to a limit, and for how many
-- seconds the oldest one has been due. One look at each shard that has any, along the index; none for types without any.
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
    ), first AS MATERIALIZED (
        SELECT place.shard, (
            SELECT m.due FROM sharding_message m
            WHERE m.type_id = t.id AND m.shard = place.shard AND NOT m.parked
            ORDER BY m.due LIMIT 1) AS due
        FROM place
    )
    SELECT
        (SELECT min(first.due) FROM first WHERE first.due <= now() - %(late)s * interval '1 second') AS oldest,
        (SELECT count(*) FROM (
            SELECT FROM first
            CROSS JOIN LATERAL (
                SELECT FROM sharding_message m
                WHERE m.type_id = t.id AND m.shard = first.shard AND NOT m.parked
                    AND m.due <= now() - %(late)s * interval '1 second'
                LIMIT %(limit)s
            ) m
            WHERE first.due <= now() - %(late)s * interval '1 second'
            LIMIT %(limit)s
        ) few) AS many,
        (SELECT count(*) FROM (
            SELECT FROM first
            CROSS JOIN LATERAL (
                SELECT FROM sharding_message m
                WHERE m.type_id = t.id AND m.shard = first.shard AND m.parked
                LIMIT %(limit)s
            ) m
            LIMIT %(limit)s
        ) few) AS parked
) overdue
CROSS JOIN LATERAL (
    SELECT count(*) AS many FROM (
        SELECT FROM sharding_message m WHERE m.type_id = t.id AND m.error <> '' AND NOT m.parked LIMIT %(limit)s
    ) few
) failing
WHERE t.uses_messages
ORDER BY t.name;
