-- Only what is wanted is written here. The coordinator changes the groups of shards, one after the other. Shards that lie in
-- different journals cannot become one.
WITH wished AS (
    UPDATE sharding_type SET
        shards_wanted = %(wanted)s::integer, shards_revision = shards_revision + 1,
        declared_shards = ARRAY(
            SELECT DISTINCT number FROM unnest(declared_shards || number_of_shards || %(wanted)s::integer) AS number
            ORDER BY number)
    WHERE name = %(type)s AND NOT changeable AND shards_wanted = 0 AND number_of_shards = %(known)s::integer
        AND NOT EXISTS (
            SELECT FROM sharding_shard s
            WHERE s.type_id = sharding_type.id AND s.shard < number_of_shards
            GROUP BY s.shard %% least(number_of_shards, %(wanted)s::integer)
            HAVING count(DISTINCT s.journal) > 1)
    RETURNING name, number_of_shards, shards_wanted
), noted AS (
    INSERT INTO sharding_decision (action, subject, detail)
    SELECT 'resize_asked', name, format('%%s -> %%s shards, by %%s', number_of_shards, shards_wanted, %(by)s::text)
    FROM wished WHERE %(by)s::text <> ''
)
SELECT true FROM wished;
