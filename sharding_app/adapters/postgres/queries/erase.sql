-- Whoever holds the shard erases: a delete fires no fence, so the row is locked and compared here.
WITH held AS MATERIALIZED (
    SELECT t.id, t.name
    FROM sharding_shard s
    JOIN sharding_type t ON t.id = s.type_id
    WHERE s.type_id = %(type_id)s AND s.shard = %(shard)s AND s.epoch = %(epoch)s
    FOR SHARE OF s
), events AS (
    DELETE FROM sharding_event WHERE type_id IN (SELECT id FROM held) AND entity = %(entity)s RETURNING 1
), snapshots AS (
    DELETE FROM sharding_snapshot WHERE type_id IN (SELECT id FROM held) AND entity = %(entity)s RETURNING 1
), remembered AS (
    DELETE FROM sharding_remembered WHERE type_id IN (SELECT id FROM held) AND entity = %(entity)s RETURNING 1
), counted AS (
    SELECT
        (SELECT count(*) FROM events) AS events, (SELECT count(*) FROM snapshots) AS snapshots,
        (SELECT count(*) FROM remembered) AS remembered
), noted AS (
    INSERT INTO sharding_decision (action, subject, detail)
    SELECT 'entity_erased', held.name, format('%%s events, %%s snapshots', events, snapshots)
    FROM counted, held
)
SELECT events, snapshots, remembered FROM counted WHERE EXISTS (SELECT FROM held);
