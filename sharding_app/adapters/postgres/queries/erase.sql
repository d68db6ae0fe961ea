-- The raised epochs fence whoever still holds the entity in memory: a process that was frozen all the while.
WITH chosen AS (
    SELECT id FROM sharding_type WHERE name = %(type)s
), fenced AS (
    UPDATE sharding_shard SET epoch = epoch + 1, home = NULL, step = 'stopped', updated_at = now()
    WHERE type_id IN (SELECT id FROM chosen) AND shard = ANY (%(shards)s::integer[])
), events AS (
    DELETE FROM sharding_event WHERE type_id IN (SELECT id FROM chosen) AND entity = %(entity)s RETURNING 1
), snapshots AS (
    DELETE FROM sharding_snapshot WHERE type_id IN (SELECT id FROM chosen) AND entity = %(entity)s RETURNING 1
), remembered AS (
    DELETE FROM sharding_remembered WHERE type_id IN (SELECT id FROM chosen) AND entity = %(entity)s RETURNING 1
), counted AS (
    SELECT
        (SELECT count(*) FROM events) AS events, (SELECT count(*) FROM snapshots) AS snapshots,
        (SELECT count(*) FROM remembered) AS remembered
), noted AS (
    INSERT INTO sharding_decision (action, subject, detail)
    SELECT 'entity_erased', %(type)s, format('%%s events, %%s snapshots', events, snapshots)
    FROM counted
)
SELECT events, snapshots, remembered FROM counted;
