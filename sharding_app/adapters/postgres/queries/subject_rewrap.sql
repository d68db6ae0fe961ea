-- A key that was erased since it was read stays erased. In one order: no deadlock.
WITH held AS (
    SELECT s.id, u.new
    FROM unnest(%(rows)s::bytea[], %(olds)s::bytea[], %(news)s::bytea[]) AS u (id, old, new)
    JOIN sharding_subject s ON s.id = u.id AND s.wrapped = u.old
    ORDER BY s.id
    FOR UPDATE OF s
)
UPDATE sharding_subject s SET wrapped = held.new FROM held WHERE s.id = held.id RETURNING s.id;
