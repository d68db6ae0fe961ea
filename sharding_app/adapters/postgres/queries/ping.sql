-- Touches no table, so that nothing that locks one stops a lease, and reads nothing that grows with the cluster. Whether
-- a session holds the coordinator's lock shows by trying it in shared mode for a moment: one look at one lock.
SELECT
    @server@,
    CASE WHEN pg_try_advisory_lock_shared(%(coordinator_key)s::bigint)
        THEN NOT pg_advisory_unlock_shared(%(coordinator_key)s::bigint)
        ELSE true END;
