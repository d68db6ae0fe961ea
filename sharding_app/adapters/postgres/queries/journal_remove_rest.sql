-- The last piece of the events, with a piece of the remembered ids and messages that are left.
WITH events AS (
    DELETE FROM sharding_event WHERE type_id = %(type_id)s RETURNING 1
), remembered AS (
    DELETE FROM sharding_remembered r USING (
        SELECT shard, entity FROM sharding_remembered WHERE type_id = %(type_id)s
        ORDER BY shard, entity LIMIT %(rows)s
    ) piece WHERE r.type_id = %(type_id)s AND r.shard = piece.shard AND r.entity = piece.entity RETURNING 1
), messages AS (
    DELETE FROM sharding_message m USING (
        SELECT id FROM sharding_message WHERE type_id = %(type_id)s ORDER BY id LIMIT %(rows)s
    ) piece WHERE m.id = piece.id RETURNING 1
)
SELECT
    (SELECT count(*) FROM events), 0, (SELECT count(*) FROM remembered),
    (SELECT count(*) FROM messages);
