-- From one shard to the next by the primary key: as many steps as shards, however many entities there are.
WITH RECURSIVE found AS (
    (SELECT shard FROM sharding_remembered WHERE type_id = %(type_id)s ORDER BY shard LIMIT 1)
    UNION ALL
    SELECT (SELECT next.shard FROM sharding_remembered next
            WHERE next.type_id = %(type_id)s AND next.shard > found.shard ORDER BY next.shard LIMIT 1)
    FROM found WHERE found.shard IS NOT NULL
)
SELECT shard FROM found WHERE shard IS NOT NULL;
