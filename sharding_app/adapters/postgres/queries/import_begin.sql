-- Takes all shards of the type from their homes, gives those that have never been used a row, and notes the intent. The type's
-- row comes first: a projection that begins to follow the type meanwhile would not see the new rows.
WITH held AS MATERIALIZED (
    SELECT t.id, t.number_of_shards, t.followed FROM sharding_type t WHERE t.id = %(type_id)s FOR SHARE
), fenced AS (
    UPDATE sharding_shard SET epoch = epoch + 1, home = NULL, step = 'stopped', updated_at = now()
    WHERE type_id = (SELECT held.id FROM held)
), made AS (
    INSERT INTO sharding_shard (type_id, shard, epoch, step, followed)
    SELECT t.id, number, 1, 'stopped', t.followed
    FROM held t, generate_series(0, t.number_of_shards - 1) AS number
    ON CONFLICT DO NOTHING
)
INSERT INTO sharding_decision (action, subject, detail)
VALUES (%(action)s, %(type)s, format('by %%s', %(by)s::text));
