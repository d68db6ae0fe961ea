-- Tries the coordinator's lock, once, and only when no older live candidate is there to take it: how many of them there
-- are comes back too. While a stranger has the lock, and none of ours, the term alone decides.
WITH held AS MATERIALIZED (SELECT key FROM sharding_locks_v1()), older AS MATERIALIZED (
    SELECT count(*)::integer AS number
    FROM sharding_node me
    JOIN sharding_node n ON n.age < me.age
    WHERE me.incarnation = %(incarnation)s AND n.candidate AND n.state = 'up' AND NOT n.deaf
        AND n.lock_key_1 IN (SELECT key FROM held) AND n.lock_key_2 IN (SELECT key FROM held)
)
SELECT
    CASE
        WHEN me.incarnation IS NULL OR older.number > 0 THEN false
        WHEN pg_try_advisory_lock(%(coordinator_key)s::bigint) THEN true
        ELSE EXISTS (
            SELECT FROM sharding_advisory_v1() theirs JOIN sharding_strangers_v1() s USING (pid)
            WHERE theirs.key = %(coordinator_key)s::bigint
        ) AND NOT EXISTS (SELECT FROM sharding_locks_v1() ours WHERE ours.key = %(coordinator_key)s::bigint)
    END,
    older.number
FROM older
LEFT JOIN sharding_node me ON me.incarnation = %(incarnation)s;
