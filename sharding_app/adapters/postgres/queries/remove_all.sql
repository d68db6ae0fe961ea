WITH chosen AS (
    UPDATE sharding_type
    SET changeable = true, locations_change = locations_change + 1, workers = 0, workers_wanted = 0
    WHERE %(types)s::text[] IS NULL OR name = ANY (%(types)s::text[])
    RETURNING id
), homed AS (
    SELECT type_id, shard FROM sharding_shard WHERE type_id IN (SELECT id FROM chosen) AND home IS NOT NULL
), forgotten AS (
    UPDATE sharding_shard SET epoch = epoch + 1, home = NULL, step = 'stopped', updated_at = now()
    WHERE type_id IN (SELECT id FROM chosen)
), remembered AS (
    DELETE FROM sharding_remembered WHERE type_id IN (SELECT id FROM chosen) RETURNING 1
), messages AS (
    DELETE FROM sharding_message WHERE type_id IN (SELECT id FROM chosen) AND NOT %(kept)s::boolean RETURNING 1
), marks AS (
    -- Otherwise their messages may still wait in another journal: they have taken effect.
    DELETE FROM sharding_taken WHERE %(types)s::text[] IS NULL AND NOT %(kept)s::boolean
), located AS (
    DELETE FROM sharding_location WHERE type_id IN (SELECT id FROM chosen) RETURNING 1
), leases AS (
    DELETE FROM sharding_lease WHERE %(types)s::text[] IS NULL RETURNING 1
), nodes AS (
    DELETE FROM sharding_node WHERE %(types)s::text[] IS NULL RETURNING 1
), noted AS (
    INSERT INTO sharding_decision (action, subject, detail)
    VALUES ('data_removed', coalesce(array_to_string(%(types)s::text[], ', '), 'all types'),
        format('by %%s', %(by)s::text))
)
SELECT
    (SELECT count(*) FROM homed), (SELECT count(*) FROM remembered), (SELECT count(*) FROM leases),
    (SELECT count(*) FROM nodes), (SELECT count(*) FROM located),
    (SELECT count(*) FROM messages);
