-- Makes this database a journal of a cluster, unless it is one of another cluster, or has a cluster of its own. One row
-- comes back: whose it is, its own place, and whether anything in it was sent or scheduled.
WITH made AS (
    INSERT INTO sharding_cluster AS c (cluster_id, origin) VALUES (%(cluster)s, 'journal')
    ON CONFLICT (id) DO NOTHING
    RETURNING c.cluster_id, c.origin
)
SELECT owner.cluster_id, owner.origin = 'journal',
    (SELECT system_identifier FROM pg_control_system())::text
        || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())::text,
    EXISTS (SELECT FROM sharding_type t WHERE t.uses_messages)
FROM (
    SELECT cluster_id, origin FROM made
    UNION ALL
    SELECT c.cluster_id, c.origin FROM sharding_cluster c WHERE NOT EXISTS (SELECT FROM made)
) owner;
