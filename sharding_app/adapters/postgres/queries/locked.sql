-- Which of these shards' rows are locked now, so that the fence would wait for them, and who holds them. The locks that are
-- taken here to find that out are the fence's own, and end with this statement. Without a holder: it shares the row
-- with others, or has gone meanwhile.
WITH wanted AS (
    SELECT s.type_id, s.shard, s.xmax
    FROM unnest(%(types)s::integer[], %(shards)s::integer[]) AS w (type_id, shard)
    JOIN sharding_shard s ON s.type_id = w.type_id AND s.shard = w.shard
), free AS MATERIALIZED (
    SELECT s.type_id, s.shard
    FROM sharding_shard s JOIN wanted w ON w.type_id = s.type_id AND w.shard = s.shard
    ORDER BY s.type_id, s.shard
    FOR SHARE OF s SKIP LOCKED
)
SELECT w.type_id, w.shard, COALESCE((
    SELECT format('server process %%s (%%s), %%s', a.pid, COALESCE(NULLIF(a.application_name, ''), 'without a name'),
        COALESCE(a.state || ' for ' || round(extract(epoch FROM clock_timestamp() - a.state_change)) || ' s', 'of another role'))
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid = w.xmax
    LIMIT 1
), '')
FROM wanted w
WHERE NOT EXISTS (SELECT FROM free f WHERE f.type_id = w.type_id AND f.shard = w.shard);
