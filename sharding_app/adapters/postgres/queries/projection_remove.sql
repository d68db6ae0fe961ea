-- Where the code of a later version was taken back, the former one that is filled takes its place again.
WITH gone AS (
    DELETE FROM sharding_projection WHERE id = %(id)s RETURNING name, live
)
UPDATE sharding_projection r SET live = true
FROM gone
WHERE gone.live AND r.id = (
    SELECT o.id FROM sharding_projection o
    WHERE o.name = gone.name AND o.id <> %(id)s AND o.live_at IS NOT NULL
    ORDER BY o.version DESC
    LIMIT 1);
