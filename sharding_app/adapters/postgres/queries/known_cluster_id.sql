-- The id, unless it was made elsewhere (`cluster_id.sql`).
SELECT c.cluster_id
FROM sharding_cluster c
WHERE c.origin = (SELECT system_identifier FROM pg_control_system())::text
    || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())::text;
