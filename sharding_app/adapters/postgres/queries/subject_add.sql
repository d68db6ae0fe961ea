-- Of two keys that are made at once for a subject, the first one stays. In one order: no deadlock.
INSERT INTO sharding_subject (id, mark, wrapped)
SELECT u.id, u.mark, u.wrapped
FROM unnest(%(rows)s::bytea[], %(marks)s::bytea[], %(keys)s::bytea[]) AS u (id, mark, wrapped)
ORDER BY u.mark
ON CONFLICT DO NOTHING
RETURNING id;
