-- A copy of the database is another cluster: it notices that it lives elsewhere than where its id was made.
-- A replica that takes over is the same one. `origin` is empty until the first use.
WITH here AS (
    SELECT (SELECT system_identifier FROM pg_control_system())::text
        || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())::text AS place
), made AS (
    INSERT INTO sharding_cluster AS c (cluster_id, origin)
    SELECT replace(gen_random_uuid()::text, '-', ''), here.place FROM here
    ON CONFLICT (id) DO UPDATE SET
        cluster_id = CASE WHEN c.origin = '' THEN c.cluster_id ELSE EXCLUDED.cluster_id END,
        origin = EXCLUDED.origin
        WHERE c.origin <> EXCLUDED.origin
    RETURNING c.cluster_id
)
SELECT cluster_id FROM made
UNION ALL
SELECT cluster_id FROM sharding_cluster WHERE NOT EXISTS (SELECT FROM made);
