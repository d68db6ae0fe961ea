-- Whose a journal is, where it lies, and which of some shards it has a row of that says that they lie there.
SELECT (SELECT c.cluster_id FROM sharding_cluster c), (SELECT c.origin FROM sharding_cluster c),
    (SELECT system_identifier FROM pg_control_system())::text
        || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())::text,
    ARRAY(SELECT s.shard FROM sharding_shard s
        WHERE s.type_id = %(type_id)s AND s.shard = ANY (%(shards)s::integer[]) AND s.journal = '' ORDER BY s.shard);
